"""The log as Spark tables: exact schemas, damage as rows, live logs up to their durable end."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from snapshots.offline.punctuation import read_punctuation, read_table
from snapshots.offline.reading.options import parse_options
from snapshots.offline.schema import TABLES, spark_schema
from tests.snapshots.nodes import Node, copies, flip, segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

spark_test = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("tables") / "node", 41).live(15)


class TestTables:
    pytestmark = spark_test

    def test_both_tables_hold_the_whole_log(self, spark: "SparkSession", node: Node) -> None:
        batches = read_table(spark, [str(node.path)], "batches", split_bytes=3_000)
        assert batches.schema == spark_schema(TABLES["batches"])
        row = batches.selectExpr("sum(record_count) n", "bool_and(crc_ok) crc", "bool_and(chain_ok) chain").first()
        assert row is not None
        assert (row["n"], row["crc"], row["chain"]) == (node.journal.shape.end, True, True)
        records = read_table(spark, [str(node.path)], "records", split_bytes=3_000)
        assert records.schema == spark_schema(TABLES["records"])
        rows = records.orderBy("offset").collect()
        assert [each["offset"] for each in rows] == list(range(node.journal.shape.end))
        topic = next(each for each in rows if each["type_name"] == "Topic")
        assert set(json.loads(topic["json"])) == {"name", "topic_id"}
        assert json.loads(topic["entities"][0])[0] == "topic"

    def test_it_is_a_format_of_its_own(self, spark: "SparkSession", node: Node) -> None:
        """As users write it, without our helper; and in SQL."""
        table = spark.read.format("metadata_log").option("path", str(node.path)).option("mode", "records").load()
        table.createOrReplaceTempView("log")
        row = spark.sql("SELECT count(*) n FROM log WHERE type_name = 'SnapshotMark'").first()
        assert row is not None
        assert row["n"] == len(node.marks)

    def test_damage_is_a_row(self, spark: "SparkSession", node: Node, tmp_path: Path) -> None:
        healthy, damaged = copies(node, tmp_path, (1, 2))
        flip(segments(damaged)[0], 400)
        table = read_table(spark, [str(healthy), str(damaged)], "records")
        (row,) = table.where("error IS NOT NULL").collect()
        assert (row["node"], row["file"]) == ("controller 2", segments(damaged)[0].name)
        assert "CRC" in row["error"]
        assert row["position"] <= 400

    def test_a_live_log_is_read_to_its_durable_end(self, spark: "SparkSession", node: Node, tmp_path: Path) -> None:
        (path,) = copies(node, tmp_path, (1,))
        from metadata_log.disk.files import RealDirectory
        from metadata_log.format.records import NoOp
        from metadata_log.store.log import Log

        log = Log.open(RealDirectory(path / "@metadata"))
        log.append([NoOp()], 99, node.wall_ms + 1)  # written, not flushed
        durable = read_table(spark, [str(path)], "batches").selectExpr("max(end_offset) n").first()
        everything = read_table(spark, [str(path)], "batches", until="end").selectExpr("max(end_offset) n").first()
        assert durable is not None
        assert everything is not None
        assert (durable["n"], everything["n"]) == (node.journal.shape.end, node.journal.shape.end + 1)
        log.close()

    def test_an_empty_directory_is_an_empty_table(self, spark: "SparkSession", tmp_path: Path) -> None:
        (tmp_path / "@metadata").mkdir()
        assert read_table(spark, [str(tmp_path)], "batches").count() == 0

    def test_punctuation_comes_alone(self, spark: "SparkSession", node: Node) -> None:
        found = read_punctuation(spark, [str(node.path)], "flushed")["controller 1"]
        assert found.marks() == [mark.offset for mark in node.marks]
        assert len(found.markers) == 4
        assert len(found.invisible(0, node.journal.shape.end)) == 1


@pytest.mark.parametrize(
    "options", [{}, {"path": "x", "mode": "y"}, {"path": "x", "until": "soon"}, {"path": "x", "since": "a"}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"metadata_log|invalid literal"):
        parse_options(options)
