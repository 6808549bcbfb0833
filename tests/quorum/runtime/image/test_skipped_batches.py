"""A controller that has applied a batch which is skipped later: its image is made anew, and nobody is accused meanwhile."""

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import SkippedBatch, Topic
from metadata_log.store.log import Log
from quorum.core.protocol.inputs import PeerRefused
from quorum.core.protocol.messages import BeginQuorumEpochRequest, FetchResponse
from quorum.runtime.agreement import Agreement
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.world import RaftRequest
from snapshots.format import genesis
from tests.quorum.runtime.image.test_stopped_replay import EPOCH, FIRST, ME, SOME_DIGEST, SOUND, VOTERS
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, formatted_disk
from tests.sim.world.disk import MemoryDirectory


def written() -> tuple[Batch, ...]:
    """A topic, a batch that this release can apply and others cannot, another topic, and the skip of the batch."""
    log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    for name in ("first", "dropped", "last"):
        log.append([Topic(name, name.encode().ljust(16))], EPOCH, 1)
    _, batch, _ = log.read(0, 1 << 20)
    log.append([SkippedBatch(1, EPOCH, batch.chain, 1, 2)], EPOCH, 1)
    return tuple(log.read(0, 1 << 20))


class Follower(LoneNode):
    """Node 1 of three, which has applied all three topics, and has the skip in its log."""

    def __init__(self) -> None:
        super().__init__(formatted_disk(VOTERS))
        self.turn(RaftRequest(BeginQuorumEpochRequest(FIRST, ME, EPOCH), self.new_reply_to()))
        self.run_until_idle()
        *topics, skip = written()
        self.answer(3, *topics)
        self.answer(3, skip)
        self.answer(3)
        assert self.names == {"first", "dropped", "last"}

    def lead(self) -> None:
        """Node 2 is gone, and node 3 votes for this one."""
        self.turn(PeerRefused(2))
        self.elect()
        self.run_until_idle()

    @property
    def names(self) -> set[str]:
        return {topic.name for topic in self.node.state.committed.topics()}

    def answer(self, high_watermark: int, *batches: Batch) -> None:
        answer = FetchResponse(
            ErrorCode.NONE, EPOCH, 2, self.asked.number, high_watermark=high_watermark, batches=batches
        )
        self.turn(answered(2, self.asked, answer))
        self.run_until_idle()


def test_a_committed_skip_makes_the_image_anew() -> None:
    """Without the batch, and with everything else; the follower follows on."""
    follower = Follower()
    follower.answer(4)
    while follower.node.has_more_to_do:
        follower.turn()
        follower.run_until_idle()
    assert (follower.names, follower.node.state.applied) == ({"first", "last"}, 4)
    assert follower.problems == {} and follower.stopped is None


@pytest.mark.parametrize("compares", [False, True])
def test_images_between_a_batch_and_its_skip_are_not_compared(compares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two voters have dropped the batch already. A new leader that still has its effect is not odd: it comes to the skip soon."""
    if compares:
        monkeypatch.setattr(Agreement, "_is_before_skip", lambda self, offset: False)
    leader = Follower()
    leader.lead()
    for voter in (FIRST, SOUND):
        leader.fetched_by(voter, 4, 3, SOME_DIGEST)
    assert leader.node.has_odd_image is compares
