"""The part of a simulated client that raises and lowers levels of features, whatever else happens."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import ELR_VERSION, METADATA_VERSION
from quorum.controller.protocol.commands import Command
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpdateFeaturesReply, UpgradeType
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Answer

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

DRY_RUN_CHANCE = 0.1


class Upgrading:
    """Asks for levels, up and down."""

    def __init__(
        self, cluster: "Cluster", name: str, submit: Callable[[Command, Callable[[Answer, Offset], None]], None]
    ):
        self._cluster = cluster
        self._dice = random.Random(f"{cluster.seed} {name} upgrades")
        self._submit = submit

    def is_due(self) -> bool:
        return self._dice.random() < self._cluster.options.feature_change_chance

    def act(self) -> None:
        """To one of the two levels, which the cluster may have already, or may not have yet."""
        laws, coverage = self._cluster.laws.clients, self._cluster.coverage
        name, levels = METADATA_VERSION, (1, 2)
        if self._cluster.options.keeps_elr and self._dice.random() < 0.5:
            name, levels = ELR_VERSION, (0, 1)
        level = self._dice.choice(levels)
        kind = UpgradeType.UPGRADE if level == max(levels) else UpgradeType.SAFE_DOWNGRADE
        command = UpdateFeatures((FeatureUpdate(name, level, kind),), self._dice.random() < DRY_RUN_CHANCE)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, Refused):
                coverage["feature level not supported by all"] += answer.code is ErrorCode.INVALID_UPDATE_VERSION
                coverage["downgrade would lose something"] += answer.code is ErrorCode.FEATURE_UPDATE_FAILED
            else:
                assert isinstance(answer, UpdateFeaturesReply)
                laws.answered(answer.offset, floor)

        self._submit(command, answered)
