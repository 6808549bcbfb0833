"""Whether a controller may be restarted: the core's verdict in words that an operator can act on."""

from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.format.errors import ErrorCode
from quorum.runtime.protocol.requests import LeaderHint, NodeStatus, Refused, ReplicaView
from quorum.runtime.protocol.restarts import restart_advice
from tests.quorum.runtime.quorum_of_three import quorum_of_three
from tests.quorum.wire.fake_node import FakeNode

WITHIN_MS = 1_000


def leading(*caught_up_age_ms: int | None, observers: int = 0) -> NodeStatus:
    """Node 1 leads; voters 2, 3, ... stood at its end so long ago. Observers follow in number."""
    ages = (None, *caught_up_age_ms)
    replicas = tuple(
        ReplicaView(i, bytes([i]) * 16, None, i <= len(ages), "", 10, 5, ages[i - 1] if i <= len(ages) else None)
        for i in range(1, len(ages) + observers + 1)
    )
    return replace(FakeNode().status(), leader=LeaderHint(1, 1, None), replicas=replicas)


def test_the_reason_names_who_is_behind() -> None:
    """So that the operator knows what to wait for; the leader itself is never behind."""
    advice = restart_advice(leading(100, WITHIN_MS, None), 2, False, WITHIN_MS)
    assert advice == (False, "3 of 4 voters are needed, and fewer would remain; behind or silent: 3, 4")
    assert restart_advice(leading(100, 100), 1, True, WITHIN_MS) == (True, "2 of 3 voters are needed, and remain")


def test_nobody_counts_on_an_observer() -> None:
    """It may go at any time."""
    assert restart_advice(leading(None, None, observers=1), 4, False, WITHIN_MS).can_restart


@pytest.mark.slow
async def test_a_voter_that_has_just_ended_does_not_count(tmp_path: Path) -> None:
    """A rolling restart asks right after it has restarted the controller before."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader_id, leader = next((i, loop) for i, loop in quorum.loops.items() if loop.status().is_active)
        gone, next_one = quorum.loops.keys() - {leader_id}
        assert (await leader.restart_advice(next_one)).can_restart
        await quorum.stop_one(gone)
        assert not (await leader.restart_advice(next_one)).can_restart
        assert (await leader.restart_advice(gone)).can_restart


def test_only_a_leader_can_say() -> None:
    """A follower knows nobody's progress; and a node that nobody has heard of is a mistake of the caller's."""
    with pytest.raises(Refused) as caught:
        restart_advice(leading(1, 1), 2, None, WITHIN_MS)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(Refused) as caught:
        restart_advice(leading(1, 1), 8, True, WITHIN_MS)
    assert caught.value.code is ErrorCode.VOTER_NOT_FOUND
