"""The story of a month, `examples/history_story.py`, and its history, for all who ask questions."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from snapshots.offline.history.run import make_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]


def write_story(directory: Path) -> None:
    """Run the example as docs/history.md says."""
    subprocess.run(
        [sys.executable, ROOT / "examples" / "history_story.py", directory], check=True, capture_output=True, timeout=60
    )


def story_in(directory: Path, spark: "SparkSession") -> Path:
    """Write the log of the month to `log`, and its history to `out`."""
    write_story(directory / "log")
    make_history(spark, str(directory / "log"), str(directory / "out"))
    return directory


@pytest.fixture(scope="session")
def story(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story_in(tmp_path_factory.mktemp("story"), spark)
