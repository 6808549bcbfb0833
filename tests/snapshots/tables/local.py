"""The history of a log without Spark: the same passes over the same rows, in one process. Spark only moves the rows."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from metadata_log.format.codec import decode_record, encode_valid
from metadata_log.format.ids import OFFSET_MAX, Offset
from metadata_log.format.records import SkippedBatch
from metadata_log.image.entity_key import EVERY_TOPIC
from snapshots.format import snapshot_name
from snapshots.offline.compaction import base_of
from snapshots.offline.history.folding.broker_history import ENTITIES, BrokerHistory, StepRecords
from snapshots.offline.history.folding.steps import Marker, Step, Steps, dropped_by, open_at_end, steps_of
from snapshots.offline.history.folding.task import Task, record_of, rows_of_task, steps_in
from snapshots.offline.history.log_rows import BATCH, CONTROL, LOG_ROWS, MARKER, LogRow, rows_of, snapshot_rows
from snapshots.offline.history.tables import BROKER_STATES, STATE, TABLES, Row
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.inputs import NodeLog, find_log
from snapshots.offline.rows import FROM_SNAPSHOT, entity_of, entity_text
from snapshots.offline.scan import FileRange, scan
from snapshots.reader import read_meta, records_of

_INDEX = {name: at for at, name in enumerate(LOG_ROWS.names)}


class LocalHistory(NamedTuple):
    """The rows of one run, and how the next one goes on."""

    rows: dict[str, list[Row]]
    end: Step
    state: tuple[EntityRow, ...]
    brokers: tuple[Row, ...]

    def closed(self, table: str) -> list[Row]:
        return [row for row in self.rows[table] if row.get("day") is not None]


def log_rows(log: NodeLog, since: Offset = 0) -> Iterator[LogRow]:
    for segment in log.segments_needed(since, log.durable_end):
        file = log.directory.open(segment.name)
        try:
            yield from rows_of(scan(file, FileRange(segment.name, 0, file.size(), None, None), log.durable_end), since)
        finally:
            file.close()


def local_history(path: Path, last: LocalHistory | None = None, until: Offset = OFFSET_MAX) -> LocalHistory:
    """Return the history of the log from the end of `last`, or from its beginning."""
    log = find_log(str(path))
    base = None if last is not None else base_of(log)
    begin, first = Step(0, 0, 0) if last is None else last.end, list[EntityRow]()
    if base is not None:
        begin = Step(base.offset, read_meta(log.directory, base).timestamp_ms, base.epoch)
        packed = ((each, encode_valid(each)) for each in records_of(log.directory, snapshot_name(base)))
        first = [_entity_row(row) for row in snapshot_rows(packed)]
    elif last is not None:
        first = [*last.state]
    found = list(log_rows(log, begin.offset))
    steps, end = _steps(found, begin, until)
    entities = [_entity_row(row) for row in found if row[0].startswith("[")]
    rows = sorted([*first, *entities], key=lambda row: (row.entity, row.generation, row.offset))
    brokers = BrokerHistory()
    broker_rows = list(_broker_rows(brokers, rows, begin, last, steps))
    every_topic = tuple(row for row in entities if row.entity == entity_text(EVERY_TOPIC))
    task = Task(steps, begin, last is not None, *brokers.timelines(), every_topic, frozenset(TABLES), 0)
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    state: list[EntityRow] = []
    for table, values in rows_of_task(rows, task):
        if table == STATE:
            entity, generation, offset, payload = values
            state.append(EntityRow(entity, generation, offset, 0, 0, 0, payload, None, None))
        elif table in TABLES:
            tables[table].append(dict(zip(TABLES[table], values, strict=True)))
    tables[BROKER_STATES] = [*broker_rows, *brokers.open.values()]
    return LocalHistory(tables, end, tuple(state), tuple(brokers.open.values()))


def _broker_rows(
    brokers: BrokerHistory, rows: Iterable[EntityRow], begin: Step, last: LocalHistory | None, steps: Steps
) -> Iterator[Row]:
    mine = [row for row in rows if entity_of(row.entity)[0] in ENTITIES]
    brokers.load(
        [(row.offset, record_of(row)) for row in mine if row.generation == FROM_SNAPSHOT],
        () if last is None else last.brokers,
        begin,
        goes_on=last is not None,
    )
    later = sorted((row for row in mine if row.generation > FROM_SNAPSHOT), key=lambda row: row.offset)
    for step, records in steps_in(later, steps):
        yield from brokers.step(StepRecords(step, tuple(records)))


def _entity_row(row: LogRow) -> EntityRow:
    return EntityRow(*(row[_INDEX[name]] for name in EntityRow._fields))


def _steps(rows: list[LogRow], begin: Step, until: Offset) -> tuple[Steps, Step]:
    markers, skips, batches = [], [], [begin]
    for row in map(_entity_row, rows):
        step = Step(row.step, row.time_ms, row.epoch, row.principal, row.request_id)
        if row.entity == MARKER:
            markers.append(Marker(row.offset, step, decode_record(row.payload)))  # type: ignore[arg-type]
        elif row.entity == CONTROL:
            record = decode_record(row.payload)
            skips += [record] if isinstance(record, SkippedBatch) else []
        elif row.entity == BATCH:
            batches.append(step)
    dropped = dropped_by(skips)
    end = max(each.offset for each in batches if each.offset <= until)
    begun = open_at_end([each for each in markers if each.offset < end], dropped)
    if begun is not None:
        end = max(each.offset for each in batches if each.offset <= begun)
    last = next(each for each in batches if each.offset == end)
    return steps_of(markers, dropped, end), last
