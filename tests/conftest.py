"""What all tests share. Skips are printed with their reasons (`-ra` in pyproject)."""

import os
import random

import pytest
from hypothesis import settings

# Spark starts its JVM by fork and exec. With a gRPC server or channel of some earlier test still alive in this process, gRPC's
# own fork handler aborts the child before it execs; a child that execs needs none. Before the first import of grpc.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# How long an example takes says how busy the machine is, and nothing about the code: no law may hang on it.
settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Dice that fall the same way in each run of the same test: the seed is the test's name."""
    return random.Random(request.node.nodeid)
