"""Restores an earlier state: the place at which the chosen log is cut, and the list of what the cut undoes.

    [ start ... | whole batches at or below the position ) | undone ... end )
                                                           ^ the cut

The cut lies between two batches, and never inside a metadata transaction. Example, with batches that end at 40, 45 and 60:
    1. An operator deleted 300 topics by mistake, in the batch [45, 60). The operator restores to offset 50.
    2. The log is cut at 45. The batch [45, 60) is undone, with all 300 deletions; [40, 45) stays.
    3. If a transaction had begun in [40, 45) and ended in [45, 60), the log would be cut at 40.

A node has to start from the cut log: the log begins at 0, or a whole snapshot at or below the cut reaches the log's beginning.
Snapshots above the cut have undone records inside. They are kept aside, like the undone part of the log (`carry_out`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch, Uuid, uuid_text
from metadata_log.format.records import (
    EpochsRaised,
    Partition,
    PartitionChange,
    Record,
    RemoveTopic,
    SkippedBatch,
    Topic,
)
from metadata_log.image.entities import entity_keys
from metadata_log.image.replay import ReplayStopped
from metadata_log.image.skips import open_transaction
from quorum.recovery.remains import Place
from quorum.recovery.survey import Candidate, CannotRecover, batches_of
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from snapshots.history.past import Past
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Wanted
from snapshots.reader import unreadable_is_damaged, verify_snapshot
from snapshots.store import SnapshotStore

LISTED_MAX: Final = 10_000
"""Maximum number of undone records that are listed one by one; more are only counted."""
CONTROL: Final = "control"
"""The group of records that are for the quorum, and not for the image."""
_OF_PARTITIONS: Final = (Partition, PartitionChange, EpochsRaised)


class UndoneRecord(NamedTuple):
    """One record behind the cut."""

    offset: Offset
    timestamp_ms: int
    group: str
    """The kind of thing that the record changes: topic, partition, config, broker, control and so on."""
    record: str
    """The name of the record's type."""
    what: str
    """The thing that the record changes. Values of configs, and secrets, are left out."""


class Undone(NamedTuple):
    """All that a cut undoes."""

    records: int
    first_ms: int
    last_ms: int
    """The times of the first and the last undone batch."""
    groups: tuple[tuple[str, int], ...]
    """How many records of each group are undone."""
    listed: tuple[UndoneRecord, ...]
    """The first LISTED_MAX records."""

    @property
    def has_metadata(self) -> bool:
        """True if a record of metadata is undone. Behind the cut of a restore that is done are only its own control records."""
        return any(group != CONTROL for group, _ in self.groups)


def cut_of(result: Candidate, wanted: Wanted) -> Place:
    """Returns the place at which the log of `result` is cut.

    Raises:
        CannotRecover: the position lies outside the log.
    """
    if wanted.offset is not None and wanted.offset > result.end:
        raise CannotRecover(
            f"offset {wanted.offset} is above the end of the best log, {result.end} in {result.path}: nothing to undo"
        )
    cut, begun = _place_at_start(result, wanted), None
    for batch in batches_of(result):
        if not wanted.takes(batch):
            break
        begun = open_transaction([batch], begun)
        if begun is None:
            cut = Place(batch.end_offset, batch.epoch, batch.chain)
    if cut is None:
        raise CannotRecover(
            f"{result.path} cannot be restored to {wanted}: its history begins at {result.start}. A copy of an older directory "
            "may reach further back. Nothing was changed"
        )
    return cut


def check_can_start(survivor: Candidate, snapshot: OffsetAndEpoch | None, cut: Offset) -> None:
    """Refuses a cut after which the survivor could not start. `snapshot`: the source's, at which the log begins anew.

    Raises:
        CannotRecover: no whole snapshot at or below the cut reaches the beginning of the survivor's log.
    """
    lowest = survivor.log_start if snapshot is None else snapshot.offset
    found = snapshot if snapshot is not None else newest_kept(survivor.directory, cut, at_least=lowest)
    if cut < lowest or (lowest > 0 and found is None):
        raise CannotRecover(
            f"{survivor.path} cannot be cut at {cut}: its log would begin at {lowest}, with no whole snapshot from there to the "
            "cut, so no controller could start. Restore to a later offset, or use an older copy. Nothing was changed"
        )


