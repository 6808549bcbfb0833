"""The audit with Spark over the directories that a run has left: `quorum-offline audit` as an operator runs it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from snapshots.offline.java import find_java
from tests.chaos.cluster import ROOT

WITHIN_S = 600.0


class Audited(NamedTuple):
    """The result in a word or two for the table, and the findings."""

    word: str
    problems: list[str]


def audit(directories: Sequence[Path]) -> Audited:
    """Audits the controllers' directories, which nobody uses any more. Without a Java there is no audit."""
    if find_java() is None:
        return Audited("not done: there is no Java", [])
    command = [sys.executable, "-m", "snapshots.offline", "audit", *map(str, directories)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=WITHIN_S)
    if done.returncode == 0:
        return Audited("clean", [])
    return Audited("FINDINGS", [f"the audit ended with {done.returncode}:\n{done.stdout}{done.stderr}"])
