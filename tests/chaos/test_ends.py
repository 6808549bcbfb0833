"""The ends of a daemon that are findings."""

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service_kit.process.run import EXIT_FAILURE, EXIT_OK
from tests.chaos import cluster as clusters
from tests.chaos.cluster import ENDED_AT_ONCE, Daemon, Ended
from tests.chaos.launch import NO_MUTANT


class Process:
    """Runs until it has a code."""

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: signal.Signals) -> None:
        pass


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def daemon(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    node: Any = SimpleNamespace(
        name="controller-1", role="controller", config_path=tmp_path / "c", log_path=tmp_path / "log"
    )
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    monkeypatch.setattr(clusters, "order", lambda *_, **__: True)
    started = Daemon(node, tmp_path, NO_MUTANT)
    started.start({})
    return started


def ended(daemon: Daemon, process: Process, code: int) -> Ended | None:
    process.code = code
    return daemon.reaped()


def test_a_kill_that_nobody_has_ordered_is_a_finding(daemon: Daemon, process: Process) -> None:
    """The kernel kills with the same signal whoever takes all its memory: that is no fault of the nemesis's."""
    assert daemon.order(fault="slow_fsync")
    found = ended(daemon, process, -signal.SIGKILL)
    assert found is not None
    assert "controller-1 ended with -9" in str(found)


def test_a_kill_of_ours_is_none(daemon: Daemon, process: Process) -> None:
    daemon.send(signal.SIGKILL)
    assert ended(daemon, process, -signal.SIGKILL) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_by_the_signal_that_was_sent_is_none(daemon: Daemon, process: Process, number: signal.Signals) -> None:
    """A SIGTERM that meets an interpreter before it has a handler, or without one any more, ends it by the signal."""
    daemon.send(number)
    assert ended(daemon, process, -number) is None


def test_an_end_by_another_signal_than_was_sent_is_a_finding(daemon: Daemon, process: Process) -> None:
    """A daemon that was asked to stop, and was killed by the kernel, was not killed by the nemesis."""
    daemon.send(signal.SIGTERM)
    assert ended(daemon, process, -signal.SIGKILL) is not None


def test_a_second_sigterm_ends_a_daemon_at_once(daemon: Daemon, process: Process) -> None:
    """Two faults of one round may stop the same daemon; after a single SIGTERM the same code is a finding."""
    daemon.send(signal.SIGTERM)
    assert ended(daemon, process, ENDED_AT_ONCE) is not None
    process.code = None
    daemon.start({})
    daemon.send(signal.SIGTERM)
    daemon.send(signal.SIGTERM)
    assert ended(daemon, process, ENDED_AT_ONCE) is None


def test_a_kill_makes_nobody_leave_in_order(daemon: Daemon, process: Process) -> None:
    """Nobody has asked this daemon to stop: that it stopped all the same just before the kill is its own doing."""
    daemon.send(signal.SIGKILL)
    assert ended(daemon, process, EXIT_OK) is not None


def test_a_signal_is_for_one_life(daemon: Daemon, process: Process) -> None:
    daemon.send(signal.SIGTERM)
    daemon.start({})
    assert ended(daemon, process, -signal.SIGTERM) is not None


def test_a_death_in_a_disk_call_is_none_if_it_was_ordered(daemon: Daemon, process: Process) -> None:
    """Also if the daemon died before it could say that it had heard: the order is what counts."""
    daemon.order(fault="kill_at", call="fsync", nth=1)
    assert ended(daemon, process, -signal.SIGKILL) is None


def test_an_order_is_for_one_life(daemon: Daemon, process: Process) -> None:
    daemon.order(fault="kill_at", call="fsync", nth=1)
    daemon.start({})
    assert ended(daemon, process, -signal.SIGKILL) is not None


@pytest.mark.parametrize("code", [EXIT_OK, EXIT_FAILURE, 78, -signal.SIGSEGV])
def test_no_other_end_is_excused_by_an_order_to_die(daemon: Daemon, process: Process, code: int) -> None:
    daemon.order(fault="kill_at", call="fsync", nth=1)
    assert ended(daemon, process, code) is not None


def test_who_may_give_up_and_who_may_stop(daemon: Daemon, process: Process) -> None:
    daemon.may_give_up = True
    assert ended(daemon, process, EXIT_FAILURE) is None
    process.code = None
    daemon.start({})
    daemon.send(signal.SIGTERM)
    assert ended(daemon, process, EXIT_OK) is None
