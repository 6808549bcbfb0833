"""What all tests share. Skips are printed with their reasons (`-ra` in pyproject)."""

import os
import random

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Spark starts its JVM by fork and exec. With a gRPC server or channel of some earlier test still alive in this process, gRPC's
# own fork handler aborts the child before it execs; a child that execs needs none. Before the first import of grpc.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# The tests start hundreds of daemons and commands. An environment may forbid Python to keep compiled modules, as those of
# containers often do. Then each daemon compiles the whole project at its start, which is a third of the CPU time of the start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# For a log of some hundred records the best compiler of Java only costs time: a third of the CPU time of a job. Spark's launcher
# reads this variable for each Java that a job starts, and prints nothing about it. Without the best compiler, Java keeps 48 MB of
# compiled code only. The session of all tests needs more, and compiled the same code again and again.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m")

# How long an example takes says how busy the machine is, and nothing about the code: no law may hang on it.
settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """`make test` runs two files at a time: mostly one whose tests wait for their daemons, and one that computes.

    Clusters of daemons come one after another, as they are slow enough; and all of Spark's tests share its session.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith(("tests/processes/", "tests/chaos/")):
            return "clusters"
        return "snapshots" if file.startswith("tests/snapshots/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Dice that fall the same way in each run of the same test: the seed is the test's name."""
    return random.Random(request.node.nodeid)
