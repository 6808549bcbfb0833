"""Idempotent producers (KIP-98): a repeated append changes nothing, a gap and an older epoch are refused."""

from random import Random

import pytest

from broker_agent.replica import producers
from broker_agent.replica.producers import BATCHES_KEPT, PartitionRefused, ProducedBatch, ProducerStates
from metadata_log.format.data_batch import NO_STAMP, SEQUENCE_MAX, ProducerStamp
from metadata_log.format.errors import ErrorCode


class Partition:
    """A log that is nothing but its end, and the states under test."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0
        self.now_ms = 0

    def send(self, producer_id: int, epoch: int, base_sequence: int, count: int) -> tuple[int, bool] | ErrorCode:
        """Base offset, and whether the batch was a repetition; or the refusal."""
        stamp = ProducerStamp(producer_id, epoch, base_sequence)
        try:
            known = self.states.check(stamp, count)
        except PartitionRefused as e:
            return e.code
        if known is not None:
            return known.base_offset, True
        self.states.note(stamp, self.end, count, self.now_ms)
        self.end += count
        return self.end - count, False


def test_a_batch_that_continues_is_appended_and_a_repetition_gets_the_old_offset() -> None:
    it = Partition()

    assert [it.send(7, 0, 0, 10), it.send(7, 0, 10, 5), it.send(8, 0, 0, 1)] == [(0, False), (10, False), (15, False)]

    assert [it.send(7, 0, 0, 10), it.send(7, 0, 10, 5), it.send(8, 0, 0, 1)] == [(0, True), (10, True), (15, True)]
    assert it.end == 16


def test_a_gap_is_refused() -> None:
    it = Partition()
    it.send(7, 0, 0, 10)

    assert it.send(7, 0, 11, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert it.send(7, 0, 10, 5) == (10, False)


def test_a_batch_that_overlaps_another_is_refused() -> None:
    it = Partition()
    it.send(7, 0, 0, 10)

    for base, count in ((0, 9), (0, 11), (5, 5), (9, 2)):
        assert it.send(7, 0, base, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_five_batches_are_remembered() -> None:
    it = Partition()
    for i in range(BATCHES_KEPT + 1):
        it.send(7, 0, i, 1)

    assert [it.send(7, 0, i, 1) for i in range(1, BATCHES_KEPT + 1)] == [(i, True) for i in range(1, BATCHES_KEPT + 1)]
    assert it.send(7, 0, 0, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_refused_and_a_newer_one_begins_at_zero() -> None:
    it = Partition()
    it.send(7, 3, 0, 10)

    assert it.send(7, 2, 10, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert it.send(7, 2, 0, 10) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert it.send(7, 4, 10, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert it.send(7, 4, 0, 10) == (10, False)
    assert it.send(7, 3, 10, 1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_begins_at_zero_unless_it_may_have_been_forgotten() -> None:
    it = Partition()
    assert it.send(7, 0, 5, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    it.states.is_complete = False
    assert it.send(7, 0, 5, 1) == (0, False)
    assert it.send(7, 0, 7, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    it = Partition()
    it.states.is_complete = False
    assert it.send(7, 0, SEQUENCE_MAX - 1, 2) == (0, False)

    assert it.send(7, 0, 0, 3) == (2, False)
    assert it.send(7, 0, SEQUENCE_MAX - 1, 2) == (0, True)
    assert it.send(7, 0, 3, 1) == (5, False)


def test_a_batch_that_spans_the_largest_sequence_is_a_repetition_too() -> None:
    it = Partition()
    it.states.is_complete = False
    it.send(7, 0, SEQUENCE_MAX, 3)

    assert it.send(7, 0, SEQUENCE_MAX, 3) == (0, True)
    assert it.send(7, 0, 2, 1) == (3, False)


def test_records_without_a_producer_are_always_appended() -> None:
    states = ProducerStates()
    for _ in range(3):
        assert states.check(NO_STAMP, 4) is None
        states.note(NO_STAMP, 0, 4, 0)
    assert len(states) == 0


def test_a_silent_producer_is_forgotten_and_an_active_one_is_not() -> None:
    it = Partition()
    it.send(7, 0, 0, 1)
    it.now_ms = 60
    it.send(8, 0, 0, 1)

    it.states.expire(100, 100)
    assert len(it.states) == 1 and not it.states.is_complete
    assert it.send(8, 0, 0, 1) == (1, True)
    assert it.send(7, 0, 1, 1) == (2, False)


def test_too_many_producers_forget_the_one_that_was_silent_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    it = Partition()
    for producer_id in (1, 2, 3):
        it.send(producer_id, 0, 0, 1)
    it.send(1, 0, 1, 1)
    it.send(4, 0, 0, 1)

    assert len(it.states) == 3
    assert it.send(1, 0, 1, 1) == (3, True)
    assert it.send(2, 0, 0, 1) == (5, False)  # appended again: that is the price


class Twin:
    """The same rules over the whole history, without any cleverness."""

    def __init__(self) -> None:
        self.history: list[tuple[int, int, ProducedBatch]] = []

    def send(self, producer_id: int, epoch: int, base: int, count: int) -> tuple[int, bool] | ErrorCode:
        of_producer = [(e, b) for p, e, b in self.history if p == producer_id]
        epochs = [e for e, _ in of_producer]
        if epochs and epoch < max(epochs):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        of_epoch = [b for e, b in of_producer if e == epoch]
        last = base + count - 1
        last -= (SEQUENCE_MAX + 1) if last > SEQUENCE_MAX else 0
        for old in of_epoch[-5:]:
            if (old.base_sequence, old.last_sequence) == (base, last):
                return old.base_offset, True
        follows = of_epoch[-1].last_sequence + 1 if of_epoch else 0
        if base != (0 if follows > SEQUENCE_MAX else follows):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        end = self.history[-1][2].end_offset if self.history else 0
        self.history.append((producer_id, epoch, ProducedBatch(base, last, end, end + count)))
        return end, False


@pytest.mark.parametrize("seed", range(60))
def test_the_states_answer_as_the_whole_history_would(seed: int) -> None:
    rng = Random(seed)
    it, twin = Partition(), Twin()
    sent: list[tuple[int, int, int, int]] = []
    appended = 0
    for _ in range(300):
        if sent and rng.random() < 0.3:
            batch = rng.choice(sent[-12:])
        else:
            producer_id = rng.randrange(3)
            of_producer = [(e, b) for p, e, b in twin.history if p == producer_id]
            epoch = max((e for e, _ in of_producer), default=0) + rng.choice((-1, 0, 0, 0, 0, 0, 0, 0, 1))
            last = [b.last_sequence for e, b in of_producer if e == epoch][-1:] or [-1]
            base = 0 if rng.random() < 0.1 else last[0] + rng.choice((1, 1, 1, 1, 2, 0))
            batch = (producer_id, max(0, epoch), max(0, base), rng.randint(1, 4))
        sent.append(batch)
        answer = it.send(*batch)
        assert answer == twin.send(*batch), batch
        appended += isinstance(answer, tuple) and not answer[1]
    assert appended > 20
