"""The judge of partitions finds each kind of wrong history, and no fault in right ones."""

from tests.chaos.data.history import Fate, History, Seen, Send
from tests.chaos.data.judge import Verdict, judge_partition

A, B = "producer 1", "producer 2"


def sent(
    producer: str, values: str, began: int, ended: int, offset: int | None, fate: Fate = Fate.ACKNOWLEDGED
) -> Send:
    """A batch to partition 0; each letter of `values` is a record."""
    return Send(producer, 0, tuple(values), began, ended, fate, offset)


def saw(values: str, offset: int, asked: int, answered: int, *, epoch: int = 0, hw: int | None = None) -> Seen:
    """An answer to a consumer; without `hw`, the high watermark is the end of the records."""
    end = offset + len(values)
    return Seen("consumer", 0, asked, answered, epoch, end if hw is None else hw, offset, tuple(values))


def judged(sends: list[Send], log: str, *reads: Seen) -> Verdict:
    return judge_partition(0, History(sends, list(reads)), tuple(log))


def laws(verdict: Verdict) -> list[str]:
    return [problem.split()[0] for problem in verdict.problems]


def test_a_log_of_acknowledged_batches_in_order_is_right() -> None:
    """Batches of two producers that overlap in time may stand in either order, and consumers may read behind."""
    sends = [sent(A, "ab", 1, 5, 0), sent(B, "xy", 2, 4, 2), sent(A, "c", 6, 7, 4)]
    verdict = judged(sends, "abxyc", saw("ab", 0, 5, 6), saw("abxyc", 0, 8, 9))
    assert verdict == Verdict(acknowledged=5, lost=0, problems=[])


def test_an_unknown_batch_may_be_in_the_log_or_not() -> None:
    """A producer that never heard the outcome promises nothing, in either direction."""
    unknown = sent(A, "a", 1, 2, None, Fate.UNKNOWN)
    assert judged([unknown], "a").problems == []
    assert judged([unknown], "").problems == []


def test_an_acknowledged_record_that_another_record_replaced_is_lost() -> None:
    """L1: the example of the judge's file."""
    verdict = judged([sent(A, "a", 1, 2, 0), sent(B, "x", 1, 4, 0)], "x")
    assert (verdict.lost, laws(verdict)) == (1, ["L1"])
    assert "a was acknowledged at 0, where the log has x" in verdict.problems[0]


def test_acknowledged_records_above_the_end_of_the_log_are_lost() -> None:
    """L1: each record counts, not each batch."""
    verdict = judged([sent(A, "ab", 1, 2, 0)], "a")
    assert (verdict.acknowledged, verdict.lost, laws(verdict)) == (2, 1, ["L1"])


def test_an_acknowledged_record_at_another_offset_than_told_counts_as_lost() -> None:
    """L1: a consumer that was told the offset would not find the record there."""
    assert judged([sent(A, "a", 1, 2, 0), sent(B, "x", 1, 2, 1)], "xa").lost == 2


def test_a_record_that_is_twice_in_the_log_is_found() -> None:
    """L2: a repeated batch of an idempotent producer was appended again."""
    verdict = judged([sent(A, "a", 1, 2, 0)], "aa")
    assert laws(verdict) == ["L2"]
    assert "a is 2 times in the log" in verdict.problems[0]


def test_a_record_that_nobody_sent_is_found() -> None:
    """L2."""
    assert laws(judged([], "z")) == ["L2"]


def test_a_failed_record_in_the_log_is_found() -> None:
    """L2: "nothing was done" has to be true."""
    assert laws(judged([sent(A, "a", 1, 2, None, Fate.FAILED)], "a")) == ["L2"]


def test_a_send_that_began_after_an_answer_stands_behind_it() -> None:
    """L3: a stale leader gave x a place before a, although a had been answered before x was sent."""
    verdict = judged([sent(A, "a", 1, 2, 1), sent(B, "x", 3, 4, 0)], "xa")
    assert laws(verdict) == ["L3"]


