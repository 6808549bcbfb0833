"""The Spark session of the jobs: local unless told otherwise, quiet, in UTC.

Three settings are necessary:
  * workers must use the driver's Python, or they run `python3` from the PATH, which may lack Arrow. Under `spark-submit`
    the operator chooses it, with PYSPARK_PYTHON or `spark.pyspark.python`;
  * filter pushdown for Python sources must be switched on;
  * a source checkout that is not installed must be on the workers' PYTHONPATH too.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from snapshots.offline.java import is_submitted, require_java, require_user_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT_ROOT = Path(__file__).resolve().parents[2]

LOGGING_FILE = Path(__file__).with_name("log4j2.properties")


def prepare() -> None:
    """Find all that a session needs, so that its start does not fail for the lack of something.

    Raises:
        JavaNotFound: no Java was found; the text says what to install.
        UserHasNoName: Java cannot find the name of the user.
        ImportError: a package is missing, or cannot be loaded.
    """
    importlib.import_module("pyspark.sql")
    importlib.import_module("snapshots.offline.datasource")
    require_java()
    if not is_submitted():
        require_user_name()


def start_session(
    master: str | None = None, *, app_name: str = "metaquorum offline", shuffle_partitions: int | None = None
) -> "SparkSession":
    """Start a session with the `metadata_log` data source. `master` None: the master of spark-submit, else `local[*]`.

    Raises:
        JavaNotFound: no Java was found; the text says what to install.
    """
    require_java()
    python_path = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
    submitted = is_submitted()
    if not submitted:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from snapshots.offline.datasource import MetadataLogSource

    is_local = (master or "local").startswith("local") and not submitted
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        **({"spark.driver.host": "127.0.0.1"} if is_local else {}),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING_FILE}",
    }
    if master is not None or not submitted:
        settings["spark.master"] = master or "local[*]"
    if shuffle_partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    if submitted:
        settings = {key: value for key, value in settings.items() if not key.startswith("spark.driver")}
    with _callers_interrupts():
        SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _register(spark, MetadataLogSource)
    return spark


@contextmanager
def _callers_interrupts() -> Iterator[None]:
    """Keep the caller's own handler of Ctrl-C, which a starting Spark replaces."""
    callers = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread() and callers not in (None, signal.default_int_handler):
        signal.signal(signal.SIGINT, callers)


def _register(spark: "SparkSession", source: type) -> None:
    """Register the data source. Spark finds the one of an installed package by itself, and some releases refuse it twice."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as e:
        if e.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
