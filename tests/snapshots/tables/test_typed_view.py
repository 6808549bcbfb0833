"""The typed view: a column for each field of a record, filters, options, damage."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, Not

from metadata_log.format.codec import encode_record, record_to_json
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OFFSET_MAX
from metadata_log.format.records import NoOp
from metadata_log.store.log_config import LogConfig
from snapshots.offline.reading.options import parse_options
from snapshots.offline.typed.arrow_schema import record_batch, spark_schema_of
from snapshots.offline.typed.columns import CLASSES, PLACE, converter_of, schema_of
from snapshots.offline.typed.filters import Bounds, bounds_of, split_filters
from snapshots.offline.typed.reader import PushingTypedReader, TypedReader, typed_reader
from tests.golden.samples import RECORDS
from tests.snapshots.nodes import Node, copies, flip, segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGE = schema_of(CLASSES["PartitionChange"])
NOON = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    config = LogConfig(segment_bytes=3 << 10, tail_bytes=1 << 10)
    return Node(tmp_path_factory.mktemp("typed") / "node", 41, config=config).live(30)


def reader_of(path: Path, kind: str, **options: str) -> TypedReader:
    given = {"path": str(path), "mode": kind, "until": "uncommitted", **options}
    return typed_reader(parse_options(given))


def read(reader: TypedReader) -> list[dict[str, Any]]:
    """Read all parts, as Spark's tasks do."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def pushed(node: Node, kind: str, *filters: Any, **options: str) -> list[dict[str, Any]]:
    reader = reader_of(node.path, kind, pushdown="true", **options)
    assert isinstance(reader, PushingTypedReader)
    assert [*reader.pushFilters(filters)] == []
    return read(reader)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_record_type_has_its_columns(record: tuple[Any, ...]) -> None:
    """The columns are those of the definition, in order; the values are those of `record_to_json`, with numbers and bytes kept.

    Arrow takes the values, and Spark has a type for each column.
    """
    cls = type(record)
    schema = schema_of(cls)
    taken = {field.name for field in PLACE}
    names = [f"record_{name}" if name in taken else name for name in cls._fields]  # type: ignore[attr-defined]
    assert schema.names == [*(field.name for field in PLACE), *names]
    assert [field.name for field in spark_schema_of(schema)] == schema.names
    (row,) = record_batch(schema, [("n", 7, 3, NOON_US, *converter_of(cls)(record))]).to_pylist()
    shown: Any = record_to_json(record)["data"]  # type: ignore[arg-type]
    for name, (original, plain) in zip(names, shown.items(), strict=True):
        value = row[name]
        if isinstance(value, bytes):
            assert value.hex() == plain
        elif original == "leader":
            assert value == record[cls._fields.index("leader")]  # type: ignore[attr-defined]
        elif not isinstance(value, list | dict):
            assert value == plain, name


def test_a_row_in_full() -> None:
    """Ids are texts, lists are arrays, nested parts are structs, secrets are hidden, and null stays null."""
    types = {field.name: str(field.type) for field in schema_of(CLASSES["RegisterBroker"])}
    assert types["incarnation_id"] == "string"
    assert types["log_dirs"] == "list<element: string not null>"
    assert types["endpoints"].startswith(
        "list<element: struct<listener: string not null, host: string not null, port: int64"
    )
    assert schema_of(CLASSES["RegisterBroker"]).field("rack").nullable
    assert not schema_of(CLASSES["RegisterBroker"]).field("fenced").nullable
    credential = next(each for each in RECORDS if type(each).__name__ == "UserScramCredential")
    assert "[redacted]" in converter_of(CLASSES["UserScramCredential"])(credential)
    outcome = schema_of(CLASSES["RequestOutcome"])
    assert "record_offset" in outcome.names


def test_all_records_of_the_log_are_in_one_view_each(node: Node) -> None:
    found = {kind: read(reader_of(node.path, kind, split_bytes="3000")) for kind in CLASSES}
    offsets = sorted(row["offset"] for rows in found.values() for row in rows)
    assert offsets == list(range(node.journal.shape.end))


