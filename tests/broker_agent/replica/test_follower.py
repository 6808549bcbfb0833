"""A follower of one partition: its fetches, the answers that count, truncation by leader epoch, and the high watermark.

Broker 3 follows broker 1 in leader epoch 5.
"""

import pytest

from broker_agent.replica.follower import (
    AppendBatches,
    BatchesRefused,
    BeginAt,
    DiskFailed,
    FollowerHighWatermarkMoved,
    LogStart,
    OffsetMismatch,
    PartitionAnswer,
    PartitionFetch,
    PartitionFollower,
    Progress,
    RaiseLogStart,
    StopReason,
    StopReplica,
    TruncateLog,
)
from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart, LogShape
from tests.broker_agent.replica.logs import batch, run, shape_of


def follower(*epochs: int, known: int = 0) -> PartitionFollower:
    return PartitionFollower(1, 5, run(*epochs), known)


def test_a_follower_fetches_from_its_end_on_disk() -> None:
    """The request names the end, the leader epoch, and the epoch of the last record. An empty log has epoch 0."""
    assert follower(4, 4, 5).next_fetch() == PartitionFetch(3, 5, 5)
    assert follower().next_fetch() == PartitionFetch(0, 5, 0)


def test_records_are_appended_and_flushed_before_the_next_fetch() -> None:
    """A fetch is an acknowledgement: no fetch leaves while the log works, or before its flush."""
    it = follower(5)
    new = batch(1, 5, "a", "b")
    assert it.answered(it.next_fetch(), PartitionAnswer(batches=(new,))) == (Progress.DATA, [AppendBatches((new,))])
    assert not it.is_active
    it.log_changed(run(5, 5, 5, flushed=1))
    assert not it.is_active
    it.log_changed(run(5, 5, 5))
    assert it.next_fetch() == PartitionFetch(3, 5, 5)


def test_the_high_watermark_is_the_lesser_of_the_leaders_and_the_own_flushed_end() -> None:
    """The leader has committed 2 records: the follower knows this only for what its own disk has."""
    it = follower(5)
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(high_watermark=2, batches=(batch(1, 5, "a", "b"),)))
    assert effects[0] == FollowerHighWatermarkMoved(1)
    assert it.log_changed(run(5, 5, 5, flushed=1)) == []
    assert it.log_changed(run(5, 5, 5)) == [FollowerHighWatermarkMoved(2)]
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(high_watermark=3))
    assert effects == [FollowerHighWatermarkMoved(3)]


def test_a_new_leader_takes_no_high_watermark_back() -> None:
    """The new leader knows a lower high watermark for a while, but what was committed stays committed."""
    it = follower(5, 5, known=2)
    it.follow(2, 6)
    assert it.answered(it.next_fetch(), PartitionAnswer(high_watermark=1)) == (Progress.NOTHING_NEW, [])
    assert it.high_watermark == 2


def test_an_answer_for_an_earlier_offset_does_not_count() -> None:
    """The same request was answered twice: the second answer would append the records again."""
    it = follower()
    asked, answer = it.next_fetch(), PartitionAnswer(batches=(batch(0, 5, "a"),))
    it.answered(asked, answer)
    assert it.answered(asked, answer) == (Progress.LATE, []), "while the log works"
    it.log_changed(run(5))
    assert it.answered(asked, answer) == (Progress.LATE, []), "at another offset"


def test_an_answer_of_an_earlier_leader_epoch_does_not_count() -> None:
    """The earlier leader of the same offset may send records that the new leader has not."""
    it = follower(4)
    asked = it.next_fetch()
    it.follow(2, 6)
    late = PartitionAnswer(high_watermark=1, batches=(batch(1, 5, "a"),))
    assert it.answered(asked, late) == (Progress.LATE, [])
    assert it.high_watermark == 0


def test_a_follower_truncates_by_leader_epoch() -> None:
    """KIP-101: leader 1 1 1 4 4 5, follower 1 1 1 3 3 3. Two rounds would be needed if epochs alternated more often."""
    it = follower(1, 1, 1, 3, 3, 3)
    answer = PartitionAnswer(diverged=OffsetAndEpoch(3, 1))
    assert it.answered(it.next_fetch(), answer) == (Progress.NOTHING_NEW, [TruncateLog(3, below_high_watermark=False)])
    assert not it.is_active
    it.log_changed(run(1, 1, 1))
    assert it.next_fetch() == PartitionFetch(3, 5, 1)


def test_a_truncation_keeps_what_is_above_the_high_watermark_and_common() -> None:
    """The high watermark lags: the records 1 and 2 may be committed, and the leader has them (KIP-101)."""
    it = follower(1, 1, 1, 3, known=1)
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(diverged=OffsetAndEpoch(3, 1)))
    assert effects == [TruncateLog(3, below_high_watermark=False)]
    assert it.high_watermark == 1


def test_an_epoch_that_the_follower_lacks_takes_another_round() -> None:
    """KIP-279: leader 1 2 2 5, follower 1 3 3. The leader says "epoch 2 ends at 3": the follower has no epoch 2."""
    it = follower(1, 3, 3)
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(diverged=OffsetAndEpoch(3, 2)))
    assert effects == [TruncateLog(1, below_high_watermark=False)]


