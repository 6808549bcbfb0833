"""What the data source reads: ends, the archive, filters, snapshots, streams. All but the last tests run without Spark."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, IsNotNull, LessThan

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.store.archive import Archive
from metadata_log.store.archived.merging import merge
from metadata_log.store.log_config import LogConfig
from snapshots.offline.reading.ends import NothingProven
from snapshots.offline.reading.options import parse_options
from snapshots.offline.reading.stream import LogStreamReader
from snapshots.offline.reading.tables import PushingTableReader, TableReader, table_reader
from snapshots.offline.typed.reader import typed_reader
from tests.snapshots.nodes import CLUSTER_ID, Node, copies, flip, segments
from tests.snapshots.test_committed import Three

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
SMALL = LogConfig(segment_bytes=3 << 10, tail_bytes=1 << 10)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("reading") / "node", 41, config=SMALL).live(30)


def reader_of(path: Path | str, mode: str, **options: str) -> TableReader:
    return table_reader(parse_options({"path": str(path), "mode": mode, "until": "uncommitted", **options}))


def read(reader: Any) -> list[Row]:
    """Read all parts, as Spark's tasks do."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def offsets(path: Path | str, mode: str = "records", **options: str) -> list[int]:
    return [row["offset"] for row in read(reader_of(path, mode, **options))]


class TestEnds:
    def test_a_table_ends_where_the_files_prove_no_more(self, tmp_path: Path) -> None:
        """By default what is committed; a reader may name another end."""
        three = Three(tmp_path)
        (one, two, _) = three.paths
        assert offsets(one, until="committed") == [*range(three.marked)]
        assert offsets(one, until="committed", beside=str(two)) == [*range(three.end)]
        assert offsets(one) == [*range(three.end)]
        assert offsets(one, until="5") == [*range(5)]
        both = read(reader_of(json.dumps([str(one), str(two)]), "records", until="committed"))
        assert [row["offset"] for row in both] == [*range(three.end)] * 2

    def test_a_log_of_which_nothing_is_proven_is_refused(self, tmp_path: Path) -> None:
        """An empty table would look like an empty log. A log without records is an empty table."""
        path = Three(tmp_path).paths[0]
        for snapshot in (path / "@metadata").glob("*.checkpoint"):
            snapshot.unlink()
        for mode in ("batches", "Topic"):
            options = parse_options({"path": str(path), "mode": mode})
            with pytest.raises(
                NothingProven, match=r"no record of controller 1 is proven to be committed.*uncommitted"
            ):
                (typed_reader if options.is_typed else table_reader)(options).partitions()
        (tmp_path / "empty" / "@metadata").mkdir(parents=True)
        assert offsets(tmp_path / "empty", until="committed") == []


