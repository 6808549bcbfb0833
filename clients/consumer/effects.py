"""The work that a `ConsumerCore` gives to its owner. The requests are values of `clients.partition_values`.

    1. The core wants orders-0 from offset 10: `Fetch` with number 4, for broker 1. The owner sends it, and reports the end.
    2. Broker 1 leads no more. Its answer names broker 2: `SawEpoch` and `Stale` are for the metadata client.
    3. The program seeks while a fetch is parked: `Cancel`. Another fetch follows at once.

All requests are reads, so a lost answer and a dropped request do no harm.
"""

from dataclasses import dataclass
from typing import TypeAlias

from clients.metadata.cluster import ClusterNode, TopicPartition
from clients.partition_values import EpochQuestion, FetchRequest, OffsetQuestion
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Uuid


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks one leader for records of many partitions."""

    number: int
    node: ClusterNode
    request: FetchRequest


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """Asks one leader for offsets."""

    number: int
    node: ClusterNode
    questions: tuple[OffsetQuestion, ...]


@dataclass(frozen=True, slots=True)
class AskEpochs:
    """Asks one leader for the ends of leader epochs."""

    number: int
    node: ClusterNode
    questions: tuple[EpochQuestion, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for the request with this number any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Stale:
    """The metadata may be old: the error of a request, as for `MetadataClient.note_stale`."""

    code: ErrorCode
    node_id: NodeId | None = None


@dataclass(frozen=True, slots=True)
class SawEpoch:
    """An answer has named this leader epoch, as for `MetadataClient.note_leader_epoch`."""

    partition: TopicPartition
    topic_id: Uuid
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Warn:
    """Tells people what the consumer has decided by itself."""

    message: str


Effect: TypeAlias = Fetch | AskOffsets | AskEpochs | Cancel | Stale | SawEpoch | Warn
