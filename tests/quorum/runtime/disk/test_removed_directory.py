"""A controller whose directory is removed under it stops, before it promises anything that its disk could not keep."""

import asyncio
import shutil
from pathlib import Path

import pytest

from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.messages import VoteRequest
from quorum.runtime.disk.node_disk import LOOK_MS
from quorum.runtime.protocol.world import RaftRequest
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of
from tests.quorum.runtime.quorum_of_three import quorum_of_three, until


def lone() -> LoneNode:
    node = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    node.run_until_idle()
    assert node.stopped is None
    return node


def test_an_idle_node_notices_within_a_second() -> None:
    """It sets itself a time to look, and says what to do."""
    it = lone()
    it.disk.vanish()
    deadline_ms = it.node.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms <= it.now_ms + LOOK_MS
    it.now_ms += LOOK_MS
    it.turn()
    assert it.stopped is not None and it.stopped.startswith(
        "/lone was removed, or replaced, while this process was using it"
    )
    assert "give the node a new directory" in it.stopped


def test_no_vote_is_given_that_nobody_will_find() -> None:
    """The vote is asked for within that second: it cannot be made durable, so it is not spoken."""
    it = lone()
    it.disk.vanish()
    reply_to = it.new_reply_to()
    vote = VoteRequest(ReplicaKey(2, directory_id(2)), it.node.me, 1, 0, 0, pre_vote=False)
    it.turn(RaftRequest(vote, reply_to))
    assert it.stopped is not None and "was removed" in it.stopped
    assert reply_to not in it.answers


def test_no_record_is_acknowledged_that_nobody_will_find() -> None:
    """A leader's own record counts when it is flushed; the flush of a file without a name fails."""
    it = lone()
    it.elect()
    it.disk.vanish()
    it.run_until_idle()
    assert it.stopped is not None and "was removed" in it.stopped
    assert it.node.log.shape.flushed_end == 0


@pytest.mark.slow
@pytest.mark.parametrize("what", [".", "@metadata"])
async def test_rm_rf_under_one_of_three_stops_it_and_nobody_else(tmp_path: Path, what: str) -> None:
    async with quorum_of_three(tmp_path) as quorum, asyncio.timeout(30):
        await until(lambda: any(loop.node.core.is_leading for loop in quorum.loops.values()))
        victim = next(node_id for node_id, loop in quorum.loops.items() if loop.node.core.is_leading)
        shutil.rmtree(tmp_path / str(victim) / what)
        assert "was removed" in await quorum.loops[victim].stopped
        others = [loop for node_id, loop in quorum.loops.items() if node_id != victim]
        await until(lambda: any(loop.node.core.is_leading for loop in others))
        assert not any(loop.stopped.done() for loop in others)
