"""Random histories of a producer and its leaders. Each planted bug breaks a law.

An assert of the producer that fails on the way proves nothing: only a `LawBroken` counts.
"""

from collections.abc import Callable

import pytest

import clients.producer.outcomes as outcomes
from clients.producer.batch import Batch
from clients.producer.outcomes import Outcome
from clients.producer.partition_queue import PartitionQueue
from metadata_log.format.errors import ErrorCode
from tests.clients.producer.histories import Faults, History, LawBroken
from tests.clients.producer.test_producer_core import test_a_batch_behind_a_lost_one_is_never_sent_under_another_stamp

WORLDS = {
    "lost answers": Faults(bad=0.4),
    "moving leaders": Faults(bad=0.1, moves=0.15),
    "forgetful leaders": Faults(bad=0.3, is_complete=False),
    "expiry": Faults(bad=0.6, moves=0.1, delivery_timeout_ms=4_000),
    "leaders that resign": Faults(bad=0.2, moves=0.15, commits=0.4, delivery_timeout_ms=4_000),
    "fatal errors": Faults(bad=0.3, fatal=0.1),
    "fatal errors and expiry": Faults(bad=0.5, moves=0.05, fatal=0.1, delivery_timeout_ms=4_000),
    "topics created anew": Faults(bad=0.3, recreates=0.02),
    "no idempotence": Faults(bad=0.0, moves=0.1, idempotent=False),
}
SEEDS = 40
RECORDS = 60


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.slow
def test_no_history_breaks_a_law(world: str) -> None:
    for seed in range(SEEDS):
        try:
            History(seed, WORLDS[world]).run(RECORDS)
        except Exception as e:
            raise AssertionError(f"world {world!r}, seed {seed}: {e}") from e


def forgets_what_may_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that may be in the log gets another stamp once the leader refuses it."""
    original = PartitionQueue.not_acked

    def mutant(self: PartitionQueue, batch: Batch, outcome: Outcome, retry_ms: int) -> Batch | None:
        if outcome.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            batch.may_be_written = False
        return original(self, batch, outcome, retry_ms)

    monkeypatch.setattr(PartitionQueue, "not_acked", mutant)


def believes_not_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """NOT_LEADER_OR_FOLLOWER counts as the word that nothing was appended."""
    monkeypatch.setattr(outcomes, "NOTHING_APPENDED", outcomes.NOTHING_APPENDED | {ErrorCode.NOT_LEADER_OR_FOLLOWER})


def gives_a_new_stamp_at_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PartitionQueue.begin_attempt

    def mutant(self: PartitionQueue, batch: Batch, producer_id: int, leader_epoch: int | None) -> None:
        if batch.attempts:
            batch.stamp = self._stamp(producer_id, len(batch.parts))
        original(self, batch, producer_id, leader_epoch)

    monkeypatch.setattr(PartitionQueue, "begin_attempt", mutant)


def uses_a_sequence_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a batch was given up, the next batch gets its sequence: the leader takes it for a repetition."""
    original = PartitionQueue._drop

    def mutant(self: PartitionQueue, batch: Batch) -> Batch:
        if batch in self.sent:
            self.next_sequence = batch.stamp.base_sequence
        dropped = original(self, batch)
        self._needs_epoch = any(each.is_void for each in self.sent)
        return dropped

    monkeypatch.setattr(PartitionQueue, "_drop", mutant)


def keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence begins anew at 0, and the producer epoch stays."""
    original = PartitionQueue._begin_epoch

    def mutant(self: PartitionQueue) -> None:
        original(self)
        self.producer_epoch = 0

    monkeypatch.setattr(PartitionQueue, "_begin_epoch", mutant)


def pipelines_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches are in flight before the leader has acknowledged the first one."""
    monkeypatch.setattr(PartitionQueue, "_may_pipeline", lambda self, epoch, now_ms: len(self.sent) < 5)


def expires_in_flight_as_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PartitionQueue.give_up

    def mutant(self: PartitionQueue, batch: Batch) -> Batch:
        before = batch.may_be_written
        given_up = original(self, batch)
        batch.may_be_written = before
        return given_up

    monkeypatch.setattr(PartitionQueue, "give_up", mutant)


def sends_void_batches_again_in_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PartitionQueue._begin_epoch

    def mutant(self: PartitionQueue) -> None:
        self.sent.reverse()
        original(self)

    monkeypatch.setattr(PartitionQueue, "_begin_epoch", mutant)


def loses_what_is_behind_a_refused_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches behind a refused one keep their stamps: the leader refuses them for ever, or takes them later."""
    monkeypatch.setattr(PartitionQueue, "_void_from", lambda self, batch: setattr(self, "_needs_epoch", True))


def retries_in_any_order_without_idempotence(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PartitionQueue._may_pipeline

    def mutant(self: PartitionQueue, leader_epoch: int | None, now_ms: int) -> bool:
        self._in_flight_max = 5
        return self.in_flight < 5 if not self._is_idempotent else original(self, leader_epoch, now_ms)

    monkeypatch.setattr(PartitionQueue, "_may_pipeline", mutant)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    believes_not_leader,
    gives_a_new_stamp_at_each_attempt,
    uses_a_sequence_again,
    keeps_the_epoch,
    pipelines_at_once,
    expires_in_flight_as_not_written,
    sends_void_batches_again_in_reverse,
    loses_what_is_behind_a_refused_batch,
    retries_in_any_order_without_idempotence,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
@pytest.mark.slow
def test_a_planted_bug_breaks_a_law(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(40):
        for world in WORLDS.values():
            try:
                History(seed, world).run(RECORDS)
            except LawBroken:
                return
            except AssertionError:
                continue
    raise LookupError("no history finds this bug")


def test_a_planted_bug_breaks_the_story_of_a_batch_behind_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two late requests must arrive within a few milliseconds for this bug to be seen: too rare for histories."""
    forgets_what_may_be_written(monkeypatch)
    with pytest.raises(AssertionError, match="b has got another stamp"):
        test_a_batch_behind_a_lost_one_is_never_sent_under_another_stamp()
