"""The benchmark of the offline jobs runs over a tiny year, and refuses a wrong result."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.offline.__main__ import Figure, WrongResult, measure_log, plain_reader, rows_of, show
from benchmarks.offline.process_tree import tree, watched
from benchmarks.offline.year import make_year
from tests.snapshots.nodes import flip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = ("integrity", "compaction", "audit", "history")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_job_has_a_figure_and_the_right_result(spark: "SparkSession", tmp_path: Path) -> None:
    """The simulated year is whole, the compacted file is that of the controllers, and the audit finds nothing."""
    paths = make_year(tmp_path / "year", 2_500, nodes=2)
    figures = measure_log(spark, paths, JOBS)
    assert [figure.job for figure in figures] == ["plain reader", *JOBS]
    records = figures[0].records
    assert records >= 2_500
    assert [figure.records for figure in figures[1:]] == [2 * records, records, 2 * records, records]
    assert all(figure.peak_mb > figure.python_mb > 0 for figure in figures)


def test_damage_is_no_figure(tmp_path: Path) -> None:
    (path,) = make_year(tmp_path / "year", 400, nodes=1)
    flip(path / "@metadata" / "00000000000000000000.log", 5_000)
    with pytest.raises(WrongResult, match="position"):
        plain_reader(path)


def test_the_rows_compare_with_the_plain_reader_and_with_half(capsys: pytest.CaptureFixture[str]) -> None:
    half = [Figure("plain reader", 100, 1.0, 1.0, 50, 50), Figure("integrity", 300, 2.0, 3.0, 900, 300)]
    whole = [Figure("plain reader", 200, 2.0, 2.0, 50, 50), Figure("integrity", 600, 3.0, 6.0, 950, 310)]
    row = rows_of(half, whole)[1]
    assert (row["records_per_second"], row["ratio_to_plain_reader"]) == (200, 2.0)
    assert (row["time_to_half"], row["cpu_to_half"], row["cpu_us_per_record"]) == (1.5, 2.0, 10_000.0)
    assert (row["peak_mb"], row["peak_mb_at_half"]) == (950, 900)
    show([row], "a year")
    assert "integrity" in capsys.readouterr().out


def test_the_tree_has_this_process_and_its_time() -> None:
    with watched() as watch:
        assert sum(range(100_000)) > 0
    assert watch.usage.peak_mb >= watch.usage.python_mb > 0
    assert watch.usage.cpu_s >= 0
    assert len(tree(1)) > 1
