"""`make test` gets a Java only for tests that need one: a newcomer runs unit tests without a JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_unit_tests_need_no_java(tmp_path: Path) -> None:
    """PATH and JAVA_HOME lead nowhere, and the selected tests are none of Spark's: nothing is fetched, nothing is said."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "scripts/get_java.py", "--for-tests", "tests/test_prose.py", "-m", "not spark"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
