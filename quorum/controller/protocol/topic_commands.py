"""The commands that create, enlarge and delete topics, and their replies."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID, NodeId, Offset, Uuid
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.pieces import Piece
from quorum.controller.protocol.replies import NOT_APPENDED

DEFAULT_COUNT: Final = -1
"""Number of partitions or replicas that stands for the controller's default, or for the number in the assignment."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `assignment` names the replicas of each partition, the preferred leader first. Empty: the controller places the replicas.
    With an assignment, each count is DEFAULT_COUNT or agrees with the assignment.
    """

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignment: tuple[tuple[NodeId, ...], ...] = ()
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics. The topics without an error are one atomic batch. With `validate_only` nothing is written."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic of a request. `message` is for people. The other fields are set if `error` is NONE, or if it is
    TOPIC_ALREADY_EXISTS: then they describe the existing topic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopicsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[TopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Let a topic have `total_count` partitions, more than it has. `assignment` is for the new partitions."""

    name: str
    total_count: int
    assignment: tuple[tuple[NodeId, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitionsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[TopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[TopicResult, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ContinueTopics:
    """Decide the next slice of a large request about topics."""

    command: CreateTopics | CreatePartitions | DeleteTopics
    before: MetadataImage = field(repr=False)
    """The image before the request."""
    pieces: Iterator[Piece] = field(repr=False)
    """The pieces that are not decided yet."""
    results: list[TopicResult] = field(repr=False)
    """The results of the topics that are decided."""
