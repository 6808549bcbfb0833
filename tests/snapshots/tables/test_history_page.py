"""docs/history.md cannot drift: its questions are asked again.

`python -m tests.snapshots.tables.test_history_page` writes today's answers into the page. Read the diff.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from snapshots.offline.history.run import make_history
from snapshots.offline.history.views import register
from tests.snapshots.tables.local import local_history
from tests.snapshots.tables.test_history_against_twin import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "history.md"
QUESTION = re.compile(r"```sql\n(?P<query>.+?)\n```\n\n```\n(?P<answer>.*?)```\n", re.DOTALL)


def write_story(directory: Path) -> None:
    """Run the example as the page says."""
    subprocess.run(
        [sys.executable, ROOT / "examples" / "history_story.py", directory], check=True, capture_output=True, timeout=60
    )


def shown(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """An answer as the page has it: one line for each row, null as a dash."""
    table = [columns, *(["-" if value is None else value for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join(lines) + "\n"


def answers(spark: "SparkSession", directory: Path) -> dict[str, str]:
    """Ask all questions of the page. Query -> answer."""
    write_story(directory / "story")
    make_history(spark, str(directory / "story"), str(directory / "out"))
    register(spark, str(directory / "out"))
    found = {}
    for match in QUESTION.finditer(PAGE.read_text()):
        frame = spark.sql(match["query"])
        frame = frame.selectExpr(*(f"CAST(`{name}` AS STRING) AS `{name}`" for name in frame.columns))
        found[match["query"]] = shown(frame.columns, [tuple(row) for row in frame.collect()])
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_answers_of_the_page(spark: "SparkSession", tmp_path: Path) -> None:
    told = {match["query"]: match["answer"] for match in QUESTION.finditer(PAGE.read_text())}
    assert len(told) == 10
    assert answers(spark, tmp_path) == told


def test_the_story_is_a_history_that_the_twin_knows(tmp_path: Path) -> None:
    """The same bytes at each run, and the same intervals as the dumb twin's."""
    write_story(tmp_path / "one")
    write_story(tmp_path / "two")
    one, two = (min((tmp_path / name / "@metadata").glob("*.log")).read_bytes() for name in ("one", "two"))
    assert one == two
    check(tmp_path / "one", local_history(tmp_path / "one"))


def main() -> None:
    from snapshots.offline.session import start_session

    spark = start_session("local[2]", shuffle_partitions=2)
    with tempfile.TemporaryDirectory() as directory:
        found = answers(spark, Path(directory))
    text = QUESTION.sub(lambda m: f"```sql\n{m['query']}\n```\n\n```\n{found[m['query']]}```\n", PAGE.read_text())
    PAGE.write_text(text)
    spark.stop()


if __name__ == "__main__":
    main()