def test_an_unknown_send_that_began_after_an_answer_stands_behind_it_too() -> None:
    """L3: the beginning of an unknown send is known."""
    verdict = judged([sent(A, "a", 1, 2, 1), sent(B, "x", 3, 9, None, Fate.UNKNOWN)], "xa")
    assert laws(verdict) == ["L3"]


def test_sends_that_touch_at_one_moment_overlap() -> None:
    """L3: with equal times, no order is known."""
    assert judged([sent(A, "a", 1, 2, 1), sent(B, "x", 2, 4, 0)], "xa").problems == []


def test_the_records_of_one_producer_keep_their_order() -> None:
    """L4: an unknown batch that was sent first must not stand behind the producer's next batch."""
    verdict = judged([sent(A, "a", 1, 2, None, Fate.UNKNOWN), sent(A, "b", 3, 4, 0)], "ba")
    assert laws(verdict) == ["L4"]


def test_records_of_one_batch_keep_their_order() -> None:
    """L4, within a batch whose outcome nobody knows."""
    assert laws(judged([sent(A, "ab", 1, 2, None, Fate.UNKNOWN)], "ba")) == ["L4"]


def test_a_consumer_that_read_a_record_which_is_gone_is_found() -> None:
    """L5: an uncommitted record was shown, and truncated later."""
    unknown = sent(A, "a", 1, 2, None, Fate.UNKNOWN)
    verdict = judged([unknown, sent(B, "x", 4, 5, 0)], "x", saw("a", 0, 2, 3))
    assert laws(verdict) == ["L5"]
    assert "where the log has x" in verdict.problems[0]


def test_a_consumer_that_read_above_the_final_end_is_found() -> None:
    """L5."""
    verdict = judged([sent(A, "a", 1, 2, None, Fate.UNKNOWN)], "", saw("a", 0, 2, 3))
    assert laws(verdict) == ["L5"]


def test_a_record_that_was_read_before_it_was_sent_is_found() -> None:
    """L5: the clocks of the harness are one clock."""
    assert laws(judged([sent(A, "a", 5, 6, 0)], "a", saw("a", 0, 2, 3))) == ["L5"]


def test_the_high_watermark_does_not_go_back_within_an_epoch() -> None:
    """L6: a consumer asked after another one had been shown more, in the same epoch."""
    sends = [sent(A, "ab", 1, 2, 0)]
    verdict = judged(sends, "ab", saw("ab", 0, 3, 4), saw("", 1, 5, 6, hw=1))
    assert laws(verdict) == ["L6"]


def test_the_high_watermark_may_begin_lower_in_the_next_epoch() -> None:
    """L6 binds one leader. A new leader learns the high watermark anew, and the log loses nothing."""
    sends = [sent(A, "ab", 1, 2, 0)]
    reads = (saw("ab", 0, 3, 4), saw("", 1, 5, 6, epoch=1, hw=1))
    assert judged(sends, "ab", *reads).problems == []


def test_an_empty_answer_shows_nothing_of_its_offset() -> None:
    """L6: two consumers stand at 2, and the leader of a new epoch does not know yet that 2 records are committed."""
    sends = [sent(A, "ab", 1, 2, 0)]
    reads = (saw("ab", 0, 3, 4), saw("", 2, 5, 6, epoch=1, hw=0), saw("", 2, 7, 8, epoch=1, hw=0))
    assert judged(sends, "ab", *reads).problems == []


def test_answers_that_overlap_may_show_different_high_watermarks() -> None:
    """L6: the question was asked before the other answer had come."""
    sends = [sent(A, "ab", 1, 2, 0)]
    assert judged(sends, "ab", saw("ab", 0, 3, 6), saw("", 1, 5, 7, hw=1)).problems == []


def test_the_calls_of_other_partitions_are_left_out() -> None:
    """Each partition has its own log, and is judged alone."""
    other = sent(A, "q", 1, 2, 0)._replace(partition=1)
    assert judged([other], "").problems == []
