"""The findings of the audit that the harness itself has caused."""

from typing import Any

import pytest

from tests.chaos.judge.audit import accusing


def summary(rule: str, offset: int | None, severity: str = "error") -> dict[str, Any]:
    nodes = [{"node": "controller 1", "start_offset": 100}, {"node": "controller 2", "start_offset": 0}]
    finding = {"rule": rule, "severity": severity, "node": "controller 1", "file": "f", "offset": offset, "detail": "d"}
    return {"nodes": nodes, "findings": [finding]}


@pytest.mark.parametrize(
    ("found", "is_rotten", "count"),
    [
        (summary("damaged-batch", 99), False, 0),
        (summary("damaged-batch", 100), False, 1),
        (summary("damaged-batch", None), False, 1),
        (summary("chain-broken", 99), False, 1),
        (summary("snapshot-damaged", None), True, 0),
        (summary("snapshot-damaged", None), False, 1),
        (summary("divergent-tail", 150, "info"), False, 0),
        (summary("time-regression", 150, "warning"), False, 1),
    ],
)
def test_what_a_fault_explains_and_what_it_does_not(found: dict[str, Any], is_rotten: bool, count: int) -> None:
    """Damage below the log's start is repaired by nobody; above, every node has had the time to repair it."""
    assert len(accusing(found, has_rotten_snapshots=is_rotten)) == count
