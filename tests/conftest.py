"""What all tests share. Skips are printed with their reasons (`-ra` in pyproject)."""

import random

import pytest


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Dice that fall the same way in each run of the same test: the seed is the test's name."""
    return random.Random(request.node.nodeid)
