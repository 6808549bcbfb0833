"""The command that alters configs of topics and brokers, and its reply (Kafka's IncrementalAlterConfigs)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import Config
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
