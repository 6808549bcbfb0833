"""Packs of a topic's records: every record once, in its place, and no error that names no offset."""

import gc
import random
from collections.abc import Iterable, Sequence

import msgpack
import pytest

from metadata_log.format.batch import Batch, encode
from metadata_log.format.codec import encode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import MetadataRecord, Partition, PartitionChange, RequestOutcome, Topic
from metadata_log.image.entities import entity_keys
from snapshots.offline.history import topic_packs
from snapshots.offline.history.folding.steps import Step, Steps
from snapshots.offline.history.folding.task import Task, rows_of_task
from snapshots.offline.history.folding.timelines import BrokerTimeline, MinIsrTimeline
from snapshots.offline.history.log_rows import LOG_ROWS, UNDECODABLE, LogRow, rows_of
from snapshots.offline.history.tables import COUNTS, TABLES, Values
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.rows import entity_text
from snapshots.offline.scan import Scanned
from snapshots.offline.shares.steps import Shape
from tests.metadata_log.image.histories import History

ORDERS = b"o" * 16
CREATED = (Topic("orders", ORDERS), Partition(ORDERS, 0, (1, 2), (1, 2), (), (), 1, 0, 0, 0))
LEFT = PartitionChange(ORDERS, 0, isr=(1,))
_INDEX = {name: at for at, name in enumerate(LOG_ROWS.names)}


def batch_of(base: Offset, packed: Sequence[bytes]) -> Batch:
    return encode(
        b"".join(packed), base_offset=base, epoch=7, record_count=len(packed), first_timestamp_ms=base,
        last_timestamp_ms=1_000 + base, is_control=False, previous_chain=bytes(32),
    )  # fmt: skip


def log_of(*batches: Sequence[MetadataRecord | bytes]) -> list[Scanned]:
    """A log of these batches, from offset 0 on."""
    found, base = [], 0
    for records in batches:
        packed = [each if isinstance(each, bytes) else encode_record(each) for each in records]
        found.append(Scanned(0, 0, batch_of(base, packed), base, None, None, None))
        base += len(packed)
    return found


def entities(rows: Iterable[LogRow]) -> list[EntityRow]:
    """The rows of entities, as Spark sorts them."""
    found = (EntityRow(*(row[_INDEX[name]] for name in EntityRow._fields)) for row in rows if row[0].startswith("["))
    return sorted(found, key=lambda row: row[:3])


def folded(
    log: list[Scanned], end: Offset, dropped: tuple[tuple[Offset, Offset], ...] = ()
) -> list[tuple[str, Values]]:
    timelines = BrokerTimeline({}), MinIsrTimeline({})
    task = Task(Steps(end, dropped), Step(0, 0, 0), False, *timelines, (), frozenset(TABLES), 0)
    return [*rows_of_task(entities(rows_of(log, 0)), task)]


@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
def test_every_record_of_an_entity_comes_once_and_in_its_place(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever packs are cut, the records of all rows are those that a reader gets who decodes each record."""
    monkeypatch.setattr(topic_packs, "PACKED_BYTES_MAX", bytes_max)
    dice = random.Random(bytes_max)
    records = History(5).run(60).log
    batches = []
    while records:
        size = dice.randint(1, 40)
        batches.append(records[:size])
        records = records[size:]
    expected: list[EntityRow] = []
    base = 0
    for some in batches:
        place = (base + len(some), 7, 1_000 + base)
        for offset, record in enumerate(some, base):
            if not isinstance(record, RequestOutcome):
                names = map(entity_text, entity_keys(record))
                expected += (EntityRow(name, 1, offset, *place, encode_record(record), None, None) for name in names)
        base += len(some)
    unmarked = [row for row in expected if "topic" in row.entity]
    found = [record for row in entities(rows_of(log_of(*batches), 0)) for record in row.records()]
    assert [row._replace(principal=None, request_id=None) for row in found if "topic" in row.entity] == sorted(unmarked)


def test_a_pack_has_one_principal() -> None:
    """Alice asks for the second of three batches. Her name is at its record only, and the order of the log stays."""
    outcome = RequestOutcome(0, b"r" * 16, b"hash", "alice", 0, None)
    log = log_of(CREATED, [LEFT, outcome], [PartitionChange(ORDERS, 0, isr=(1, 2))])
    found = [(record.offset, record.principal) for row in entities(rows_of(log, 0)) for record in row.records()]
    assert found == [(0, None), (1, None), (2, "alice"), (4, None)]


def test_a_change_that_cannot_be_decoded_is_named_with_its_offset() -> None:
    """The task that reads the log does not decode the change. The fold does, and names the offset. If the batch was skipped, or
    is above the end, the change has no effect, and nobody decodes it.
    """
    good = encode_record(LEFT)
    bad = good[:-2] + msgpack.packb("no ISR")
    log = log_of(CREATED, [bad], [LEFT])
    with pytest.raises(LogFormatError, match=r"the record at offset 2 does not fit: PartitionChange\.isr: "):
        folded(log, 4)
    assert folded(log, 2)
    without = [row for table, row in folded(log, 4, ((2, 3),)) if table == "isr_changes"]
    assert [row[0] for row in without] == [4]


def test_nothing_that_a_task_has_remembered_outlives_it() -> None:
    """Spark uses a Python process again: what a history left there made the audit after it half as fast."""

    def shapes() -> int:
        gc.collect()
        return sum(isinstance(each, Shape) for each in gc.get_objects())

    before = shapes()
    changes = [PartitionChange(ORDERS, 0, isr=isr) for isr in ((1,), (1, 2), (1,))]
    rows = folded(log_of(CREATED, *([each] for each in changes)), 5)
    assert [row[0] for table, row in rows if table == "isr_changes"] == [3, 4, 5]
    assert shapes() == before


def test_a_batch_with_an_unknown_record_is_told_as_a_whole() -> None:
    """A later release has written the second record. No record of its batch is a row; the batches beside it are."""
    unknown: bytes = msgpack.packb((50, 0, 1))
    rows = [*rows_of(log_of(CREATED, [LEFT, unknown], [LEFT]), 0)]
    (told,) = (row for row in rows if row[0] == UNDECODABLE)
    assert "the record at offset 3: it is of type 50, version 0" in told[_INDEX["error"]]
    assert [record.offset for row in entities(rows) for record in row.records()] == [0, 1, 4]


def test_a_record_that_cannot_be_decoded_is_named_with_its_place() -> None:
    """The third record of the batch is a topic without a name. The error tells the place of the record, and what is wrong."""
    bad: bytes = msgpack.packb((2, 0, 5, ORDERS))
    (told,) = (row for row in rows_of(log_of(CREATED, [LEFT, LEFT, bad]), 0) if row[0] == UNDECODABLE)
    assert told[_INDEX["error"]] == (
        "the record at offset 2: record 2 of the batch: Topic.name: 5 does not have the type of this field"
    )


def test_a_new_topic_is_counted_on_its_day() -> None:
    (counted,) = (row for table, row in folded(log_of(CREATED), 2) if table == COUNTS)
    assert counted[1:] == (1, 0, 1, 0)
