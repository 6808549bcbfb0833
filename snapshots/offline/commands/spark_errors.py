"""The reason in an error of Spark, for a person.

Spark wraps the error of a task into tracebacks of the worker and of the JVM, 130 lines. Example: `/mnt/scratch` is full. The line
that counts is in the middle, `java.io.IOException: No space left on device`, and it does not name the directory.
"""

import errno
import logging
import os
import re
from subprocess import TimeoutExpired
from typing import Final

from metadata_log.disk.failures import FlushFailed

_ENDING_S: Final = 2
"""A process that is killed closes its connections a moment before it has ended."""
STOPPED: Final = "the job stopped there, and wrote no result"
REPAIR: Final = "Repair the cause, and run the command again"
DELETED: Final = "If a node runs there, it has deleted a file that it does not need any more: run the command again"
JAVA_ENDED: Final = (
    "Java, in which Spark runs, has ended: it was killed, or the machine has too little memory, or lines above say why; "
    f"{STOPPED}. Run the command again"
)
_WORKER_DIED: Final = (
    f"a Python worker of Spark was killed, or has crashed; the machine may have too little memory; {STOPPED}. Run the command "
    "again, perhaps with fewer tasks at once: --master 'local[1]'"
)
_TOO_LITTLE_MEMORY: Final = (
    f"Java, in which Spark runs, has too little memory; {STOPPED}. Give it more, for example with the environment variable "
    "PYSPARK_SUBMIT_ARGS='--driver-memory 4g pyspark-shell'"
)
_LOG_ERROR: Final = r"(?:metadata_log|snapshots)(?:\.\w+)+"
"""An error that the project has defined: of the log, such as `metadata_log.image.delta.InvalidRecord`."""
_DISK_ERRORS: Final = (
    rf"(?:{re.escape(FlushFailed.__module__)}\.)?(?:FlushFailed|Removed|OSError|\w+Error(?=: \[Errno ))"
)
"""The names of the disk's errors in a traceback. The number of the operating system marks an OSError of another name."""
_STORE_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?StoreRefused: (?P<reason>.+)$", re.MULTILINE)
"""The text of an error of an object store says already whether anything was changed."""
_WORKERS_ERROR: Final = re.compile(rf"^(?:{_DISK_ERRORS}|(?P<log>{_LOG_ERROR})): (?P<reason>.+)$", re.MULTILINE)
_MISSING: Final = f"[Errno {errno.ENOENT}]"
_JAVAS_DISK: Final = re.compile(
    r"\bjava\.(?:io|nio\.file)\.\w+: [^\n]*?(?P<reason>No space left on device|Disk quota exceeded|Read-only file system|"
    r"Permission denied|Input/output error|Too many open files|File too large)"
)


def reason_in(text: str) -> str | None:
    """Return the reason in the text of Spark's error, and what to do; None if it is a mistake in the job."""
    found = _STORE_ERROR.search(text)
    if found is not None:
        return found["reason"]
    found = _WORKERS_ERROR.search(text)
    if found is not None:
        is_missing = found["reason"].startswith(_MISSING)
        repair = "" if found["log"] else f". {DELETED if is_missing else REPAIR}"
        return f"{found['reason']}; {STOPPED}{repair}"
    if "java.lang.OutOfMemoryError" in text:
        return _TOO_LITTLE_MEMORY
    if "Python worker exited unexpectedly" in text:
        return _WORKER_DIED
    found = _JAVAS_DISK.search(text)
    if found is None:
        return None
    return (
        f"Spark cannot write its scratch files in {scratch()}: {found['reason']}; {STOPPED}. Make room there, or name another "
        "directory in the environment variable SPARK_LOCAL_DIRS, and run the command again"
    )


def quiet_py4j() -> None:
    """Let Py4J log no tracebacks: each of its errors comes to the job as well, which says it in one line."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.root.addFilter(_is_not_of_py4j)  # some of its calls use the root logger; a filter there sees no others


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def java_has_ended() -> bool:
    """Return True if the Java that this process has started for Spark has ended, or ends now."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(_ENDING_S)
    except TimeoutExpired:
        return False
    return True


def scratch() -> str:
    """Return the directories of Spark's scratch files."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    configured = None if context is None else context.getConf().get("spark.local.dir")
    return os.environ.get("SPARK_LOCAL_DIRS") or configured or "/tmp"
