"""The runtime as it runs: three controllers, real gRPC, real disk."""

from pathlib import Path

import pytest

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
