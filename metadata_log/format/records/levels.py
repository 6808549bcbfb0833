"""The levels of `metadata.version`: which level each record, and each use of a field, needs.

The feature `metadata.version` of an image is the level that all nodes of the cluster understand. A controller writes no record
above the level of its image, and replay takes such a record for damage. So a cluster whose nodes are upgraded one by one writes
only what the oldest node reads, until an operator raises the level.

Example. Controllers 1 and 2 run this release, controller 3 runs release 0.1.0, which supports level 1 only.
  1. the image is at level 1; controller 1 leads, and writes no transaction, because `BeginTransaction` needs level 2;
  2. controller 3 is upgraded too, and the operator raises the level: the log has `FeatureLevel("metadata.version", 2)`;
  3. from the next record on controller 1 writes transactions.

A record type or field that is in no table below has level 1: release 0.1.0 reads it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from metadata_log.format.records.brokers import BrokerMode, BrokerRegistrationChange, RegisterBroker
from metadata_log.format.records.entities import (
    ClientSession,
    EndClientSession,
    Entity,
    EntityKind,
    RemoveEntity,
    RemoveEntityKind,
)
from metadata_log.format.records.quorum import SkippedBatch
from metadata_log.format.records.registry import FeatureRange
from metadata_log.format.records.settings import ConfigDefinition, FeatureLevel, Label, RemoveConfigDefinition
from metadata_log.format.records.topics import EpochFloor, EpochsRaised, Partition, PartitionChange, PartitionColumns
from metadata_log.format.records.transactions import AbortTransaction, BeginTransaction, EndTransaction

METADATA_VERSION: Final = "metadata.version"
"""Name of the feature whose level says which records a controller may write."""
METADATA_VERSION_MIN: Final = 1
METADATA_VERSION_MAX: Final = 3
"""The lowest and the highest level that this release supports."""
ELR_VERSION: Final = "eligible.leader.replicas.version"
"""Name of the feature whose level 1 lets controllers keep eligible leader replicas (KIP-966)."""
ELR_VERSION_MAX: Final = 1
"""The highest level that this release supports; the lowest is 0."""
ELR_METADATA_VERSION: Final = 2
"""The level of `metadata.version` that level 1 needs."""


class Feature(NamedTuple):
    """A feature whose level the cluster agrees on. `needs`: level -> the levels of other features that it needs."""

    name: str
    min_level: int
    max_level: int
    needs: Mapping[int, tuple[FeatureLevel, ...]] = MappingProxyType({})

    @property
    def range(self) -> FeatureRange:
        """The levels that this release supports, as a node registers them."""
        return FeatureRange(self.name, self.min_level, self.max_level)


FEATURES: Final[dict[str, Feature]] = {
    each.name: each
    for each in (
        Feature(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_MAX),
        Feature(
            ELR_VERSION,
            0,
            ELR_VERSION_MAX,
            MappingProxyType({1: (FeatureLevel(METADATA_VERSION, ELR_METADATA_VERSION),)}),
        ),
    )
}
"""The features of this release, by name. A feature with the lowest level 0 can be off."""

SUPPORTED: Final = tuple(feature.range for feature in FEATURES.values())
"""The features that every node of this release registers."""

RECORD_LEVELS: Final[dict[type, int]] = {
    BeginTransaction: 2,
    EndTransaction: 2,
    AbortTransaction: 2,
    BrokerMode: 2,
    PartitionColumns: 2,
    EpochFloor: 2,
    EpochsRaised: 2,
    SkippedBatch: 2,
    EntityKind: 3,
    RemoveEntityKind: 3,
    Entity: 3,
    RemoveEntity: 3,
    ClientSession: 3,
    EndClientSession: 3,
    ConfigDefinition: 3,
    RemoveConfigDefinition: 3,
    Label: 3,
}
"""Record class -> the level that every record of the class needs."""

_PARTITION_FIELDS: Final = {
    "removing_replicas": 2,
    "adding_replicas": 2,
    "directories": 2,
    "elr": 2,
    "last_known_elr": 2,
}

FIELD_LEVELS: Final[dict[type, dict[str, int]]] = {
    Partition: _PARTITION_FIELDS,
    PartitionChange: _PARTITION_FIELDS,
    RegisterBroker: {"dead": 2},
    BrokerRegistrationChange: {"dead": 2},
}
"""Record class -> field -> the level that a record needs in which the field is neither None, nor empty, nor false."""


def level_of(record: tuple[object, ...]) -> int:
    """Return the lowest level of `metadata.version` at which the record may be written."""
    kind = type(record)
    level = RECORD_LEVELS.get(kind, METADATA_VERSION_MIN)
    fields = FIELD_LEVELS.get(kind)
    if fields is not None:
        for field, needed in fields.items():
            if needed > level and getattr(record, field):
                level = needed
    return level


def level_problem(record: tuple[object, ...], level: int) -> str | None:
    """Say why the record cannot be in a log or an image at `level`; None if it can."""
    needed = level_of(record)
    if needed <= level:
        return None
    kind = type(record)
    fields = [name for name, each in FIELD_LEVELS.get(kind, {}).items() if each > level and getattr(record, name)]
    what = kind.__name__ if kind in RECORD_LEVELS else f"{kind.__name__} with {' and '.join(fields)}"
    return f"{what} needs {METADATA_VERSION} {needed}, and the cluster is at level {level}"
