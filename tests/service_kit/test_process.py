"""A daemon as a process: signals, systemd, exit codes, the clock."""

import asyncio
import io
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from service_kit.process.background import in_background
from service_kit.process.clock import RealClock
from service_kit.process.logs import Logs
from service_kit.process.notify import notify
from service_kit.process.run import EXIT_CONFIG, EXIT_OK, refusal, run
from service_kit.process.settings import ConfigErrors, ConfigProblem
from service_kit.process.signals import handling_signals


async def test_a_failure_in_the_background_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The daemon goes on. A task that is cancelled at the end of the block has not failed."""
    is_cancelled = asyncio.Event()

    async def fails() -> None:
        raise RuntimeError("a mistake of ours")

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    written = io.StringIO()
    with Logs(stream=written, log_format="json"):
        with in_background("counting", fails()), in_background("waiting", works()):
            for _ in range(5):
                await asyncio.sleep(0)
        await is_cancelled.wait()
        await asyncio.sleep(0)
    (line,) = [line for line in written.getvalue().splitlines() if "background" in line]
    assert "background task failed" in line and "counting" in line and "a mistake of ours" in line


async def test_the_first_signal_asks_the_second_ends() -> None:
    """A daemon gets the time that it needs to leave, until somebody insists."""
    heard: list[str] = []
    told = asyncio.Event()

    def hear(what: str) -> None:
        heard.append(what)
        told.set()

    async def send(number: signal.Signals) -> None:
        told.clear()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(told.wait(), 5)

    with handling_signals(
        lambda number: hear(f"stop {number.name}"), lambda: hear("hangup"), exit_now=lambda code: hear(f"exit {code}")
    ):
        await send(signal.SIGHUP)
        await send(signal.SIGTERM)
        await send(signal.SIGINT)

    assert heard == ["hangup", "stop SIGTERM", "exit 130"]


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A datagram to NOTIFY_SOCKET; silence where there is none, or where nobody listens any more."""
    where = str(tmp_path / "notify")
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert notify("READY=1") is False

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(where)
        monkeypatch.setenv("NOTIFY_SOCKET", where)
        assert notify("READY=1\nSTATUS=leader") is True
        assert systemd.recv(100) == b"READY=1\nSTATUS=leader"

    assert notify("WATCHDOG=1") is False


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """What the coroutine says; and 78 with every mistake for a configuration that cannot be worked with."""

    async def well() -> int:
        return EXIT_OK

    async def misconfigured() -> int:
        raise ConfigErrors([ConfigProblem("node.id", "missing", ""), ConfigProblem("x", "no such key", "f:3")])

    assert run(well) == EXIT_OK
    assert run(misconfigured) == EXIT_CONFIG
    assert capsys.readouterr().err == "2 mistakes in the configuration:\n  node.id: missing\n  f:3: x: no such key\n"


def test_asserts_must_be_on() -> None:
    """An interpreter that skips asserts would skip the checks that protect the log."""
    assert refusal(debug=True) is None
    assert "python -O" in (refusal(debug=False) or "")


@pytest.mark.slow
@pytest.mark.processes
async def test_python_without_asserts_refuses() -> None:
    """The same, for real."""
    code = (
        "import sys, service_kit.process.run\nasync def main(): return 0\nsys.exit(service_kit.process.run.run(main))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-O", "-c", code, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    _, words = await process.communicate()

    assert (process.returncode, b"refusing to start under python -O" in words) == (78, True)


def test_the_clock() -> None:
    """Elapsed time never goes back; the time of day is a plausible one."""
    clock = RealClock()
    first = clock.now_ms()

    assert first <= clock.now_ms()
    assert clock.wall_ms() > 1_700_000_000_000
