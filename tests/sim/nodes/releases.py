"""The release of a simulated node: an old release supports `metadata.version` 1 only, until somebody upgrades the node."""

import random
from typing import TYPE_CHECKING, Final

from metadata_log.format.records import METADATA_VERSION, SUPPORTED, FeatureRange

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

OLD: Final = (FeatureRange(METADATA_VERSION, 1, 1),)
UPGRADE_CHANCE: Final = 0.4
"""How often a restart is an upgrade."""


class Release:
    """The release of one node. The code is the newest in any case: an old node only says that it supports less."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self._cluster = cluster
        self._dice = random.Random(f"{cluster.seed} {name} release")
        self._is_old = self._dice.random() < cluster.options.old_release_chance

    def supported(self) -> tuple[FeatureRange, ...]:
        """The levels that the node registers. A level that the cluster has is no secret: the node is upgraded at once."""
        if self._is_old and self._cluster.laws.history.image.metadata_version > 1:
            self._upgrade()
        return OLD if self._is_old else SUPPORTED

    def was_overtaken(self) -> bool:
        """True if the node is of an old release, and the cluster needs a newer one. Then the node is upgraded."""
        is_overtaken = self._is_old and self._cluster.laws.history.image.metadata_version > 1
        if is_overtaken:
            self._upgrade()
        return is_overtaken

    def restarted(self) -> None:
        """A restart may be an upgrade."""
        if self._is_old and self._dice.random() < UPGRADE_CHANCE:
            self._upgrade()

    def _upgrade(self) -> None:
        self._is_old = False
        self._cluster.coverage["node upgraded"] += 1
