"""docs/history.md cannot drift: its questions are asked again.

`python -m tests.snapshots.tables.test_history_page` writes today's answers into the page. Read the diff.
"""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from snapshots.offline.history.views import register
from snapshots.offline.query.answers import ask, table_lines
from tests.snapshots.tables.conftest import story_in, write_story
from tests.snapshots.tables.local import local_history
from tests.snapshots.tables.test_history_against_twin import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "history.md"
LIMIT = 1000
QUESTION = re.compile(r"```sql\n(?P<query>.+?)\n```\n\n```\n(?P<answer>.*?)```\n", re.DOTALL)


def answers(spark: "SparkSession", story: Path) -> dict[str, str]:
    """Ask all questions of the page. Query -> answer."""
    register(spark, str(story / "out"))
    found = {}
    for match in QUESTION.finditer(PAGE.read_text()):
        answer = ask(spark, match["query"], LIMIT, as_text=True)
        found[match["query"]] = "".join(f"{line}\n" for line in table_lines(answer.columns, answer.rows))
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_answers_of_the_page(spark: "SparkSession", story: Path) -> None:
    told = {match["query"]: match["answer"] for match in QUESTION.finditer(PAGE.read_text())}
    assert len(told) == 10
    assert answers(spark, story) == told


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
        found = answers(spark, story_in(Path(directory), spark))
    text = QUESTION.sub(lambda m: f"```sql\n{m['query']}\n```\n\n```\n{found[m['query']]}```\n", PAGE.read_text())
    PAGE.write_text(text)
    spark.stop()


if __name__ == "__main__":
    main()
