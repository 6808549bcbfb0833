"""Runs `quorumctl` as a real process that need not import anything: a server that has imported all commands forks the process.

A command in a fresh interpreter takes 0.4 s of CPU time, nearly all of it for imports, and the tests run hundreds of commands.
The server has no event loop, no thread and no gRPC channel, so a fork of the server is a clean start. Tests that close streams
or send signals start a fresh interpreter themselves.
"""

import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import quorum.cli.commands as commands

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        *("tests.forked", "quorum.cli.main", "metaquorum", "grpc.aio"),
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
        process = _SERVER.Process(target=_run, args=(words, outputs, str(Path.cwd()), dict(os.environ)))
        process.start()
        process.join(timeout_s)
        exit_code = process.exitcode
        if exit_code is None:
            process.kill()
            process.join()
        process.close()
        stdout, stderr = (Path(output).read_text() for output in outputs)
    if exit_code is None:
        raise subprocess.TimeoutExpired(words, timeout_s, stdout, stderr)
    return subprocess.CompletedProcess(words, exit_code, stdout, stderr)


def _run(words: Sequence[str], outputs: Sequence[str], directory: str, environment: dict[str, str]) -> None:
    """Be the console script, in the forked process."""
    for number, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["quorumctl", *words]
    from quorum.cli.main import main

    main()
