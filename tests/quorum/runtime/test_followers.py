"""A follower makes durable and acknowledges first what others wait for, and applies much only then; but never far behind."""

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Endpoint, LeaderChange, Topic
from metadata_log.store.log import Log
from quorum.core.protocol.messages import BeginQuorumEpochRequest, FetchResponse
from quorum.runtime.addresses import Addresses
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.world import RaftRequest
from snapshots.format import genesis
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

EPOCH = 3
VOTERS = voters_of([1, 2, 3])
ME, LEADER = ReplicaKey(1, directory_id(1)), ReplicaKey(2, directory_id(2))
EACH = 5
"""Records in a batch."""


def written() -> list[Batch]:
    """What the leader has."""
    log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    ids = iter(range(1, 100))
    return [
        log.append([Topic(f"t{i}", i.to_bytes(16, "big")) for i, _ in zip(ids, range(EACH), strict=False)], EPOCH, 1)
        for _ in range(4)
    ]


class Follower(LoneNode):
    """Of node 2."""

    def __init__(self, apply_at_once_records: int) -> None:
        super().__init__(formatted_disk(VOTERS), NodeConfig(apply_at_once_records=apply_at_once_records))
        self.turn(RaftRequest(BeginQuorumEpochRequest(LEADER, ME, EPOCH), self.new_reply_to()))
        self.run_until_idle()

    def take(self, batch: Batch, high_watermark: int) -> None:
        answer = FetchResponse(ErrorCode.NONE, EPOCH, 2, self.asked.number, high_watermark, batches=(batch,))
        self.turn(answered(2, self.asked, answer))


def test_what_others_wait_for_goes_first() -> None:
    first, second, *_ = written()
    follower = Follower(apply_at_once_records=EACH - 1)
    follower.take(first, 0)
    follower.run_until_idle()
    assert follower.asked.fetch_offset == first.end_offset

    follower.take(second, first.end_offset)
    assert follower.node.state.applied == 0, "it has something to make durable"
    follower.run_until_idle()
    assert follower.asked.fetch_offset == second.end_offset
    assert follower.node.state.applied == 0, "the acknowledgement has not left before this turn is over"
    assert follower.node.next_deadline_ms() == follower.now_ms, "it does not wait for anybody to go on"
    follower.turn()
    assert follower.node.state.applied == first.end_offset


def test_a_follower_that_always_has_something_to_say_falls_no_further_behind() -> None:
    follower = Follower(apply_at_once_records=EACH - 1)
    committed = 0
    for batch in written():
        follower.take(batch, committed)
        assert follower.node.state.applied >= committed - EACH
        follower.run_until_idle()
        committed = batch.end_offset


def test_a_truncation_into_a_batch_is_refused_and_the_follower_fetches_again() -> None:
    """Only a faulty leader names such an offset. The follower trusts its own log, which is intact.

    1. Follower 1 holds the batch [0,5) and fetches from 5.
    2. Leader 2 answers that the logs differ from 3 on: follower 1 cuts nothing, and goes on.
    3. A second answer, right this time, continues the log of follower 1.
    """
    first, second, *_ = written()
    follower = Follower(apply_at_once_records=EACH)
    follower.take(first, 0)
    follower.run_until_idle()
    fetch, shape = follower.asked, follower.node.log.shape

    inside = OffsetAndEpoch(first.end_offset - 2, EPOCH)
    follower.turn(answered(2, fetch, FetchResponse(ErrorCode.NONE, EPOCH, 2, fetch.number, 0, diverging=inside)))
    assert (follower.stopped, follower.node.log.shape) == (None, shape)
    follower.now_ms += follower.config.raft.fetch_wait_ms
    follower.turn()
    assert (follower.asked.number, follower.asked.fetch_offset) == (fetch.number + 1, first.end_offset)

    follower.take(second, 0)
    follower.run_until_idle()
    assert follower.asked.fetch_offset == second.end_offset


@pytest.mark.parametrize("at_once", [EACH, 100])
def test_few_records_are_applied_at_once(at_once: int) -> None:
    """A turn of their own would cost more."""
    first, second, *_ = written()
    follower = Follower(apply_at_once_records=at_once)
    follower.take(first, 0)
    follower.run_until_idle()
    follower.take(second, first.end_offset)
    assert follower.node.state.applied == first.end_offset


def test_a_way_round_that_only_this_node_knows_is_not_told_to_other_controllers() -> None:
    """Its configuration names a proxy, where another one would look for the leader in vain, as long as that leads."""
    follower = Follower(apply_at_once_records=EACH)
    proxy = Endpoint("CONTROLLER", "127.0.0.1", 7)
    addresses = Addresses(follower.node.core, 1, NodeConfig(voter_endpoints={2: proxy}))
    first, *_ = written()
    follower.take(first, 0)
    hint = addresses.leader_hint(follower.now_ms)
    assert (hint.leader_id, hint.endpoint) == (2, proxy)
    assert addresses.named_leader().endpoint == VOTERS.voters[1].endpoints[0]


def test_a_leader_that_has_removed_itself_is_reached_as_long_as_it_is_followed() -> None:
    """It leads on until that is committed, and commits nothing if nobody can fetch it."""
    log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    removal = log.append([voters_of([1, 3])], EPOCH, 1)
    follower = Follower(apply_at_once_records=EACH)
    follower.take(removal, 0)
    follower.run_until_idle()
    node = follower.node
    assert node.core.voters.ids == (1, 3) and node.core.leader_id == 2
    hint = node.addresses.leader_hint(follower.now_ms)
    assert node.addresses.last_named_leader()[2] == hint.endpoint == VOTERS.voters[1].endpoints[0]

    successor = BeginQuorumEpochRequest(ReplicaKey(3, directory_id(3)), ME, EPOCH + 1)
    follower.turn(RaftRequest(successor, follower.new_reply_to()))
    assert node.core.leader_id == 3
    assert sorted({**node.addresses.last_named_leader(), **node.addresses.endpoints()}) == [1, 3]


def test_a_follower_sees_that_its_leader_has_written() -> None:
    """The first record of an epoch needs no image of the leader; any further record does. A new epoch begins anew."""
    log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    first = log.append([LeaderChange(2, (1, 2, 3), (1, 2, 3))], EPOCH, 1)
    second = log.append([Topic("t", (1).to_bytes(16, "big"))], EPOCH, 1)
    follower = Follower(apply_at_once_records=EACH)
    has_written = [follower.node.leader_has_written]
    for batch in (first, second):
        follower.take(batch, 0)
        follower.run_until_idle()
        has_written.append(follower.node.leader_has_written)
    assert has_written == [False, False, True]

    successor = BeginQuorumEpochRequest(ReplicaKey(3, directory_id(3)), ME, EPOCH + 1)
    follower.turn(RaftRequest(successor, follower.new_reply_to()))
    assert not follower.node.leader_has_written
