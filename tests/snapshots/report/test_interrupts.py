"""Ctrl-C in a job with Spark: one line, exit code 1, and no process that stays behind."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from snapshots.offline.commands import shared
from snapshots.offline.commands.interrupts import interruptible
from tests.snapshots.nodes import Node


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_while_spark_starts_ctrl_c_waits_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    """Java would stay behind if Python ended now."""
    told = []
    with pytest.raises(shared.Failed, match="interrupted"), interruptible() as spark_has_started:
        press_ctrl_c()
        told.append(capfd.readouterr().err)
        spark_has_started()
        told.append("the job went on")
    assert told == ["quorum-offline: interrupted; the job ends as soon as Spark has started\n"]


def test_the_second_ctrl_c_waits_for_nothing() -> None:
    reached = []
    with pytest.raises(shared.Failed, match="interrupted"), interruptible():
        press_ctrl_c()
        reached.append(1)
        press_ctrl_c()
        reached.append(2)
    assert reached == [1]


@pytest.mark.parametrize("becomes", [KeyboardInterrupt, RuntimeError])
def test_while_spark_works_ctrl_c_ends_the_job_in_one_line(becomes: type[BaseException]) -> None:
    """An interrupted request to Java may come back as another error; Py4J logs nothing of it. The old handler comes back."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(shared.Failed, match="no half result was written"), interruptible() as spark_has_started:
        spark_has_started()
        try:
            press_ctrl_c()
        except KeyboardInterrupt:
            assert not logging.getLogger().isEnabledFor(logging.CRITICAL)
            raise becomes from None
    assert signal.getsignal(signal.SIGINT) == before
    assert logging.getLogger().isEnabledFor(logging.CRITICAL)


def test_an_error_without_ctrl_c_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), interruptible() as spark_has_started:
        spark_has_started()
        raise ZeroDivisionError


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("stage", ["starting Spark", "reading every batch"])
def test_an_interrupted_audit_leaves_nothing(tmp_path: Path, stage: str) -> None:
    """A real one. Java ends with it: the pipe of stderr, which Java has inherited, has an end."""
    node = Node(tmp_path / "node", 58).live(3)
    report = tmp_path / "page.html"
    command = [sys.executable, "-m", "snapshots.offline", "audit", str(node.path), "--report", str(report)]
    with subprocess.Popen([*command, "--master", "local[1]"], stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        lines = iter(job.stderr.readline, "")
        assert next(line for line in lines if stage in line)
        job.send_signal(signal.SIGINT)
        told = [line for line in lines if not line.startswith(("quorum-offline: ", "WARNING: ", "NOTE: "))]
    assert (job.returncode, len(told)) == (shared.EXIT_FAILED, 1), told
    assert told[0].startswith("Error: interrupted")
    assert not report.exists()
