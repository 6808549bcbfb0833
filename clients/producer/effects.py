"""The effects of a producer's decisions: what the owner of a `ProducerCore` carries out.

| effect | the owner |
|---|---|
| `SendAppend` | sends the request, and reports its end with `answered` or `failed` |
| `AskProducerId` | asks any broker, and reports the end with `id_allocated` or `id_refused` |
| `NoteStale` | calls `note_stale` of the metadata |
| `NoteLeaderEpoch` | calls `note_leader_epoch` of the metadata |
| `Delivered`, `NotDelivered` | tells the callers of the records |
"""

from typing import NamedTuple, TypeAlias

from clients.metadata.cluster import TopicPartition
from clients.partition_values import AppendRequest
from clients.producer.errors import SendError
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, Uuid


class SendAppend(NamedTuple):
    """Send `request` to a broker, and give up after `timeout_ms`."""

    number: int
    node_id: NodeId
    request: AppendRequest
    timeout_ms: int


class AskProducerId(NamedTuple):
    """Ask any broker for a producer id, and give up after `timeout_ms`."""

    timeout_ms: int


class NoteStale(NamedTuple):
    """The metadata may be stale. `node_id` None: no broker is concerned."""

    code: ErrorCode
    node_id: NodeId | None


class NoteLeaderEpoch(NamedTuple):
    """A broker has named a leader epoch of a partition."""

    key: TopicPartition
    leader_epoch: Epoch
    topic_id: Uuid | None


class Delivered(NamedTuple):
    """Records are as durable as `acks` says. The record at place i has the offset `base_offset` + i; None: not known."""

    key: TopicPartition
    base_offset: Offset | None
    tokens: list[object]
    timestamps: list[int]


class NotDelivered(NamedTuple):
    """Records have failed. `error` says whether they may have been written."""

    key: TopicPartition
    error: SendError
    tokens: list[object]


ProducerEffect: TypeAlias = SendAppend | AskProducerId | NoteStale | NoteLeaderEpoch | Delivered | NotDelivered
ProducerEffects: TypeAlias = list[ProducerEffect]