def newest_kept(directory: Directory, upto: Offset, *, at_least: Offset) -> OffsetAndEpoch | None:
    """Returns the end of the newest whole snapshot in [at_least, upto]; None if there is none."""
    metadata = directory.subdirectory(LOG_DIRECTORY)
    for info in reversed(SnapshotStore(metadata).list()):
        if at_least <= info.end.offset <= upto:
            try:
                with unreadable_is_damaged():
                    verify_snapshot(metadata, info.end)
            except LogFormatError:
                continue
            return info.end
    return None


def undone_by(result: Candidate, cut: Offset) -> Undone:
    """Lists the records of `result` behind the cut."""
    names = _topic_names(result, cut)
    counts: Counter[str] = Counter()
    listed: list[UndoneRecord] = []
    times: list[int] = []
    for batch in batches_of(result):
        if batch.base_offset < cut:
            continue
        times = [*times[:1], batch.last_timestamp_ms]
        for each in _described(batch, names):
            counts[each.group] += 1
            if len(listed) < LISTED_MAX:
                listed.append(each)
    return Undone(
        counts.total(), times[0] if times else 0, times[-1] if times else 0, tuple(counts.most_common()), tuple(listed)
    )


def _place_at_start(result: Candidate, wanted: Wanted) -> Place | None:
    """Returns the start of the history, if it is the end of a snapshot at or below the position."""
    snapshots = SnapshotStore(result.directory.subdirectory(LOG_DIRECTORY))
    for info in snapshots.list():
        if info.end.offset == result.start > 0 and wanted.reaches(result.start, info.timestamp_ms):
            return Place(*info.end, result.start_chain)
    return None


def _topic_names(result: Candidate, cut: Offset) -> dict[Uuid, str]:
    """Returns the names of topics at the cut; none if the image at the cut cannot be made."""
    try:
        image = Past(result.directory.subdirectory(LOG_DIRECTORY)).shown(Wanted(offset=cut), result.end).image
    except (OutOfReach, HistoryDamaged, ReplayStopped):
        return {}
    return {topic.topic_id: topic.name for topic in image.topics()}


def _described(batch: Batch, names: dict[Uuid, str]) -> Iterator[UndoneRecord]:
    try:
        records = decode_batch(batch)
    except LogFormatError:
        what = f"{batch.record_count} records that this release cannot read"
        yield UndoneRecord(batch.base_offset, batch.last_timestamp_ms, "unknown", "Undecodable", what)
        return
    for offset, record in enumerate(records, batch.base_offset):
        if isinstance(record, Topic | RemoveTopic):
            names[record.topic_id] = record.name
        group, what = _group_of(record, names, is_control=batch.is_control)
        yield UndoneRecord(offset, batch.last_timestamp_ms, group, type(record).__name__, what)


def _group_of(record: Record | UnknownRecord, names: Mapping[Uuid, str], *, is_control: bool) -> tuple[str, str]:
    if isinstance(record, UnknownRecord):
        return "unknown", f"a record of type {record.type_number}"
    if isinstance(record, SkippedBatch):
        return CONTROL, f"the skip of the batch at offset {record.offset}, which has to be skipped again if it stays"
    if is_control:
        return CONTROL, ""
    if isinstance(record, _OF_PARTITIONS):
        number = record.first if isinstance(record, EpochsRaised) else record.partition
        return "partition", f"{names.get(record.topic_id, uuid_text(record.topic_id))}-{number}"
    if isinstance(record, Topic | RemoveTopic):
        return "topic", record.name
    keys = entity_keys(record)
    return (keys[0][0], " ".join(keys[0][1:])) if keys else ("other", "")
