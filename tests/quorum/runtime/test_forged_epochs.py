"""A stranger who reaches a controller's port walks its epoch up, as far as a request may: the cluster serves all the same."""

import asyncio
import os
from pathlib import Path

import grpc.aio
import pytest
from quorum_rpc.v1 import common_pb2, voter_pb2, voter_pb2_grpc

from metadata_log.disk.files import RealDirectory
from quorum.core.protocol.epochs import EPOCHS_AHEAD_MAX
from quorum.runtime.disk import election_file
from tests.quorum.runtime.quorum_of_three import Quorum, quorum_of_three, until

STEPS = 2_160
"""So many votes, each a million epochs ahead, pass 2^31: what 32 bits with a sign held was over after 2,148."""


async def walk(quorum: Quorum, victim: int) -> int:
    """Forged votes in another voter's name, each as far ahead as is taken in; gives the victim's epoch after them."""
    names = {i: quorum.loops[i].node.me for i in quorum.loops}
    endpoint, epoch = quorum.endpoints[victim], 0
    async with grpc.aio.insecure_channel(f"{endpoint.host}:{endpoint.port}") as channel:
        stub = voter_pb2_grpc.VoterServiceStub(channel)  # type: ignore[no-untyped-call]
        forger = names[victim % 3 + 1]
        for _ in range(STEPS):
            vote = voter_pb2.VoteRequest(
                sender=voter_pb2.Sender(
                    cluster_id=quorum.cluster_id,
                    replica=common_pb2.ReplicaKey(node_id=forger.node_id, directory_id=forger.directory_id),
                    generation=1,
                ),
                receiver=common_pb2.ReplicaKey(node_id=victim, directory_id=names[victim].directory_id),
                epoch=epoch + EPOCHS_AHEAD_MAX,
            )
            epoch = max(epoch, (await stub.Vote(vote)).standing.epoch)
    return epoch


@pytest.mark.slow
async def test_votes_beyond_32_bits_leave_a_cluster_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A stranger sends 2,160 votes in a voter's name, each a million epochs ahead. The receiver's epoch passes 2^31.
    2. The cluster elects a leader beyond that, and makes a change.
    3. The receiver is stopped; its vote reads back from its disk. (The 31st bit was written, and never read again.)
    """
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)  # two thousand votes, and no power cut: the disk may be lazy
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client, asyncio.timeout(60):
        await until(lambda: any(loop.node.core.is_leading for loop in quorum.loops.values()))
        assert await walk(quorum, victim=3) > 1 << 31

        assert (await client.create_snapshot("a change like any other")).offset > 0
        assert min(loop.node.core.epoch for loop in quorum.loops.values()) > 1 << 31

        await quorum.stop_one(3)
        state = election_file.load(RealDirectory(tmp_path / "3"))
        assert state is not None and state.epoch > 1 << 31
