"""A Spark session for a command: with progress on stderr, and with errors in one line."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from traceback import walk_tb
from typing import TYPE_CHECKING

from metadata_log.disk.failures import FlushFailed
from metadata_log.format.errors import LogFormatError
from snapshots.offline.commands.interrupts import interruptible
from snapshots.offline.commands.shared import Failed
from snapshots.offline.commands.spark_errors import (
    DELETED,
    JAVA_ENDED,
    REPAIR,
    STOPPED,
    java_has_ended,
    quiet_py4j,
    reason_in,
)
from snapshots.offline.java import JavaNotFound, UserHasNoName
from snapshots.offline.progress import shown_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(
    master: str | None, shuffle_partitions: int, directories: Iterable[str], beside: Iterable[str] = ()
) -> "Iterator[tuple[SparkSession, Callable[[str], None]]]":
    """Start a Spark session, and a function that shows progress on stderr.

    A wrong path fails before Spark starts, which takes many seconds: `directories`, which the job reads, and those `beside` them.
    """
    from snapshots.offline.session import prepare, start_session

    try:
        with needing("spark"):
            prepare()
    except (JavaNotFound, UserHasNoName) as e:
        raise Failed(str(e)) from None
    from snapshots.offline.inputs import find_logs, records_in

    with failing_in_one_line():
        records = records_in(directories)
        find_logs(beside)
    # Progress asks Spark from a thread of its own. So progress ends first, and then Spark.
    with interruptible() as spark_has_started, ExitStack() as at_the_end, shown_progress() as step:
        step("starting Spark")
        quiet_py4j()
        with failing_to_start():
            spark = start_session(master, shuffle_partitions=shuffle_partitions)
        at_the_end.callback(_stop, spark)
        spark_has_started()
        with failing_in_one_line():
            step.reads(spark, records)
            yield spark, step


@contextmanager
def failing_to_start() -> Iterator[None]:
    """Turn the end of Java before Spark has started into one line: Java itself has written the reason to stderr."""
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except PySparkRuntimeError as e:
        if e.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise Failed("Java ended before Spark had started; the lines above say why. Nothing was done") from None


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Turn an error of the log, the disk or Spark into one line and exit code 1, even if a Spark task met it.

    Any other error is a mistake in the job, and keeps its traceback.
    """
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    from snapshots.offline.history.storage.directory import StoreRefused

    try:
        yield
    except (LogFormatError, FlushFailed, StoreRefused) as e:
        raise Failed(str(e)) from None
    except (PySparkException, Py4JJavaError) as e:
        reason = reason_in(str(e)) or (JAVA_ENDED if java_has_ended() else None)
        if reason is None:
            raise
        raise Failed(reason) from None
    except (Py4JError, ConnectionError):
        if not java_has_ended():
            raise
        raise Failed(JAVA_ENDED) from None
    except OSError as e:
        raise Failed(f"{e}; {STOPPED}. {DELETED if isinstance(e, FileNotFoundError) else REPAIR}") from None


def _stop(spark: "SparkSession") -> None:
    """Stop Spark, whose Java may have ended before."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()


@contextmanager
def needing(extra: str, otherwise: str = "") -> Iterator[None]:
    """Say what to install if a package that the job needs is missing, or cannot be loaded; and what works without it."""
    try:
        yield
    except ModuleNotFoundError as e:
        raise Failed(
            f"the package {e.name} is missing; install it from a checkout: pip install '.[{extra}]'{otherwise}"
        ) from None
    except ImportError as e:  # for example, the package is for another Python, or a library of the system is missing
        reason = " ".join(str(e).split())
        raise Failed(
            f"the package {_not_loaded(e)} cannot be loaded: {reason}; nothing was done; install it anew from a checkout: "
            f"pip install --force-reinstall '.[{extra}]'"
        ) from None


def _not_loaded(error: ImportError) -> str:
    """Return the module that raised `error`, or that lacks a name. For a library `pyarrow.lib` the error's own name is "lib"."""
    if error.name in sys.modules:
        return error.name
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals["__name__"])
