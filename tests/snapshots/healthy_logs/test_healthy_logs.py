"""A few healthy logs of each kind have no finding. `make healthy-logs` audits 200."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.snapshots.healthy_logs.rounds import KINDS, rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_five_logs_have_no_finding(spark: "SparkSession", tmp_path: Path) -> None:
    found = [*rounds(spark, 5, tmp_path)]
    assert sum(each.logs for each in found) >= 5
    assert [each.alarms for each in found if each.alarms] == []


@pytest.mark.parametrize("kind", ["trimmed", "two nights"])
def test_a_round_has_no_finding(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    """`test_audit_of_living_clusters` has the other kinds."""
    logs, alarms = KINDS[kind](spark, 31, tmp_path)
    assert logs >= 3
    assert alarms == []