class TestArchive:
    @pytest.fixture
    def retired(self, node: Node, tmp_path: Path) -> Path:
        """A copy of the node, the first two segments of which retention has moved."""
        (path,) = copies(node, tmp_path, (1,))
        Archive(RealDirectory(path / "@metadata")).take([each.name for each in segments(path)[:2]])
        return path

    def test_retired_segments_are_read_where_they_lie(self, node: Node, retired: Path) -> None:
        assert offsets(retired) == [*range(node.journal.shape.end)]
        above = int(segments(retired)[0].stem)
        assert 0 < above == offsets(retired, archive="false")[0]
        options = {"path": str(retired), "mode": "Topic", "until": "uncommitted"}
        whole = {**options, "path": str(node.path)}
        assert read(typed_reader(parse_options(options))) == read(typed_reader(parse_options(whole)))

    def test_a_segment_that_moves_after_the_planning_is_found(self, node: Node, retired: Path) -> None:
        """A segment in both directories, as after a power cut, comes once."""
        reader = reader_of(retired, "records")
        parts = reader.partitions()
        third = segments(retired)[0]
        Archive(RealDirectory(retired / "@metadata")).take([third.name])
        found = [row["offset"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert found == [*range(node.journal.shape.end)]
        third.write_bytes((third.parent / "archive" / third.name).read_bytes())
        assert offsets(retired) == found

    def test_merged_segments_are_read_as_before(self, node: Node, retired: Path) -> None:
        """The segments of a merged file come out byte for byte. A damaged merged file is an error, and never a gap."""
        reader = reader_of(retired, "records")
        parts, before = reader.partitions(), read(reader)
        archive = retired / "@metadata" / "archive"
        merge(RealDirectory(archive))
        assert [*archive.glob("*.log")] == []
        assert [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()] == before
        assert read(reader_of(retired, "records")) == before
        (merged,) = archive.glob("*.merged")
        flip(merged, merged.stat().st_size - 20)
        with pytest.raises(LogFormatError, match=r'\.merged.*without its archive: \.option\("archive", "false"\)'):
            reader_of(retired, "records").partitions()


FILTERS: tuple[tuple[Any, Callable[[Row], bool]], ...] = (
    (GreaterThanOrEqual(("offset",), 100), lambda row: row["offset"] is not None and row["offset"] >= 100),
    (LessThan(("offset",), 300), lambda row: row["offset"] is not None and row["offset"] < 300),
    (In(("type_name",), ("Topic", "PartitionChange")), lambda row: row["type_name"] in ("Topic", "PartitionChange")),
    (IsNotNull(("topic_id",)), lambda row: row["topic_id"] is not None),
)


class TestFilters:
    def pushed(self, path: Path, mode: str, *filters: Any, **options: str) -> list[Row]:
        reader = reader_of(path, mode, pushdown="true", **options)
        assert isinstance(reader, PushingTableReader)
        assert [*reader.pushFilters(filters)] == []
        return read(reader)

    def test_pushed_filters_give_the_same_records(self, node: Node, tmp_path: Path) -> None:
        """Every subset of filters on offset, type and topic, of a healthy log and of a damaged one."""
        (damaged,) = copies(node, tmp_path, (1,))
        flip(segments(damaged)[1], 700)
        for path in (node.path, damaged):
            everything = read(reader_of(path, "records"))
            for mask in range(1 << len(FILTERS)):
                chosen = [each for at, each in enumerate(FILTERS) if mask >> at & 1]
                expected = [row for row in everything if all(test(row) for _, test in chosen)]
                assert self.pushed(path, "records", *(each for each, _ in chosen), split_bytes="3000") == expected

    def test_filters_on_topic_broker_and_time(self, node: Node) -> None:
        everything = read(reader_of(node.path, "records"))
        topic_id = next(row["topic_id"] for row in everything if row["topic_id"])
        broker_id = next(row["broker_id"] for row in everything if row["broker_id"])
        middle = everything[len(everything) // 2]["timestamp"]
        filters: tuple[tuple[Any, Callable[[Row], bool]], ...] = (
            (EqualTo(("topic_id",), topic_id), lambda row: row["topic_id"] == topic_id),
            (EqualTo(("broker_id",), broker_id), lambda row: row["broker_id"] == broker_id),
            (GreaterThanOrEqual(("timestamp",), middle), lambda row: row["timestamp"] >= middle),
        )
        for pushed, test in filters:
            assert self.pushed(node.path, "records", pushed) == [row for row in everything if test(row)]
        named = json.loads(next(row["json"] for row in everything if row["topic_id"] == topic_id))
        assert named["topic_id"] == topic_id

    def test_pushed_filters_give_the_same_batches_and_entities(self, node: Node) -> None:
        batches, entities = read(reader_of(node.path, "batches")), read(reader_of(node.path, "entities"))
        for name in ("base_offset", "end_offset"):
            expected = [row for row in batches if row[name] >= 100]
            assert self.pushed(node.path, "batches", GreaterThanOrEqual((name,), 100)) == expected
        middle = batches[len(batches) // 2]["last_timestamp"]
        expected = [row for row in batches if row["last_timestamp"] >= middle]
        assert self.pushed(node.path, "batches", GreaterThanOrEqual(("last_timestamp",), middle)) == expected
        entity = next(row["entity"] for row in entities if row["entity"].startswith('["topic"'))
        expected = [row for row in entities if row["entity"] == entity]
        assert self.pushed(node.path, "entities", EqualTo(("entity",), entity)) == expected

    def test_segments_outside_of_the_filters_are_not_opened(self, node: Node) -> None:
        reader = reader_of(node.path, "records", pushdown="true")
        assert isinstance(reader, PushingTableReader)
        [*reader.pushFilters([LessThan(("offset",), 5)])]
        assert len(reader.partitions()) == 1 < len(segments(node.path))


def test_snapshots_are_rows_verified_or_with_an_error(node: Node, tmp_path: Path) -> None:
    (path,) = copies(node, tmp_path, (1,))
    rows = read(reader_of(path, "snapshots"))
    assert [(row["end_offset"], row["epoch"], row["error"]) for row in rows] == [(*mark, None) for mark in node.marks]
    assert all(row["record_count"] and len(row["digest"]) == len(row["chain"]) == 32 for row in rows)
    flip(path / "@metadata" / rows[0]["file"], 300)
    damaged, healthy = read(reader_of(path, "snapshots"))
    assert (damaged["record_count"], healthy) == (None, rows[1])
    assert "CRC" in damaged["error"]


def as_broker(path: Path) -> None:
    """Make the directory one of broker 7: all that is durable in it is committed."""
    write_identity(RealDirectory(path), Identity(CLUSTER_ID, 7, b"\x07" * 16, 1, "broker"))


class TestStream:
    @pytest.fixture
    def live(self, tmp_path: Path) -> Node:
        node = Node(tmp_path / "node", 42, config=SMALL).live(15)
        as_broker(node.path)
        return node

    def stream(self, path: Path, mode: str = "records", **options: str) -> LogStreamReader:
        return LogStreamReader(parse_options({"path": str(path), "mode": mode, **options}))

    def micro_batch(self, stream: LogStreamReader, start: dict[str, int], end: dict[str, int]) -> list[Row]:
        parts = stream.partitions(start, end)
        return [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]

    def test_each_record_comes_once(self, live: Node) -> None:
        """Micro-batch after micro-batch while the node works; also as typed records, and as entities."""
        ends = [self.stream(live.path).initialOffset()]
        for _ in range(4):
            ends.append(self.stream(live.path).latestOffset(ends[-1], None))
            live.work(5)
            live.write_out()
            live.journal.flush()
        assert len({end["offset"] for end in ends}) == 5
        for mode in ("records", "batches", "entities", "PartitionChange"):
            stream = self.stream(live.path, mode)
            found = [row for pair in pairwise(ends) for row in self.micro_batch(stream, *pair)]
            options = parse_options({"path": str(live.path), "mode": mode, "until": str(ends[-1]["offset"])})
            assert found == read((typed_reader if options.is_typed else table_reader)(options))
            assert stream.partitions(ends[1], ends[1]) == []

    def test_a_stream_waits_for_a_proof(self, tmp_path: Path) -> None:
        three = Three(tmp_path)
        (one, two, _) = three.paths
        assert self.stream(one).latestOffset() == {"offset": three.marked}
        assert self.stream(one).latestOffset({"offset": three.end}, None) == {"offset": three.end}
        assert self.stream(one, beside=str(two)).latestOffset({"offset": 3}, None) == {"offset": three.end}
        for snapshot in (one / "@metadata").glob("*.checkpoint"):
            snapshot.unlink()
        assert self.stream(one).latestOffset({"offset": 3}, None) == {"offset": 3}
        assert self.stream(one, until="uncommitted").latestOffset({"offset": 3}, None) == {"offset": three.end}

    def test_a_gap_and_damage_stop_the_stream(self, live: Node) -> None:
        """The archive closes a gap. A stream that has missed a record would look whole."""
        first, second = segments(live.path)[:2]
        start, end = {"offset": 0}, self.stream(live.path).latestOffset()
        parts = self.stream(live.path).partitions(start, end)
        Archive(RealDirectory(live.path / "@metadata")).take([first.name])
        assert len(self.micro_batch(self.stream(live.path), start, end)) == end["offset"]
        (first.parent / "archive" / first.name).unlink()
        with pytest.raises(LogFormatError, match="has no record at 0 any more"):
            self.stream(live.path).partitions(start, end)
        with pytest.raises(LogFormatError, match="was deleted before the stream has read it"):
            [*self.stream(live.path).read(parts[0])]
        flip(second, 400)
        above = self.stream(live.path).initialOffset()
        for mode in ("records", "batches", "entities"):
            with pytest.raises(LogFormatError, match=r"position \d+: .*the stream has stopped there"):
                self.micro_batch(self.stream(live.path, mode), above, end)

    @pytest.mark.parametrize(
        "options", [{"mode": "activity"}, {"mode": "snapshots"}, {"path": '["a", "b"]'}, {"until": "end"}]
    )
    def test_tables_that_cannot_be_streams_are_refused(self, options: dict[str, str]) -> None:
        with pytest.raises(ValueError, match="metadata_log: "):
            LogStreamReader(parse_options({"path": "x", "mode": "records", **options}))


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node", 43).live(3)
    as_broker(node.path)
    yield node
    node.journal.close()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestSpark:
    def test_a_query_goes_on_where_it_stopped(self, spark: "SparkSession", story: Node, tmp_path: Path) -> None:
        """Two queries with one checkpoint: the second has only what is new."""

        def run() -> None:
            log = spark.readStream.format("metadata_log").option("path", str(story.path)).option("mode", "records")
            query = (
                log.load().select("offset", "type_name").writeStream.format("parquet")
                .option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination(100)
            assert query.exception() is None

        def written() -> list[int]:
            return [row["offset"] for row in spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()]

        run()
        first = story.journal.shape.end
        assert written() == [*range(first)]
        story.mark()
        run()
        assert written() == [*range(story.journal.shape.end)]
        progress = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
        assert json.loads(progress[-1].read_text().splitlines()[-1]) == {"offset": story.journal.shape.end}

    def test_filters_and_snapshots_in_sql(self, spark: "SparkSession", story: Node) -> None:
        """Spark finds the source by itself in a new session, and pushes the filters of one query."""
        session = spark.newSession()
        session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        log = session.read.format("metadata_log").option("path", str(story.path))
        marks = log.option("mode", "records").option("pushdown", "true").load().where("type_name = 'SnapshotMark'")
        assert [row["offset"] + 1 for row in marks.orderBy("offset").collect()] == [m.offset for m in story.marks]
        found = log.option("mode", "snapshots").option("pushdown", "false").load().orderBy("end_offset").collect()
        assert [row["end_offset"] for row in found] == [mark.offset for mark in story.marks]
