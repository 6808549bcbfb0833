"""Planted bugs in the log of a replica: the stories of crashes, or the replicas on disk, find each within a few seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker_agent.replica import leader
from broker_agent.replica.divergence import Valid
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.producers import PartitionRefused, ProducerCheckpoints, ProducerStates
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import ProducerStamp
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.log import Log
from metadata_log.store.log_memory import LogMemory
from tests.broker_agent.replica.test_partition_log_crashes import (
    test_a_follower_that_crashes_catches_up_with_its_leader as follow,
)
from tests.broker_agent.replica.test_partition_log_crashes import (
    test_what_was_flushed_is_there_after_any_crash as crash,
)
from tests.broker_agent.replica.test_replicas_on_disk import test_what_is_committed_stays_on_every_disk as replicate

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 25
FINDINGS = (AssertionError, LogFormatError, PartitionRefused, pytest.fail.Exception)
"""A broken law, or a log that refuses what it should take."""


def flush_without_an_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushTicket, "sync", lambda self: None)


def reports_its_end_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """The replica counts what only the page cache has."""
    patch.setattr(PartitionLog, "shape", property(lambda self: self._log.shape._replace(flushed_end=self._log.end)))


def producers_stay_where_they_are_at_a_truncation(patch: pytest.MonkeyPatch) -> None:
    def restore(self: ProducerCheckpoints, end: Offset, start: Offset) -> Offset:
        return end

    patch.setattr(ProducerCheckpoints, "restore", restore)


def producers_are_not_read_at_a_start(patch: pytest.MonkeyPatch) -> None:
    opened = Log.open

    def open_log(*arguments: Any, observe: object, **options: Any) -> Log:
        return opened(*arguments, **options)

    patch.setattr(Log, "open", open_log)


def a_follower_forgets_the_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "append_fetched", lambda self, batches, wall_ms: self._log.append_batches(batches))


def a_repeated_batch_is_appended_again(patch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check

    def forgetful(self: ProducerStates, stamp: ProducerStamp, record_count: int) -> None:
        check(self, stamp, record_count)

    patch.setattr(ProducerStates, "check", forgetful)


def a_gap_is_accepted(patch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check

    def lenient(self: ProducerStates, stamp: ProducerStamp, record_count: int) -> object:
        known = self._producers.get(stamp.producer_id)
        last = known.batches[-1].last_sequence if known is not None else -1
        return None if stamp.base_sequence > last + 1 else check(self, stamp, record_count)

    patch.setattr(ProducerStates, "check", lenient)


def a_follower_takes_any_batch(patch: pytest.MonkeyPatch) -> None:
    """The chain is not checked: a diverged follower goes on behind its own records."""

    def check(self: LogMemory, batches: Sequence[Batch]) -> None:
        assert all(batch.base_offset >= self.end for batch in batches[:1])

    patch.setattr(LogMemory, "check_continued_by", check)
    patch.setattr(leader, "judge_fetch", lambda *_: Valid())


def records_below_the_high_watermark_are_deleted_too_far(patch: pytest.MonkeyPatch) -> None:
    delete_below = PartitionLog.delete_below
    patch.setattr(PartitionLog, "delete_below", lambda self, offset: delete_below(self, self._log.end))


MUTANTS: list[Plant] = [
    flush_without_an_fsync,
    reports_its_end_before_the_flush,
    producers_stay_where_they_are_at_a_truncation,
    producers_are_not_read_at_a_start,
    a_follower_forgets_the_producers,
    a_repeated_batch_is_appended_again,
    a_gap_is_accepted,
    a_follower_takes_any_batch,
    records_below_the_high_watermark_are_deleted_too_far,
]


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        for story in (crash, follow, replicate):
            try:
                story(seed)
            except FINDINGS:
                return
    raise AssertionError(f"no seed has found: {plant.__name__}")
