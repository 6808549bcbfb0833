"""The packed fold without Spark: random histories give the records of the image, whatever the order of the tasks."""

import random
from collections.abc import Iterable, Sequence

import msgpack
import pyarrow as pa
import pytest

from metadata_log.format.batch import Batch, encode
from metadata_log.format.codec import encode_record, encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import EPOCH_MAX, Offset
from metadata_log.format.records import (
    ClearElr,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RemoveTopic,
    Topic,
)
from metadata_log.image.delta import InvalidRecord
from metadata_log.image.entities import entity_keys
from metadata_log.image.entity_key import EVERY_TOPIC
from snapshots.offline.packed import topic_fold
from snapshots.offline.packed.entities import packed_rows, packed_snapshot_rows
from snapshots.offline.packed.fold import FoldTask
from snapshots.offline.rows import Row
from snapshots.offline.schema import PACKED, arrow_schema
from tests.metadata_log.image.histories import History

TOPIC = b"t" * 16
END = 1 << 40


def sealed(payload: bytes, base: Offset, count: int, *, is_control: bool = False) -> Batch:
    return encode(
        payload, base_offset=base, epoch=1, record_count=count, first_timestamp_ms=1, last_timestamp_ms=1,
        is_control=is_control, previous_chain=bytes(32),
    )  # fmt: skip


def batches_of(records: Sequence[MetadataRecord], dice: random.Random, base: Offset = 0) -> list[Batch]:
    found = []
    while records:
        some = records[: dice.randint(1, 40)]
        found.append(sealed(b"".join(map(encode_record, some)), base, len(some)))
        base, records = base + len(some), records[len(some) :]
    return found


