"""The runtime as it runs: three controllers, real gRPC, real disk."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from metadata_log.errors import ErrorCode
from metadata_log.records import BROKER_RESOURCE
from quorum.controller.commands import AlterConfigs, ConfigAlteration, ConfigOperation, ConfigOperationKind
from quorum.runtime.requests import Refused
from quorum.runtime.world import Event, Submission
from tests.quorum.runtime.quorum_of_three import quorum_of_three

pytestmark = pytest.mark.slow


async def test_three_controllers_elect_one_and_commit_on_all(tmp_path: Path) -> None:
    """A write is answered with its offset; soon every node has applied it and holds the same history."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        listed = await client.list_topics()
        status = [loop.status() for loop in quorum.loops.values()]

        assert list(listed.topics) == []
        assert sum(one.is_active for one in status) == 1
        assert sorted(one.epoch for one in status)[1] == max(one.epoch for one in status)  # a majority is in it
        assert {one.cluster_id for one in status} == {quorum.cluster_id}


async def test_a_leader_that_stops_hands_over(tmp_path: Path) -> None:
    """A graceful stop costs no fetch timeout: the successors are told, and one of them leads at once."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        before = next(loop.status() for loop in quorum.loops.values() if loop.status().is_active)
        await quorum.stop_one(before.node_id)
        listed = await client.list_topics()
        after = next(loop.status() for loop in quorum.loops.values() if loop.status().is_active)

        assert after.node_id != before.node_id
        assert after.epoch > before.epoch
        assert listed.as_of_offset > 0


async def test_changes_gather_while_one_waits_for_its_majority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that trickle in while followers are under way share a few turns, and each is answered with its own offset."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(loop for loop in quorum.loops.values() if loop.status().is_active)
        shared: list[int] = []
        turn = leader.node.turn

        def counted(events: Iterable[Event], now_ms: int, wall_ms: int) -> None:
            events = list(events)
            shared.append(sum(isinstance(event, Submission) for event in events))
            turn(events, now_ms, wall_ms)

        monkeypatch.setattr(leader.node, "turn", counted)
        waiting = []
        for n in range(40):
            operation = ConfigOperation(ConfigOperationKind.SET, "min.insync.replicas", str(n + 1))
            command = AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", (operation,)),))
            waiting.append(asyncio.ensure_future(leader.submit(command, 10_000)))
            await asyncio.sleep(0)
        replies = await asyncio.gather(*waiting)

        offsets = [reply.offset for reply in replies]
        assert offsets == sorted(set(offsets))
        assert sum(shared) == 40
        assert len([count for count in shared if count]) < 20


async def test_a_turn_that_fails_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken assertion leaves the node half changed: it goes no further, says so, and leaves nobody waiting (R16)."""
    async with quorum_of_three(tmp_path) as quorum:
        loop = quorum.loops[1]

        def fail(*_: object) -> None:
            raise AssertionError("this cannot be")

        monkeypatch.setattr(loop.node, "_take", fail)
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(loop.read(lambda view: view, 10_000), 5)

        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT  # it may have been half done
        assert "this cannot be" in await asyncio.wait_for(loop.stopped, 5)
        with pytest.raises(Refused, match="has stopped"):
            await loop.read(lambda view: view, 10_000)
