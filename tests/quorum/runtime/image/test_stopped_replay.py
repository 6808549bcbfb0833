"""A controller that applies nothing any more, though the others do: it votes, and makes way when it leads."""

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import RemoveTopic, SnapshotMark, Topic
from metadata_log.store.log import Log
from quorum.core.protocol.inputs import PeerRefused
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchResponse,
)
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.world import RaftRequest
from snapshots.format import genesis
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

EPOCH = 3
VOTERS = voters_of([1, 2, 3])
ME, FIRST, SOUND = (ReplicaKey(node_id, directory_id(node_id)) for node_id in (1, 2, 3))
SOME_DIGEST = bytes(range(32))


def written() -> tuple[Batch, ...]:
    """A record that the node can apply, and one that it can not: as an older release would read it, or with a flipped bit."""
    log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    log.append([Topic("t", b"topic".ljust(16))], EPOCH, 1)
    log.append([RemoveTopic("another", bytes(range(16)))], EPOCH, 1)
    return tuple(log.read(0, 1 << 20))


class Stopped(LoneNode):
    """Node 1 of three, which has followed node 2 as far as it can apply; or as far as its image was not the odd one, it hears."""

    def __init__(self, *, is_odd: bool = False) -> None:
        super().__init__(formatted_disk(VOTERS))
        self.turn(RaftRequest(BeginQuorumEpochRequest(FIRST, ME, EPOCH), self.new_reply_to()))
        self.run_until_idle()
        good, bad = written()
        for batches in ((good,), () if is_odd else (bad,), ()):
            answer = FetchResponse(ErrorCode.NONE, EPOCH, 2, self.asked.number, high_watermark=2, batches=batches)
            self.turn(answered(2, self.asked, answer._replace(image_differs=is_odd and not batches)))
            self.run_until_idle()
        assert self.node.state.stopped is not None and self.node.state.applied == 1

    def lead(self) -> None:
        """Node 2 is gone, and node 3 votes for this one."""
        self.turn(PeerRefused(2))
        self.elect()
        self.run_until_idle()


@pytest.fixture(params=[False, True], ids=["replay has stopped", "the odd one"])
def stopped(request: pytest.FixtureRequest) -> Stopped:
    return Stopped(is_odd=request.param)


def test_it_says_that_there_is_no_image_to_compare(stopped: Stopped) -> None:
    """So its leader knows whom not to name as a successor."""
    assert (stopped.asked.applied_offset, stopped.asked.digest) == (1, b"")


def test_it_leads_until_a_sound_voter_has_all_of_the_log(stopped: Stopped) -> None:
    """It would answer NOT_READY for ever. Before that voter holds the record of this epoch, it could not be elected."""
    before = stopped.node.log.shape.end
    stopped.lead()
    end = stopped.node.log.shape.end
    stopped.fetched_by(SOUND, before, end, SOME_DIGEST)
    assert (stopped.node.core.is_leading, stopped.node.active.on) == (True, False)

    stopped.fetched_by(SOUND, end, end, SOME_DIGEST)
    assert not stopped.node.core.is_leading
    _, resigned = stopped.sent[-1]
    assert isinstance(resigned, EndQuorumEpochRequest) and resigned.preferred_successors[0] == SOUND


def test_it_makes_way_for_nobody_who_is_no_better(stopped: Stopped) -> None:
    """All have stopped at the same record: one of them has to lead, so that others may join, and people may look."""
    stopped.lead()
    end = stopped.node.log.shape.end
    stopped.fetched_by(SOUND, end, 1, b"")
    stopped.fetched_by(SOUND, end, 1, SOME_DIGEST)
    assert stopped.node.core.is_leading


def test_a_mark_in_front_of_the_batch_is_passed_although_one_turn_reads_both() -> None:
    """The topic, the mark and the bad batch become committed at once. The node writes the snapshot of the mark, and keeps the
    digest of the image in front of the batch for comparisons.
    """
    log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    log.append([Topic("t", b"topic".ljust(16))], EPOCH, 1)
    log.append([SnapshotMark("time")], EPOCH, 1)
    log.append([RemoveTopic("another", bytes(range(16)))], EPOCH, 1)
    node = LoneNode(formatted_disk(VOTERS))
    node.turn(RaftRequest(BeginQuorumEpochRequest(FIRST, ME, EPOCH), node.new_reply_to()))
    node.run_until_idle()
    for batches in (tuple(log.read(0, 1 << 20)), ()):
        answer = FetchResponse(ErrorCode.NONE, EPOCH, 2, node.asked.number, high_watermark=3, batches=batches)
        node.turn(answered(2, node.asked, answer))
        node.run_until_idle()
    state = node.node.state
    assert state.stopped is not None and state.applied == 2
    assert [info.end for info in node.node.snapshotter.store.list()] == [OffsetAndEpoch(2, EPOCH)]
    assert state.bytes_since_mark == 0
    assert state.digests.heard(FIRST, 2, state.committed.digest_bytes) and not state.digests.heard(
        SOUND, 2, SOME_DIGEST
    )
