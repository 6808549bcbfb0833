"""One Spark session for all tests of the offline jobs; it takes seconds to start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    import warnings

    from snapshots.offline.java import find_java
    from snapshots.offline.session import start_session

    if find_java() is None:
        pytest.skip("no Java")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as env:
        warnings.simplefilter("ignore")
        # For a log of some hundred records the JVM's best compiler only costs time: it alone was half of the JVM's
        # work.
        env.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", prepend=" ")
        session = start_session("local[2]", shuffle_partitions=2)
        yield session
        session.stop()
