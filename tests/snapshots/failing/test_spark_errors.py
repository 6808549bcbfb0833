"""A job tells a person in one line that Spark, Java or a disk has failed, with the place and the next step."""

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from snapshots.offline.commands import running, shared, spark_errors
from snapshots.offline.commands.spark_errors import reason_in
from snapshots.offline.history.storage.directory import LocalTables
from snapshots.offline.history.writer import STATE_SCHEMA, _StateWriter
from snapshots.offline.progress import Progress

STAGES = "Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, most recent failure: Lost task 0.0 (local):\n"


def line_of(error: Exception) -> str:
    with pytest.raises(shared.Failed) as failed, running.failing_in_one_line():
        raise error
    text = str(failed.value)
    assert "\n" not in text and "wrote no result" in text
    return text


@pytest.mark.parametrize(
    "text",
    [
        "java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)",
        "java.io.FileNotFoundException: /x/blockmgr-1/temp_shuffle_2 (No space left on device)\n\tat java.base/x",
        "Caused by: java.nio.file.FileSystemException: /x/a: No space left on device\n",
    ],
)
def test_a_full_scratch_directory_of_spark_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The job ended with 130 lines of Java, none of which named the directory that the operator must look at."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/mnt/scratch")
    told = line_of(PySparkException(STAGES + text))
    assert told.startswith("Spark cannot write its scratch files in /mnt/scratch: No space left on device; ")
    assert "SPARK_LOCAL_DIRS" in told and "Make room" in told
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert "scratch files in /tmp" in line_of(PySparkException(STAGES + text))


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Error while sending or receiving"),
        Py4JError("An error occurred while calling o74.getResult"),
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        PySparkException("Job 5 cancelled because SparkContext was shut down\n\tat java.base/java.lang.Thread.run"),
    ],
)
def test_a_killed_java_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A machine without memory kills the largest process. The job said `the output cannot be written: Connection refused`."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        monkeypatch.setattr(spark_errors, "_ENDING_S", 0.01)
        with pytest.raises(type(error)), running.failing_in_one_line():
            raise error
        java.kill()
        monkeypatch.setattr(spark_errors, "_ENDING_S", 10)
        assert "Java, in which Spark runs, has ended: it was killed" in line_of(error)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            PySparkException(f"{STAGES}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
            "a Python worker of Spark was killed, or has crashed",
        ),
        (PySparkException(f"{STAGES}java.lang.OutOfMemoryError: Java heap space"), "has too little memory"),
    ],
)
def test_a_killed_worker_is_one_line(error: Exception, told: str) -> None:
    assert told in line_of(error)


def test_a_full_disk_of_the_driver_says_what_to_do() -> None:
    told = line_of(OSError(errno.ENOSPC, "No space left on device", "/out/x.checkpoint.part"))
    assert told.startswith("[Errno 28] No space left on device: '/out/x.checkpoint.part'; ")
    assert told.endswith("Repair the cause, and run the command again")
    of_a_worker = line_of(PySparkException(f"{STAGES}OSError: [Errno 28] No space left on device: '/out/x'\n\nat org"))
    assert of_a_worker.endswith(
        "'/out/x'; the job stopped there, and wrote no result. Repair the cause, and run the command again"
    )


def test_a_mistake_in_the_job_keeps_its_traceback() -> None:
    assert reason_in(f"{STAGES}KeyError: 'partition'\n") is None
    with pytest.raises(Py4JError), running.failing_in_one_line():
        raise Py4JError("a mistake")


def test_py4j_logs_no_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    from py4j import java_gateway

    spark_errors.quiet_py4j()
    try:
        code = compile("logging.exception('Exception while sending command.')", java_gateway.__file__, "exec")
        exec(code, {"logging": logging})
        assert capsys.readouterr().err == ""
    finally:
        logging.root.removeFilter(spark_errors._is_not_of_py4j)


def test_progress_ends_with_java() -> None:
    """The thread that asks Spark ended with a traceback in the middle of the screen."""

    class Gone:
        @property
        def sparkContext(self) -> "Gone":  # noqa: N802
            return self

        def statusTracker(self) -> "Gone":  # noqa: N802
            raise ConnectionRefusedError

    shown: list[str] = []
    progress = Progress(shown.append)
    progress.reads(Gone(), 5)
    progress.tick()
    progress.tick()
    assert shown == []


def test_arrows_errors_get_the_place_of_the_tables(tmp_path: Path) -> None:
    tables = LocalTables(Path("/out/tables"))
    with (
        pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '/out/tables'$"),
        tables.explaining_errors(),
    ):
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
    with pytest.raises(OSError, match=r"'/other'$"), tables.explaining_errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/other")
    tables = LocalTables(tmp_path / "tables")
    with pytest.raises(OSError, match=r"\[Errno 28\] No space left on device: '.*tables'"), tables.explaining_errors():
        _write_to_a_full_disk(LocalTables(tmp_path))


def test_a_disk_that_fills_behind_the_baseline_does_not_claim_that_nothing_was_written() -> None:
    """Run 2 counts from its baseline on. The job said that it "wrote no result" if the disk refused a commit of Delta then."""
    tables = LocalTables(Path("/out/tables"))
    with (
        pytest.raises(shared.Failed) as failed,
        running.failing_in_one_line(),
        tables.explaining_errors(),
        tables.explaining_errors("Run 2 is complete"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/out/tables/growth/_delta_log")
    assert str(failed.value) == (
        "[Errno 28] No space left on device: '/out/tables/growth/_delta_log'. Run 2 is complete"
    )


def _write_to_a_full_disk(place: LocalTables) -> None:
    with _StateWriter(place, 1, 0) as state, pa.OSFile("/dev/full", "wb") as full:
        with pa.ipc.new_file(full, STATE_SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist([{"entity": "e" * 100_000}], schema=STATE_SCHEMA))
        state.finish()
