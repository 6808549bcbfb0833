"""All targets by name."""

from collections.abc import Mapping
from functools import cache

from tests.fuzz import disk_targets, network_targets
from tests.fuzz.target import Target


@cache
def targets() -> Mapping[str, Target]:
    """In the order of the report."""
    return {target.name: target for target in (*disk_targets.TARGETS, *network_targets.TARGETS)}
