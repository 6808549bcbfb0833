"""Types each command of the README's quick start, of `docs/install.md` and of `docs/offline.md`, as a newcomer would.

A test plays the reader: the test copies the `export` line that `dev up` prints, uses directories and ports of its own, and
reads the tables. Every command must end with 0, and each table in a document must have the columns that the command prints.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from snapshots.offline.java import find_java

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
README, INSTALL, OFFLINE = ((ROOT / name).read_text() for name in ("README.md", "docs/install.md", "docs/offline.md"))
COMMAND_S = 120
"""The slowest is `make demo`'s little sister: a Spark job on a busy machine."""


class Shown(NamedTuple):
    """A command of a document, and the output that the document shows below the command."""

    command: str
    output: list[str]

    @property
    def columns(self) -> list[str]:
        """The titles of the table that is shown; none where something else is shown, or nothing."""
        words = self.output[0].split() if self.output else []
        return words if len(words) > 1 and all(re.fullmatch("[A-Z_]+", word) for word in words) else []


def section(document: str, title: str) -> str:
    """The text between the heading `title` and the next heading."""
    return document.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def blocks(text: str, language: str = "") -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def session(text: str) -> list[Shown]:
    """The commands behind `$` in all blocks of `text`, each with the lines up to the next one."""
    shown = [
        Shown(*first_and_rest(entry))
        for block in blocks(text)
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    return [each for each in shown if not each.command.startswith("make venv")]  # this test runs in that environment


def first_and_rest(entry: str) -> tuple[str, list[str]]:
    """The command, which goes on behind a backslash at the end of a line, and the lines below it."""
    first, *rest = entry.replace("\\\n", "").splitlines()
    return first, [line for line in rest if line]


class Shell:
    """A reader's terminal: commands see the variables that were exported; all that was started ends with it."""

    def __init__(self, tmp_path: Path) -> None:
        self.variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._tmp_path = tmp_path
        self._started: list[subprocess.Popen[str]] = []

    def type(self, command: str, *, cwd: Path = ROOT) -> str:
        """What `command` prints, with this test's own directory in the place of `/tmp`. It must end with 0."""
        command = command.replace("/tmp/mq", f"{self._tmp_path}/mq")  # not all of /tmp: this checkout may lie there
        with tempfile.TemporaryFile(
            "w+"
        ) as out:  # a pipe would not end before the daemons do that a command has started
            process = subprocess.Popen(
                ["bash", "-o", "pipefail", "-e", "-c", command], cwd=cwd, env={**os.environ, **self.variables}, text=True,
                start_new_session=True, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self._started.append(process)
            process.wait(timeout=COMMAND_S)
            out.seek(0)
            output = out.read()
        assert process.returncode == 0, f"$ {command}\n{output}\nexit code {process.returncode}"
        return output

    def close(self) -> None:
        for process in self._started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it and all of its children have ended


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Directories under `/tmp` are this test's own."""
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def exported(output: str) -> dict[str, str]:
    """What a reader exports who copies the `export` lines of `output`."""
    lines = [line.removeprefix("export ") for line in output.splitlines() if line.startswith("export ")]
    return dict(word.split("=", 1) for line in lines for word in shlex.split(line))


@pytest.mark.spark
def test_the_quick_start_and_the_offline_jobs(shell: Shell) -> None:
    """From `dev up` to a clean audit, and the Python snippet in between."""
    quick, offline = session(section(README, "Quick start")), session(OFFLINE)
    assert [each.command.split()[:2] for each in quick[:1]] == [["quorumctl", "dev"]]
    assert len(quick) + len(offline) >= 8
    directory = shlex.split(quick[0].command)[shlex.split(quick[0].command).index("--dir") + 1]
    try:
        for shown in quick if find_java() is None else quick + offline:
            output = shell.type(shown.command)
            shell.variables |= exported(output)
            if shown.columns:
                assert shown.columns in [line.split() for line in output.splitlines()], shown.command
        controllers = shell.variables["QUORUMCTL_BOOTSTRAP_CONTROLLER"].split(",")
        (snippet,) = blocks(section(README, "Quick start"), "python")
        (address,) = re.findall(r'"(127\.0\.0\.1:\d+)"', snippet)
        shell.type(f"{shlex.quote(sys.executable)} -c {shlex.quote(snippet.replace(address, controllers[0]))}")
        assert "payments" in shell.type("quorumctl topics list")
        shell.type(f"{shlex.quote(sys.executable)} -c {shlex.quote(snippet.replace(address, controllers[0]))}")  # twice
    finally:
        shell.type(f"quorumctl dev down --dir {directory}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def test_daemons_by_hand(shell: Shell, tmp_path: Path) -> None:
    """Config files, `storage format`, three controllers and a broker; the last command finds the quorum well."""
    (script,) = [block for block in blocks(section(INSTALL, "By hand, on one machine")) if "quorumd --config" in block]
    *ports, metrics = free_ports(5)
    numbers = dict(zip(("9001", "9002", "9003", "9092"), map(str, ports), strict=True))
    by_number = "\n".join(f"  {number}) port={port};;" for number, port in zip("123", ports, strict=False))
    assert "127.0.0.1:900$i" in script
    script = script.replace(
        "do cat > controller-$i.yaml", f"do case $i in\n{by_number}\nesac; cat > controller-$i.yaml"
    )
    script = script.replace("127.0.0.1:900$i", "127.0.0.1:$port")
    for number, port in numbers.items():
        script = script.replace(f"127.0.0.1:{number}", f"127.0.0.1:{port}")
    script = script.replace("\nquorumctl ", f"\nquorumctl -C 127.0.0.1:{numbers['9001']} ")
    assert f"127.0.0.1:{ports[0]}" in script and "metrics.listener: 127.0.0.1:910$i" in script
    script = script.replace("metrics.listener: 127.0.0.1:910$i", "metrics.listener: 127.0.0.1:0")
    script = script.replace("metrics.listener: 127.0.0.1:9104", f"metrics.listener: 127.0.0.1:{metrics}")
    output = shell.type(script, cwd=tmp_path)
    assert re.search(r"\(leader\)|healthy", output), output
    assert "200" in shell.type(f"curl -sm 5 -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{metrics}/livez")
