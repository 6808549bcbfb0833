"""The runtime as it runs: three controllers, real gRPC, real disk."""

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.inputs import RequestFailed
from quorum.core.protocol.messages import FetchRequest, PeerRequest, PeerResponse
from quorum.core.roles import Role, Transition
from quorum.runtime.loop import NodeLoop
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Event, Submission
from quorum.wire.peers.peers import Peers
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


async def test_each_change_of_role_is_told(tmp_path: Path) -> None:
    """In order, each from the role that the one before led to; those too that came before there was anybody to tell."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        told: dict[int, list[Transition]] = {node_id: [] for node_id in quorum.loops}
        for node_id, loop in quorum.loops.items():
            loop.on_transition(told[node_id].append)
        for node_id, changes in told.items():
            assert changes[0].left is Role.UNATTACHED
            assert all(before.role is after.left for before, after in pairwise(changes))
            assert changes[-1].role is quorum.loops[node_id].node.core.role
        (leader,) = (changes for changes in told.values() if changes[-1].role is Role.LEADER)
        assert [change.role for change in leader][-3:] == [Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER]


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
    """While no follower comes back a change causes no turn: it goes with the next one that something else causes. Each is
    answered with its own offset."""
    patient = RaftConfig(fetch_timeout_ms=60_000, check_quorum_ms=90_000, request_timeout_ms=60_000)
    async with quorum_of_three(tmp_path, NodeConfig(raft=patient)) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(loop for loop in quorum.loops.values() if loop.status().is_active)
        turns: list[list[Event]] = []
        turn, raft, may_fetch = leader.node.turn, leader.raft, asyncio.Event()
        both_wait = asyncio.Barrier(3)

        def noted(events: Iterable[Event], now_ms: int, wall_ms: int) -> None:
            turns.append(list(events))
            turn(turns[-1], now_ms, wall_ms)

        async def held(request: PeerRequest) -> PeerResponse:
            if isinstance(request, FetchRequest) and not may_fetch.is_set():
                await both_wait.wait()
                await may_fetch.wait()
            return await raft(request)

        monkeypatch.setattr(leader.node, "turn", noted)
        monkeypatch.setattr(leader, "raft", held)
        async with asyncio.timeout(30):
            await both_wait.wait()  # a follower's last fetch may still be in the leader, and would share the turn
        waiting = []
        for n in range(40):
            operation = ConfigOperation(ConfigOperationKind.SET, "min.insync.replicas", str(n + 1))
            command = AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", (operation,)),))
            waiting.append(asyncio.ensure_future(leader.submit(command, 10_000)))
            await asyncio.sleep(0)
        caused = [events for events in turns if events and all(isinstance(event, Submission) for event in events)]
        may_fetch.set()
        replies = await asyncio.gather(*waiting)

        offsets = [reply.offset for reply in replies]
        assert offsets == sorted(set(offsets))
        assert sum(isinstance(event, Submission) for events in turns for event in events) == 40
        assert [len(events) for events in caused] == [1], "the first, for which nobody was under way"


async def test_a_turn_that_fails_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken assertion leaves the node half changed: it goes no further, says so, and leaves nobody waiting (R16)."""
    async with quorum_of_three(tmp_path) as quorum:
        loop = quorum.loops[1]

        def fail(*_: object) -> None:
            raise AssertionError("this cannot be")

        monkeypatch.setattr(loop.node._leadership, "take", fail)
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(loop.read(lambda view: view, 10_000), 5)

        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT  # it may have been half done
        assert "this cannot be" in await asyncio.wait_for(loop.stopped, 5)
        with pytest.raises(Refused, match="has stopped"):
            await loop.read(lambda view: view, 10_000)


async def test_a_leader_that_removes_itself_is_fetched_from_until_that_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both others have the record that does not name it any more before it is committed; and afterwards nobody dials it."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(loop for loop in quorum.loops.values() if loop.status().is_active)
        others = [loop for loop in quorum.loops.values() if loop is not leader]
        in_vain: list[RequestFailed] = []
        post = NodeLoop._post

        def noted(loop: NodeLoop, event: Event) -> None:
            if (
                isinstance(event, RequestFailed)
                and isinstance(event.request, FetchRequest)
                and event.destination == loop.node.core.leader_id == leader.node.me.node_id
            ):
                in_vain.append(event)
            post(loop, event)

        monkeypatch.setattr(NodeLoop, "_post", noted)
        await client.remove_voter(*leader.node.me)
        await client.list_topics()

        assert not in_vain
        assert any(loop.status().is_active for loop in others)
        assert all(
            isinstance(loop._peers, Peers) and leader.node.me.node_id not in loop._peers._peers for loop in others
        )
