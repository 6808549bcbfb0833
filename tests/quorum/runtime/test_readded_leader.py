"""A leader that was removed and added again elsewhere, seen by a node whose log tells only of the removal."""

import random

import grpc.aio

from metadata_log.disk.identity import Identity
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Endpoint
from metadata_log.store.log import Log
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import BeginQuorumEpochRequest
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.loop import NodeLoop
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.wire.peers.peers import Peers
from service_kit.process.clock import RealClock
from snapshots.format import genesis
from tests.quorum.runtime.lone_node import CLUSTER_ID, directory_id, formatted_disk, voters_of

VOTERS = voters_of([1, 2, 3])
NEW = Endpoint("CONTROLLER", "127.0.0.1", 1)
EPOCH = 3


async def test_what_was_just_heard_of_it_counts_more_than_what_the_log_last_said() -> None:
    """It would be dialled where it is no more, and nobody could say so: the log that says it comes from nobody else."""
    disk = formatted_disk(VOTERS)
    log = Log.open(disk.subdirectory(LOG_DIRECTORY), chain=genesis(CLUSTER_ID, VOTERS))
    log.append([voters_of([1, 3])], EPOCH, 1)
    log.flush()
    election_file.save(disk, ElectionState(EPOCH, None, None))
    identity = Identity(CLUSTER_ID, 1, directory_id(1), 1, "controller")
    peers = Peers(identity, lambda _, endpoint: grpc.aio.insecure_channel(f"{endpoint.host}:{endpoint.port}"))
    config = NodeConfig()
    loop = NodeLoop(open_directory(disk, identity, config), config, peers, RealClock(), random.Random(1))
    await loop.start()
    try:
        me, leader = ReplicaKey(1, directory_id(1)), ReplicaKey(2, directory_id(2))
        peers.learn(2, NEW)
        await loop.raft(BeginQuorumEpochRequest(leader, me, EPOCH + 1))
        assert loop.node.core.voters.ids == (1, 3) and loop.node.core.leader_id == 2
        assert peers._peers[2].endpoint == NEW
    finally:
        await loop.stop()
