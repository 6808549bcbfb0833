"""The pass of one task over its entities: rows in, rows of all tables out. Works without Spark, so tests can run the pass alone.

The input is sorted by entity, generation and offset, and all rows of an entity come to one task:

    generation -1    an open interval of an earlier run
    generation  0    a canonical record of the state from which the history goes on: a snapshot's, or the earlier run's
    generation  1    a record of the log, or a pack of a topic's records
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, cast

from metadata_log.format.codec import decode_record, encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import MetadataRecord
from metadata_log.image.delta import InvalidRecord
from metadata_log.image.entity_key import EVERY_TOPIC
from metadata_log.image.metadata_image import MetadataImage
from snapshots.offline.history.folding.entity_history import EntityHistory
from snapshots.offline.history.folding.first_state import in_first_state
from snapshots.offline.history.folding.intervals import pack_row, unpack_row
from snapshots.offline.history.folding.moves import Moves
from snapshots.offline.history.folding.steps import Step, Steps
from snapshots.offline.history.folding.timelines import BrokerTimeline, MinIsrTimeline
from snapshots.offline.history.folding.topic_history import OpenRow, Packed, Timelines, TopicHistory
from snapshots.offline.history.log_rows import FROM_TABLES
from snapshots.offline.history.tables import CHANGES, COUNTED, COUNTS, STATE, Values, end_of_row, values_of
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.rows import FROM_LOG, FROM_SNAPSHOT, entity_of
from snapshots.offline.shares.steps import Steps as RememberedSteps

TOPIC = EVERY_TOPIC[0]


class Task(NamedTuple):
    """The facts about the whole log that each task needs."""

    steps: Steps
    begin: Step
    """The place of the state in generation 0; offset 0 without a state."""
    goes_on: bool
    """The tables of an earlier run end at `begin`."""
    brokers: BrokerTimeline
    min_isr: MinIsrTimeline
    every_topic: tuple[EntityRow, ...]
    """The records that concern every topic."""
    tables: frozenset[str]
    """The wanted tables."""
    since: Offset
    """Intervals with an end at or below, and events there, are left out."""


def rows_of_task(rows: Iterable[EntityRow], task: Task) -> Iterator[tuple[str, Values]]:
    """Return the rows of all tables, each with the name of its table, for the entities of one task."""
    remembered, moves = RememberedSteps(), Moves()
    for entity, group in groupby(rows, key=attrgetter("entity")):
        key = entity_of(entity)
        if key == EVERY_TOPIC:
            continue
        if key[0] == TOPIC:
            made = _topic_rows(entity, group, task, remembered, moves)
        else:
            made = _entity_rows(entity, group, task)
        for table, row in made:
            if table in (STATE, COUNTS) or (table in task.tables and _is_wanted(table, row, task)):
                yield table, row


def _is_wanted(table: str, row: Values, task: Task) -> bool:
    if not task.since:
        return True
    end = end_of_row(table, row)
    return end is None or end > task.since


def _entity_rows(entity: str, rows: Iterable[EntityRow], task: Task) -> Iterator[tuple[str, Values]]:
    history = EntityHistory(entity_of(entity))
    for generation, group in groupby(rows, key=lambda row: row.generation):
        if generation == FROM_SNAPSHOT:
            with in_first_state(entity):
                history.load((row.offset, record_of(row)) for row in group)
            continue
        for step, records in steps_in(group, task.steps):
            for row in history.step(step, records):
                yield CHANGES, row
    yield from _state(entity, history.image)


def _topic_rows(
    entity: str, rows: Iterable[EntityRow], task: Task, remembered: RememberedSteps, moves: Moves
) -> Iterator[tuple[str, Values]]:
    history = TopicHistory(entity_of(entity), Timelines(task.brokers, task.min_isr), remembered, moves)
    generations = groupby(rows, key=lambda row: row.generation)
    generation, group = next(generations, (FROM_LOG, iter(())))
    open_rows: list[OpenRow] = []
    if generation == FROM_TABLES:
        open_rows = [unpack_row(row.payload, entity) for row in group]
        generation, group = next(generations, (FROM_LOG, iter(())))
    if generation == FROM_SNAPSHOT:
        with in_first_state(entity):
            history.load(_packed(group), open_rows, task.begin, goes_on=task.goes_on)
        generation, group = next(generations, (FROM_LOG, iter(())))
    assert generation == FROM_LOG
    yield from _topic_steps(history, (record for row in group for record in row.records()), task)
    for table, row in history.finish():
        yield table, values_of(table, row)
        yield STATE, (entity, FROM_TABLES, 0, pack_row(table, row))
    for day, counts in history.counts.items():
        yield COUNTS, (day, *(counts[name] for name in COUNTED))
    yield from _state(entity, history.image())


def _topic_steps(history: TopicHistory, rows: Iterable[EntityRow], task: Task) -> Iterator[tuple[str, Values]]:
    """Run the topic's own steps, and between them the steps of configs. A new topic tells its name at the first step."""
    is_known = history.topic is not None
    waiting = _configs(history, task.begin.offset)
    # A record for every topic has no effect on a topic before its creation, or after its removal.
    every = merge(rows, task.every_topic, key=attrgetter("offset")) if task.every_topic else rows
    for step, group in _placed(every, task.steps):
        while waiting and waiting[0].offset < step.offset:
            yield from history.step(waiting.pop(0), ())
        if waiting and waiting[0].offset == step.offset:
            waiting.pop(0)
        yield from history.step(step, _packed(group))
        if not is_known and history.topic is not None:
            is_known, waiting = True, _configs(history, step.offset)
    for step in waiting:
        yield from history.step(step, ())


def _configs(history: TopicHistory, since: Offset) -> list[Step]:
    return [step for step in history.steps_of_configs() if step.offset > since]


def _packed(rows: Iterable[EntityRow]) -> list[Packed]:
    return [(row.offset, row.payload) for row in rows]


def steps_in(rows: Iterable[EntityRow], steps: Steps) -> Iterator[tuple[Step, list[tuple[Offset, MetadataRecord]]]]:
    """Return the steps of these records of the log, each with its records. Records without effect are left out."""
    for step, group in _placed(rows, steps):
        yield step, [(row.offset, record_of(row)) for row in group]


def _placed(rows: Iterable[EntityRow], steps: Steps) -> Iterator[tuple[Step, list[EntityRow]]]:
    """Return the steps of these rows of the log, each with its rows."""
    last: Step | None = None
    group: list[EntityRow] = []
    for row in rows:
        step = steps.step_of(row.offset, Step(row.step, row.time_ms, row.epoch, row.principal, row.request_id))
        if step is None:
            continue
        if step != last:
            if last is not None:
                yield last, group
            last, group = step, []
        group.append(row)
    if last is not None:
        yield last, group


def record_of(row: EntityRow) -> MetadataRecord:
    """Return the record of a row of generation 0 or 1.

    Raises:
        InvalidRecord: the record cannot be decoded. The task that read the log has decoded it, but nobody the one in `_state`.
    """
    try:
        return cast(MetadataRecord, decode_record(row.payload))
    except LogFormatError as e:
        raise InvalidRecord(row.offset, str(e)) from None


def _state(entity: str, image: MetadataImage) -> Iterator[tuple[str, Values]]:
    for place, record in enumerate(image.canonical_records()):
        yield STATE, (entity, FROM_SNAPSHOT, place, encode_valid(record))