FILTERS: tuple[tuple[Any, Callable[[dict[str, Any]], bool]], ...] = (
    (GreaterThanOrEqual(("offset",), 100), lambda row: row["offset"] >= 100),
    (LessThan(("offset",), 300), lambda row: row["offset"] < 300),
    (EqualTo(("leader",), 3), lambda row: row["leader"] == 3),
    (In(("partition",), (0, 1)), lambda row: row["partition"] in (0, 1)),
    (IsNotNull(("replicas",)), lambda row: row["replicas"] is not None),
)


def test_pushed_filters_give_the_same_rows(node: Node) -> None:
    """Every subset of filters, alone and together; null never passes a comparison."""
    everything = read(reader_of(node.path, "PartitionChange"))
    assert any(row["leader"] is None for row in everything) or len(everything) > 3
    for mask in range(1 << len(FILTERS)):
        chosen = [each for at, each in enumerate(FILTERS) if mask >> at & 1 and each[0].attribute != ("replicas",)]
        expected = [row for row in everything if all(test(row) for _, test in chosen)]
        assert pushed(node, "PartitionChange", *(each for each, _ in chosen), split_bytes="3000") == expected
    times = sorted({row["timestamp"] for row in everything})
    middle = times[len(times) // 2]
    later = pushed(node, "PartitionChange", GreaterThan(("timestamp",), middle))
    assert later == [row for row in everything if row["timestamp"] > middle]


def test_segments_outside_of_the_filters_are_not_opened(node: Node) -> None:
    """By offset, and by the times in the headers of the segments."""
    assert len(segments(node.path)) > 2

    def parts(*filters: Any) -> int:
        reader = reader_of(node.path, "PartitionChange", pushdown="true")
        assert isinstance(reader, PushingTypedReader)
        [*reader.pushFilters(filters)]
        return len(reader.partitions())

    everything = read(reader_of(node.path, "PartitionChange"))
    assert parts() == len(segments(node.path))
    assert parts(LessThan(("offset",), 5)) == 1
    assert parts(GreaterThanOrEqual(("offset",), node.journal.shape.end - 1)) == 1
    assert parts(GreaterThan(("timestamp",), everything[-1]["timestamp"] + dt.timedelta(days=300))) == 1
    begin = read(reader_of(node.path, "LeaderChange"))[0]["timestamp"]
    assert parts(LessThan(("timestamp",), begin)) == 1
    assert len(reader_of(node.path, "PartitionChange", since=str(node.journal.shape.end - 1)).partitions()) == 1


def test_filters_that_spark_must_apply_go_back() -> None:
    """By reference, as Spark demands: negations, comparisons of texts and lists, other types, unknown columns."""
    back = (
        Not(EqualTo(("leader",), 3)), GreaterThan(("topic_id",), "a"), IsNotNull(("isr",)), EqualTo(("leader",), None),
        EqualTo(("leader",), True), In(("leader",), (1, None)), EqualTo(("endpoints", "port"), 1),
        EqualTo(("timestamp",), NOON.replace(tzinfo=None)), EqualTo(("offset",), 1.5),
    )  # fmt: skip
    taken = (EqualTo(("topic_id",), "x"), IsNotNull(("topic_id",)))
    conditions, rest = split_filters((*taken, *back), CHANGE)
    assert len(conditions) == 2
    assert [id(each) for each in rest] == [id(each) for each in back]


def test_bounds_are_never_too_narrow() -> None:
    def bounds(*filters: Any) -> Bounds:
        return bounds_of(split_filters(filters, CHANGE)[0])

    assert bounds() == Bounds()
    assert bounds(GreaterThan(("offset",), 5), LessThan(("offset",), 9))[:2] == (6, 9)
    assert bounds(EqualTo(("offset",), 5))[:2] == (5, 6)
    assert bounds(In(("offset",), (9, 5)))[:2] == (5, 10)
    assert bounds(In(("offset",), ()))[:2] == (0, OFFSET_MAX)
    assert bounds(GreaterThanOrEqual(("timestamp",), NOON))[2:] == (NOON_US, Bounds().last_us)
    assert bounds(EqualTo(("leader",), 5)) == Bounds()


def test_damage_ends_a_query_or_is_skipped(node: Node, tmp_path: Path) -> None:
    (path,) = copies(node, tmp_path, (1,))
    flip(segments(path)[0], 400)
    with pytest.raises(LogFormatError, match=r"position \d+: CRC.*audit the log, or leave damage out"):
        read(reader_of(path, "Partition"))
    whole = [row for kind in CLASSES for row in read(reader_of(node.path, kind))]
    rest = [row for kind in CLASSES for row in read(reader_of(path, kind, damage="skip"))]
    assert 0 < len(rest) < len(whole)
    assert all(row in whole for row in rest)


def test_a_record_in_an_unusual_form_is_shown(tmp_path: Path) -> None:
    """MessagePack allows an array's head of five bytes, which our writers never use. Replay reads it, and so does the view."""
    node = Node(tmp_path / "node", 8).live(5)
    packed = encode_record(NoOp())
    assert packed[0] == 0x92
    offset = node.log_packed(b"\xdd\x00\x00\x00\x02" + packed[1:])
    assert read(reader_of(node.path, "NoOp"))[-1]["offset"] == offset
    assert all(row["offset"] != offset for row in read(reader_of(node.path, "Topic")))


def test_a_record_of_a_later_version_ends_a_query(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", 43).live(3)
    node.log_unknown_record()  # of another type: no row
    assert read(reader_of(node.path, "Topic"))


@pytest.mark.parametrize(
    "options",
    [
        {"damage": "x"},
        {"pushdown": "yes"},
        {"mode": "NoSuchRecord"},
        {"since": "-5"},
        {"since": "noon"},
        {"untill": "10"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str]) -> None:
    """A name with a typing mistake was no option at all: the table had more rows than the reader had asked for."""
    given = {"path": "x", "mode": "Topic", **options}
    with pytest.raises(ValueError, match="metadata_log: "):
        parse_options(given)


def test_a_wrong_name_of_an_option_is_answered_with_the_right_ones() -> None:
    with pytest.raises(ValueError, match="there is no option 'untill'; there are path, mode, since, until, beside, "):
        parse_options({"path": "x", "untill": "10"})
    assert parse_options({"path": "x", "__paths__": "[]"}).since == 0  # Spark adds options of its own


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_spark_reads_the_view(spark: "SparkSession", node: Node) -> None:
    """With and without pushdown Spark gives the rows that the reader gives alone."""

    def load(kind: str, **options: str) -> Any:
        return (
            spark.read.format("metadata_log")
            .options(path=str(node.path), mode=kind, until="uncommitted", **options)
            .load()
        )

    everything = read(reader_of(node.path, "PartitionChange"))
    query = (
        "offset >= 100 AND leader IS NOT NULL AND size(replicas) > 1 AND timestamp > TIMESTAMP '2023-11-14 22:20:00Z'"
    )
    expected = [
        row["offset"]
        for row in everything
        if row["offset"] >= 100
        and row["leader"] is not None
        and len(row["replicas"] or ()) > 1
        and row["timestamp"] > dt.datetime(2023, 11, 14, 22, 20, tzinfo=dt.UTC)
    ]
    for options in ({}, {"pushdown": "true"}):
        rows = load("PartitionChange", **options).where(query).orderBy("offset").collect()
        assert [row["offset"] for row in rows] == expected
    brokers = load("RegisterBroker")
    assert brokers.schema == spark_schema_of(schema_of(CLASSES["RegisterBroker"]))
    (row,) = brokers.selectExpr("min(endpoints[0].port) port", "count(*) n").collect()
    assert (row["port"], row["n"]) == (9092, len(read(reader_of(node.path, "RegisterBroker"))))


def test_arrow_types_of_all_tables_have_a_spark_type() -> None:
    with pytest.raises(KeyError):
        spark_schema_of([pa.field("x", pa.float16())])