def folded(rows: Iterable[Row], records: Sequence[MetadataRecord] = (), base: Offset = 0) -> list[bytes]:
    """Sort the rows as Spark does, fold them in two tasks, and return the bytes of the canonical records."""
    every = [(at, encode_valid(r)) for at, r in enumerate(records, base) if EVERY_TOPIC in entity_keys(r)]
    tasks: list[list[Row]] = [[], []]
    for row in sorted(rows, key=lambda row: row[:3]):
        tasks[sum(str(row[0]).encode()) % 2].append(row)
    out: list[tuple[bytes, bytes]] = []
    schema = arrow_schema(PACKED)
    for task in filter(None, tasks):
        columns = zip(*task, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for answer in FoldTask(every)(iter([batch])):
            out += zip(answer.column(0).to_pylist(), answer.column(1).to_pylist(), strict=True)
    return [payload for _, payload in sorted(out)]


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_give_the_canonical_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are cut anywhere, and a task remembers few states."""
    dice = random.Random(seed)
    monkeypatch.setattr("snapshots.offline.packed.entities.PACKED_BYTES_MAX", dice.choice((500, 8 << 20)))
    monkeypatch.setattr(topic_fold, "STATES_MAX", dice.choice((2, 20_000)))
    history = History(seed).run(60)
    rows = [*packed_rows(batches_of(history.log, dice), 0, END, ())]
    assert folded(rows, history.log) == [*map(encode_valid, history.image.canonical_records())]


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_below_comes_first(seed: int) -> None:
    """The records below the snapshot are not read again, although the batch with the cut is."""
    dice = random.Random(seed)
    history = History(seed).run(25)
    below = [(record, encode_valid(record)) for record in history.image.canonical_records()]
    since = len(history.log)
    for _ in range(30):
        for record in history.next_records():
            history.append(record)
    rows = [*packed_snapshot_rows(below), *packed_rows(batches_of(history.log, dice), since, END, ())]
    assert folded(rows, history.log[since:], since) == [*map(encode_valid, history.image.canonical_records())]


def born(count: int = 2) -> list[MetadataRecord]:
    partitions = [Partition(TOPIC, number, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0) for number in range(count)]
    return [Topic("orders", TOPIC), *partitions]


def fold_of(records: Sequence[MetadataRecord]) -> list[bytes]:
    dice = random.Random(1)
    return folded(packed_rows(batches_of(records, dice), 0, END, ()), records)


def test_a_partition_goes_round_in_circles_and_counts_its_epochs() -> None:
    """After the first round nothing is decoded. Numbers of one, two and three bytes find their partitions."""
    circle = [((1, 3), None), ((1, 3, 2), None), ((3, 2), 3), ((3, 2, 1), 1)]
    numbers = (0, 127, 128, 255, 256, 299)
    changes = [
        PartitionChange(TOPIC, number, isr, leader) for _ in range(50) for isr, leader in circle for number in numbers
    ]
    found = fold_of([*born(300), *changes])
    expected = born(300)
    for number in numbers:
        expected[1 + number] = Partition(TOPIC, number, (1, 2, 3), (3, 2, 1), (), (), 1, 0, 100, 200)
    assert found == [*map(encode_valid, expected)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (PartitionChange(TOPIC, 0, isr=(1, 2), leader=3), "leader 3 is not in isr"),
        (PartitionChange(TOPIC, 2, isr=(1, 2)), "no partition 2"),
        (PartitionChange(b"u" * 16, 0, isr=(1, 2)), "there is no topic"),
        (Partition(TOPIC, 3, (1,), (1,), (), (), 1, 0, 0, 0), "partition 3 of topic 'orders' is not the next"),
        (Topic("again", TOPIC), "is taken"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_as_replay_does(record: MetadataRecord, reason: str) -> None:
    last = [PartitionChange(TOPIC, 1, isr=(1,))]
    with pytest.raises(InvalidRecord, match=f"offset 3.*{reason}"):
        fold_of([*born(), record, *last])


def test_after_an_unusual_record_the_delta_goes_on() -> None:
    changes: list[MetadataRecord] = [
        PartitionChange(TOPIC, 0, isr=(1, 2), elr=(3,)),
        ClearElr("orders", TOPIC),
        PartitionChange(TOPIC, 0, leader=2),
    ]
    expected = born()
    expected[1] = Partition(TOPIC, 0, (1, 2, 3), (1, 2), (), (), 2, 0, 1, 3)
    assert fold_of([*born(), *changes]) == [*map(encode_valid, expected)]
    assert fold_of([*born(), *changes, RemoveTopic("orders", TOPIC)]) == []


def test_the_last_epoch_is_the_last() -> None:
    near = Partition(TOPIC, 0, (1, 2, 3), (1, 2, 3), (), (), 1, 0, EPOCH_MAX - 1, 5)
    change = PartitionChange(TOPIC, 0, leader=2)
    assert fold_of([Topic("orders", TOPIC), near, change])
    with pytest.raises(InvalidRecord, match="is the last"):
        fold_of([Topic("orders", TOPIC), near, change, change])


def test_invisible_records_and_control_batches_are_left_out() -> None:
    records = [*born(), PartitionChange(TOPIC, 0, isr=(1,)), PartitionChange(TOPIC, 0, isr=(1, 3))]
    batches = [
        sealed(encode_record(LeaderChange(1, (1,), (1,))), 0, 1, is_control=True),
        sealed(b"".join(map(encode_record, records)), 1, len(records)),
    ]
    found = folded(packed_rows(batches, 0, END, [(4, 5)]))
    assert found[1] == encode_valid(Partition(TOPIC, 0, (1, 2, 3), (1, 3), (), (), 1, 0, 0, 1))


@pytest.mark.parametrize(
    "payload",
    [
        msgpack.packb([50, 0, b"x"]),
        msgpack.packb([5, 1, TOPIC, 0]),
        encode_record(LeaderChange(1, (1,), (1,))),
        encode_record(FeatureLevel("f", 1)) + b"\x01",
        b"\x94\x05\x00\xc4\x10" + TOPIC,
    ],
)
def test_a_batch_that_cannot_be_decoded_is_named(payload: bytes) -> None:
    with pytest.raises(LogFormatError, match=r"batch \[7,8\)@1"):
        [*packed_rows([sealed(payload, 7, 1)], 0, END, ())]


@pytest.mark.parametrize("field", [("x",), ([1, True],), ([1.0],), (-1,)])
def test_a_change_with_a_field_of_a_wrong_type_is_refused_although_it_looks_known(field: tuple[object, ...]) -> None:
    """True equals 1 in Python; the bytes do not."""
    good = encode_record(PartitionChange(TOPIC, 0, isr=(1,)))
    bad = msgpack.packb([5, 0, TOPIC, 0, *field])
    batches = [*batches_of(born(), random.Random(1)), sealed(good + bad, 3, 2)]
    with pytest.raises(LogFormatError):
        folded(packed_rows(batches, 0, END, ()))


def test_numbers_in_longer_forms_mean_the_same() -> None:
    """No production code writes them; the codec reads them."""
    start = b"\x95\x05\x00\xc4\x10" + TOPIC
    tails = [b"\xcc\x01\x92\x01\x02", b"\xcf" + b"\x00" * 7 + b"\x01\x92\x02\x01", b"\xd0\x01\x92\xcc\x01\x02"]
    long_type = b"\x95\xcc\x05\x00\xc4\x10" + TOPIC + b"\x01\x92\x02\x01"
    pieces = [start + tail for tail in tails] + [long_type]
    batches = [*batches_of(born(), random.Random(1)), sealed(b"".join(pieces * 2), 3, 8)]
    found = folded(packed_rows(batches, 0, END, ()))
    assert found[2] == encode_valid(Partition(TOPIC, 1, (1, 2, 3), (2, 1), (), (), 1, 0, 0, 8))
