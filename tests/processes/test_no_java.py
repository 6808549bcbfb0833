"""The Spark jobs where there is no Java: one line that says what to do, and no trace of Spark."""

import os
from pathlib import Path

import pytest

from snapshots.offline.java import LAUNCHER_HOME
from tests.processes.conftest import run

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.skipif(LAUNCHER_HOME.exists(), reason="this checkout has a Java of its own, in .java")
@pytest.mark.parametrize("job", ["audit", "compact"])
def test_without_java_there_is_one_line(tmp_path: Path, job: str) -> None:
    """PATH and JAVA_HOME lead nowhere: exit code 1, and the line names both ways to get one."""
    (tmp_path / "node" / "@metadata").mkdir(parents=True)
    out = ("--out", str(tmp_path / "out")) if job == "compact" else ()
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    refused = run("snapshots.offline", job, str(tmp_path / "node"), *out, env=environment | {"PATH": str(tmp_path)})
    assert refused.returncode == 1, refused
    (line,) = refused.stderr.splitlines()
    assert "no Java 17+ found" in line
    assert "make java" in line
    assert "JAVA_HOME" in line
