"""The commands that finalize the levels of features, and raise and lower them (Kafka's UpdateFeatures, KIP-584)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, ReplicaKey, Uuid
from metadata_log.format.records import METADATA_VERSION_MAX
from metadata_log.image.topic_image import TopicImage
from quorum.controller.protocol.pieces import Piece
from quorum.controller.protocol.replies import NOT_APPENDED


class UpgradeType(Enum):
    """The direction that the operator allows, with Kafka's numbers. A request that names the other direction is refused."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Refused if anything in the metadata needs the present level."""
    UNSAFE_DOWNGRADE = 3
    """Loses what needs the present level. No release supports this."""


class FeatureUpdate(NamedTuple):
    """The wanted level of one feature. 0 turns the feature off."""

    name: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureResult:
    """One feature after the update. The whole request fails if any update fails, so `error` is NONE."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    level: int = 0


class LookedAt:
    """The parts of an image in which nothing needs the present levels: topics, and whole shards of the map of topics."""

    __slots__ = ("chunks", "partly", "shards", "topics")

    def __init__(self) -> None:
        self.partly: TopicImage | None = None
        """A large topic of which only the first `chunks` chunks of partitions were looked at."""
        self.chunks = 0
        self.topics: dict[Uuid, TopicImage] = {}
        self.shards: dict[int, Mapping[Uuid, TopicImage]] = {}
        """By identity. The reference keeps the identity from being used again."""


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Raise or lower the levels of these features, all together."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
    voters: tuple[ReplicaKey, ...] = ()
    """The present voters. The node that leads fills them in: the image does not know them."""
    looked_at: LookedAt | None = field(default=None, repr=False, compare=False)
    """For a downgrade that takes several turns: what the earlier turns have looked at."""
    clearing: Iterator[Piece] | None = field(default=None, repr=False, compare=False)
    """For the end of eligible leader replicas: the pieces that are not decided yet. Nothing would be lost."""


@dataclass(frozen=True, slots=True)
class UpdateFeaturesReply:
    """The results are in the order of the updates in the request."""

    offset: Offset = NOT_APPENDED
    results: tuple[FeatureResult, ...] = ()


@dataclass(frozen=True, slots=True)
class BootstrapFeatures:
    """Finalize the features of a new cluster; nothing if they are finalized already. The first active controller decides this."""

    metadata_version: int = METADATA_VERSION_MAX
    elr_version: int = 0
    """The level of the feature `eligible.leader.replicas.version`."""


@dataclass(frozen=True, slots=True)
class BootstrapFeaturesReply:
    offset: Offset = NOT_APPENDED
