"""Commands that alter configs of topics and brokers (Kafka's IncrementalAlterConfigs), and that define keys; their replies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import Config, ConfigDefinition
from quorum.controller.protocol.pieces import Piece
from quorum.controller.protocol.replies import NOT_APPENDED


class ConfigOperationKind(Enum):
    """The kinds of operations on one key. APPEND and SUBTRACT are for values that are lists."""

    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    SUBTRACT = "subtract"


@dataclass(frozen=True, slots=True)
class ConfigOperation:
    kind: ConfigOperationKind
    key: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Operations on one resource, done together or not at all. The types are `records.TOPIC_RESOURCE` and `BROKER_RESOURCE`."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    alterations: tuple[ConfigAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContinueConfigs:
    """Decide the next slice of a large AlterConfigs."""

    command: AlterConfigs = field(repr=False)
    repeated: frozenset[tuple[int, str]]
    """The resources that the request names more than once."""
    results: tuple[ConfigResult, ...] = field(default=(), repr=False)
    """The results of the resources that are decided: the first of the request."""
    changed: tuple[Config, ...] = field(default=(), repr=False)
    """The changes that are decided."""
    clearing: Iterator[Piece] | None = field(default=None, repr=False)
    """The pieces that clear eligible leader replicas and are not decided yet; None: there are resources to decide first."""


@dataclass(frozen=True, slots=True)
class AlterConfigsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[ConfigResult, ...] = ()


# --- config keys -------------------------------------------------------------------------------------------------------


class SeenConfigs:
    """The configs in which no value stands against new definitions: those of resources, and whole shards of the map.

    An image is immutable, so configs without a change are the same object (`quorum.controller.features.losses` searches so, too).
    The references keep the identities from being used again.
    """

    __slots__ = ("definitions", "resources", "shards")

    def __init__(self, definitions: object) -> None:
        self.definitions = definitions
        """The definitions of the image. If they change, what was seen counts no more."""
        self.resources: dict[int, Mapping[str, str]] = {}
        self.shards: dict[int, Mapping[tuple[int, str], Mapping[str, str]]] = {}


@dataclass(frozen=True, slots=True)
class AlterConfigKeys:
    """Define config keys, and remove definitions: all of it, or nothing."""

    definitions: tuple[ConfigDefinition, ...] = ()
    """New definitions, and definitions that replace the one with the same resource type and name."""
    removals: tuple[tuple[int, str], ...] = ()
    """Resource types and names of definitions."""
    validate_only: bool = False
    seen: SeenConfigs | None = field(default=None, repr=False, compare=False)
    """What the earlier turns have seen of a search that takes several turns."""


@dataclass(frozen=True, slots=True)
class AlterConfigKeysReply:
    offset: Offset = NOT_APPENDED
