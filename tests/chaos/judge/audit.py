"""The audit with Spark over the directories that a run has left: `quorum-offline audit` as an operator runs it.

The harness itself damages files, and nodes repair what they still need. So two findings say nothing against a node:

    damaged-batch      below the node's log start: those records are in its snapshot, and no node repairs them any more
    snapshot-damaged   after the fault "rot in a snapshot"
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from service_kit.process.run import EXIT_OK
from snapshots.offline.audit.findings import Severity
from snapshots.offline.commands.shared import EXIT_FINDINGS
from snapshots.offline.java import find_java
from tests.chaos.cluster import ROOT

WITHIN_S: Final = 900.0


class Audited(NamedTuple):
    """The result in a word or two for the table, and the findings."""

    word: str
    problems: list[str]


def audit(directories: Sequence[Path], *, has_rotten_snapshots: bool) -> Audited:
    """Audits the controllers' directories, which nobody uses any more. Without a Java there is no audit."""
    if find_java() is None:
        return Audited("not done: there is no Java", [])
    command = [sys.executable, "-m", "snapshots.offline", "audit", "-o", "json", *map(str, directories)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=WITHIN_S)
    if done.returncode not in (EXIT_OK, EXIT_FINDINGS):
        return Audited("FAILED", [f"the audit ended with {done.returncode}:\n{done.stdout}{done.stderr}"])
    found = accusing(json.loads(done.stdout), has_rotten_snapshots=has_rotten_snapshots)
    return Audited("FINDINGS" if found else "clean", found)


def accusing(summary: dict[str, Any], *, has_rotten_snapshots: bool) -> list[str]:
    """The findings in the audit's JSON that a fault of the harness does not explain."""
    starts = {node["node"]: node["start_offset"] for node in summary["nodes"]}

    def is_explained(finding: dict[str, Any]) -> bool:
        if finding["rule"] == "snapshot-damaged":
            return has_rotten_snapshots
        is_below = finding["offset"] is not None and finding["offset"] < starts.get(finding["node"], 0)
        return finding["rule"] == "damaged-batch" and is_below

    serious = [each for each in summary["findings"] if each["severity"] != Severity.INFO and not is_explained(each)]
    return [
        f"audit: {each['severity']} {each['rule']} {each['node']} {each['file']}: {each['detail']}" for each in serious
    ]
