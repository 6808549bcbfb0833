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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_session("local[2]", shuffle_partitions=2)
        yield session
        session.stop()
