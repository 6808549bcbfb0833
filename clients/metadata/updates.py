"""Requests and answers of a client's metadata, as values."""

from typing import NamedTuple

from clients.metadata.cluster import ClusterNode, PartitionView
from clients.metadata.seen import ViewVersion
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Uuid


class TopicUpdate(NamedTuple):
    """One topic in an answer."""

    name: str
    topic_id: Uuid | None
    partitions: tuple[PartitionView, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    is_internal: bool = False
    as_of: ViewVersion | None = None
    """The version of the page with this topic, if it differs from the version of the answer."""


class MetadataUpdate(NamedTuple):
    """An answer to a metadata request."""

    cluster_id: str | None
    nodes: tuple[ClusterNode, ...]
    topics: tuple[TopicUpdate, ...]
    controller_id: NodeId | None = None
    as_of: ViewVersion | None = None
    """The version of the answer, None if the answer has none. The version shows which of two topic ids is newer."""


class MetadataRequestPlan(NamedTuple):
    """The request to send now. Pass it to `update` together with the answer."""

    topics: tuple[str, ...]
    request_version: int
    is_partial: bool
    all_topics: bool = False
    """True: the request is for all topics of the cluster, and `topics` is empty."""
