"""Runs `quorumctl` and daemons as real processes that need not import anything: a server that has imported all forks them.

A command in a fresh interpreter takes 0.4 s of CPU time and a daemon 0.9 s, nearly all of it for imports, and the tests start
hundreds of both. Example:
  1. the first test starts the server, which imports all commands and both daemons, and waits;
  2. a test starts controller 1: the server forks, and the child becomes `quorumd` with the log and the directory of controller 1;
  3. the test sends SIGKILL: the server takes the exit code of its child, and tells it to the test.

The server has no event loop, no thread and no gRPC channel, so a fork of the server is a clean start. Fresh interpreters run the
README's example, daemons with an unusual command line, and commands that get a signal.
"""

import importlib
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

import quorum.cli.commands as commands
from quorum.devcluster import process
from quorum.devcluster.layout import DevNode

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        *("tests.forked", "quorum.cli.main", "metaquorum", "grpc.aio"),
        *(f"{module}.__main__" for module in process.MODULES.values()),
        *(module.name for module in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")),
    ]
)


def quorumctl(*words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with the directory and the environment of this process.

    Raises:
        TimeoutExpired: the command had not ended after `timeout_s`, and was killed.
    """
    with tempfile.TemporaryDirectory() as directory:
        outputs = [str(Path(directory, name)) for name in ("stdout", "stderr")]
        for output in outputs:
            Path(output).touch()
        command = _SERVER.Process(target=_run_command, args=(words, outputs, str(Path.cwd()), dict(os.environ)))
        command.start()
        command.join(timeout_s)
        exit_code = command.exitcode
        if exit_code is None:
            command.kill()
            command.join()
        command.close()
        stdout, stderr = (Path(output).read_text() for output in outputs)
    if exit_code is None:
        raise subprocess.TimeoutExpired(words, timeout_s, stdout, stderr)
    return subprocess.CompletedProcess(words, exit_code, stdout, stderr)


class _Daemon:
    """A forked daemon, with the interface of `subprocess.Popen`."""

    def __init__(self, node: DevNode) -> None:
        facts = (
            process.MODULES[node.role],
            str(node.config_path),
            str(node.log_path),
            str(node.directory),
            dict(os.environ),
        )
        self._process = _SERVER.Process(target=_run_daemon, args=facts, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


@contextmanager
def daemons() -> Iterator[None]:
    """Inside the block the local clusters of this process fork their daemons."""

    def start(node: DevNode, log: BinaryIO) -> process.Child:
        assert log.name == str(node.log_path)
        return _Daemon(node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "start_child", start)
        yield


def _run_daemon(module: str, config: str, log: str, directory: str, environment: dict[str, str]) -> None:
    """Run the daemon, in the forked process."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _settle_in((log, log), directory, environment)
    sys.argv = [module, "--config", config]
    importlib.import_module(f"{module}.__main__").main()


def _run_command(words: Sequence[str], outputs: Sequence[str], directory: str, environment: dict[str, str]) -> None:
    """Run the console script, in the forked process."""
    _settle_in(outputs, directory, environment)
    sys.argv = ["quorumctl", *words]
    importlib.import_module("quorum.cli.main").main()


def _settle_in(outputs: Sequence[str], directory: str, environment: dict[str, str]) -> None:
    """Give the forked process its files for stdout and stderr, which exist, its directory and its environment."""
    for number, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), number)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