def test_a_truncation_below_the_high_watermark_is_told() -> None:
    """Only an unclean election does this. The high watermark goes back with the log."""
    it = follower(1, 3, 3, known=3)
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(diverged=OffsetAndEpoch(1, 1)))
    assert effects == [TruncateLog(1, below_high_watermark=True)]
    assert it.high_watermark == 1


def test_a_point_of_divergence_above_the_own_end_is_refused() -> None:
    """A truncation would make no progress: the follower asks again after a pause."""
    it = follower(1, 3)
    assert it.answered(it.next_fetch(), PartitionAnswer(diverged=OffsetAndEpoch(9, 3))) == (Progress.FAILED, [])
    assert it.is_active


def test_a_divergence_below_the_own_log_start_begins_at_the_leaders() -> None:
    """An unclean election: the leader's log parts from this one where this log has nothing any more, or is empty."""
    start = LogStart(2, 1, b"chain")
    for log in (shape_of(start=OffsetAndEpoch(9, 4)), shape_of(batch(9, 4, "a"), start=OffsetAndEpoch(9, 4))):
        it = PartitionFollower(1, 5, log, 9)
        answer = PartitionAnswer(diverged=OffsetAndEpoch(7, 4), begin_at=start)
        assert it.answered(it.next_fetch(), answer) == (
            Progress.NOTHING_NEW,
            [BeginAt(start, below_high_watermark=True)],
        )
        assert it.high_watermark == 2


def test_an_offset_out_of_range_begins_at_the_leaders_log_start() -> None:
    """The leader has deleted the records that the follower needs."""
    it = follower(1, known=1)
    start = LogStart(9, 4, b"chain")
    answer = PartitionAnswer(E.OFFSET_OUT_OF_RANGE, begin_at=start)
    assert it.answered(it.next_fetch(), answer) == (Progress.NOTHING_NEW, [BeginAt(start, below_high_watermark=False)])
    assert it.log_changed(shape_of(start=OffsetAndEpoch(9, 4))) == [FollowerHighWatermarkMoved(9)]
    assert it.next_fetch() == PartitionFetch(9, 5, 4)


def test_the_leaders_log_start_is_taken_up_to_the_high_watermark() -> None:
    """The leader has deleted records: the follower deletes them too."""
    it = follower(4, 4, 5)
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(high_watermark=3, log_start_offset=2))
    assert effects == [FollowerHighWatermarkMoved(3), RaiseLogStart(2)]
    cut = LogShape(OffsetAndEpoch(2, 4), 3, 3, (EpochStart(5, 2),), b"", b"")
    it.log_changed(cut)
    assert it.answered(it.next_fetch(), PartitionAnswer(high_watermark=3, log_start_offset=2))[1] == []


def test_a_fenced_leader_epoch_waits_for_metadata() -> None:
    """Another leader epoch has begun: this broker will read about it."""
    it = follower(4)
    assert it.answered(it.next_fetch(), PartitionAnswer(E.FENCED_LEADER_EPOCH)) == (Progress.FAILED, [])
    assert not it.is_active
    it.follow(2, 6)
    assert it.next_fetch() == PartitionFetch(1, 6, 4)


@pytest.mark.parametrize(
    "code", [E.UNKNOWN_LEADER_EPOCH, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_ID, E.STORAGE_ERROR]
)
def test_another_error_is_asked_again(code: E) -> None:
    """The leader's broker may be behind: this broker gets no newer metadata, so it must ask again (KIP-320)."""
    it = follower(4)
    assert it.answered(it.next_fetch(), PartitionAnswer(code)) == (Progress.FAILED, [])
    assert it.is_active


def test_an_answer_that_begins_elsewhere_stops_the_replica() -> None:
    """Offset mismatch: the log must never have a gap, and the leader has broken the protocol."""
    it = follower(4)
    _, effects = it.answered(it.next_fetch(), PartitionAnswer(batches=(batch(2, 5, "a"),)))
    assert effects == [StopReplica(OffsetMismatch(1, 2))]
    assert not it.is_active
    assert "nothing was appended" in str(it.stopped)


@pytest.mark.parametrize("reason", [DiskFailed("no space left"), BatchesRefused("the chain does not match")])
def test_an_error_of_the_log_stops_the_replica(reason: StopReason) -> None:
    """The caller decides if the partition, its directory or the broker stops; this follower does nothing more."""
    it = follower(4)
    asked = it.next_fetch()
    assert it.log_failed(reason) == [StopReplica(reason)]
    assert it.answered(asked, PartitionAnswer(high_watermark=1)) == (Progress.LATE, [])
    assert str(reason) in str(it)


def test_a_checkpoint_above_the_flushed_end_is_not_believed() -> None:
    """After a power failure the log may be shorter than the checkpoint of its high watermark."""
    assert follower(4, known=7).high_watermark == 1
    assert PartitionFollower(1, 5, shape_of(start=OffsetAndEpoch(9, 4)), 0).high_watermark == 9


def test_the_lag_is_that_of_the_last_answer() -> None:
    """Committed records that this replica lacks."""
    it = follower(4)
    it.answered(it.next_fetch(), PartitionAnswer(high_watermark=4))
    assert it.lag == 3
    assert str(it) == "follower of 1 epoch 5: log 1 flushed 1 high watermark 1"
