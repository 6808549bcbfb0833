"""All targets by name."""

from collections.abc import Mapping
from functools import cache

from tests.fuzz import (
    archive_targets,
    client_targets,
    disk_targets,
    kafka_targets,
    network_targets,
    offline_targets,
    replica_targets,
)
from tests.fuzz.target import Target


@cache
def targets() -> Mapping[str, Target]:
    """In the order of the report."""
    every = (
        *disk_targets.TARGETS,
        *archive_targets.TARGETS,
        *kafka_targets.TARGETS,
        *offline_targets.TARGETS,
        *replica_targets.TARGETS,
        *network_targets.TARGETS,
        *client_targets.TARGETS,
    )
    return {target.name: target for target in every}
