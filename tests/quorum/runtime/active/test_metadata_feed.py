"""What a broker's position decides: nothing, the batches from there on, a snapshot, or a place to go back to."""

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, OffsetAndEpoch
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched, Refused
from quorum.runtime.protocol.world import BrokerFetch, ReplyTo, SnapshotWanted
from snapshots.policy import RetentionPolicy
from tests.quorum.runtime.active.brokers import register, uuid
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of


class Feed:
    """A lone controller, and broker 7, which asks from wherever a test says."""

    def __init__(self, config: NodeConfig | None = None) -> None:
        self.lone = LoneNode(formatted_disk(voters_of([1])), config)
        self.lone.run_until_idle()
        self.broker_epoch = register(self.lone, 7)
        for other in (8, 9):
            register(self.lone, other)

    @property
    def end(self) -> Offset:
        """The end of what is committed."""
        return self.lone.node.state.applied

    def mark(self) -> OffsetAndEpoch:
        """A snapshot is written, and the log below it is gone if the configuration keeps none."""
        self.lone.turn(SnapshotWanted("a test", self.lone.new_reply_to(), self.lone.now_ms + 1_000))
        self.lone.run_until_idle()
        snapshot = self.lone.node.log.shape.snapshot
        assert snapshot is not None
        return snapshot

    def asks(
        self, offset: Offset, *, epoch: int | None = None, chain: bytes | None = None, wait_ms: int = 0
    ) -> ReplyTo:
        log = self.lone.node.log
        known_epoch = log.shape.epoch_below(offset) if log.shape.start.offset <= offset <= log.end else None
        fetch = MetadataFetch(
            broker_id=7,
            broker_epoch=self.broker_epoch,
            incarnation_id=uuid(7),
            offset=offset,
            epoch=(known_epoch or 0) if epoch is None else epoch,
            chain=(log.chain_at(offset) or b"") if chain is None else chain,
            wants_fence=False,
            wants_shut_down=False,
            offline_log_dirs=(),
            max_wait_ms=wait_ms,
            max_bytes=1 << 20,
        )
        reply_to = self.lone.new_reply_to()
        self.lone.turn(BrokerFetch(fetch, reply_to))
        self.lone.run_until_idle()
        return reply_to

    def answer(self, reply_to: ReplyTo) -> MetadataFetched:
        answer = self.lone.answers[reply_to]
        assert isinstance(answer, MetadataFetched)
        return answer


def ends(batches: tuple[Batch, ...]) -> list[Offset]:
    return [batch.end_offset for batch in batches]


def test_a_broker_gets_only_what_is_newer_than_its_offset() -> None:
    """From each batch boundary: the batches from there to the end, each once, with the chain below them. Nothing at the end."""
    feed = Feed()
    everything = feed.lone.node.log.read(0, 1 << 20)
    for place, offset in enumerate([0, *ends(everything)]):
        if offset < feed.end:
            answer = feed.answer(feed.asks(offset))
            assert answer.result is FetchResult.BATCHES
            rest = [batch for batch in everything[place:] if batch.end_offset <= feed.end]
            assert answer.batches[: len(rest)] == tuple(rest)
            assert answer.previous_chain == feed.lone.node.log.chain_at(offset)
    at_the_end = feed.answer(feed.asks(feed.end))
    assert (at_the_end.result, at_the_end.batches) == (FetchResult.BATCHES, ())


def test_a_broker_that_has_everything_waits_for_the_next_change_and_gets_that_alone() -> None:
    """A delta: one batch, and not the whole state again."""
    feed = Feed()
    feed.answer(feed.asks(feed.end))  # the contact brings the broker online: that is a change, too
    offset = feed.end
    waiting = feed.asks(offset, wait_ms=10_000)
    assert waiting not in feed.lone.answers
    register(feed.lone, 10)
    answer = feed.answer(waiting)
    assert answer.result is FetchResult.BATCHES
    assert [batch.base_offset for batch in answer.batches] == [offset]


@pytest.mark.parametrize("behind", ["has nothing", "is below the log"])
def test_a_broker_without_metadata_or_too_far_behind_gets_the_whole_state_as_a_snapshot(behind: str) -> None:
    """Retention has dropped the log below the snapshot: there are no deltas from there any more."""
    feed = Feed(NodeConfig(retention=RetentionPolicy(max_bytes=1)))
    (first, *_) = feed.lone.node.log.read(0, 1)
    snapshot = feed.mark()
    assert feed.lone.node.log.shape.start == snapshot
    answer = feed.answer(feed.asks(0 if behind == "has nothing" else first.end_offset, epoch=1))
    assert (answer.result, answer.snapshot, answer.batches) == (FetchResult.USE_SNAPSHOT, snapshot, ())

    above = feed.answer(feed.asks(snapshot.offset))
    assert above.result is FetchResult.BATCHES, "the deltas go on where the snapshot ends"


def test_an_empty_broker_begins_with_the_snapshot_although_the_log_reaches_back() -> None:
    """The snapshot is shorter than the history that it stands for. A broker that is a little behind gets deltas all the same."""
    feed = Feed()
    (first, *_) = feed.lone.node.log.read(0, 1)
    snapshot = feed.mark()
    assert feed.lone.node.log.shape.start.offset == 0
    assert feed.answer(feed.asks(0)).result is FetchResult.USE_SNAPSHOT
    assert feed.answer(feed.asks(first.end_offset)).result is FetchResult.BATCHES
    assert snapshot.offset > first.end_offset


def test_a_broker_with_another_history_is_told_where_the_histories_part() -> None:
    """It is above all that is committed, or its last record is of an epoch that this log does not have there."""
    feed = Feed()
    for answer in (feed.answer(feed.asks(feed.end + 5, epoch=3)), feed.answer(feed.asks(feed.end, epoch=9))):
        assert answer.result is FetchResult.DIVERGED
        assert answer.diverging is not None and answer.diverging.offset <= feed.end


def test_a_broker_with_the_same_place_and_another_chain_is_refused() -> None:
    """Offset and epoch agree, and the hash of the history does not: nobody guesses who is right."""
    feed = Feed()
    refused = feed.lone.answers[feed.asks(feed.end, chain=b"x" * 32)]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.CHAIN_MISMATCH and "fetched anew" in refused.message


def test_only_the_active_controller_serves_brokers() -> None:
    """A voter that does not lead has the records, and still answers no fetch: it names no state, and gives no lease."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    lone.run_until_idle()
    fetch = MetadataFetch(7, 5, uuid(7), 0, 0, b"", False, False, (), 0, 1 << 20)
    reply_to = lone.new_reply_to()
    lone.turn(BrokerFetch(fetch, reply_to))
    answer = lone.answers[reply_to]
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.NOT_CONTROLLER
