"""The front door of metaquorum: everything that a program of yours may import.

    import asyncio
    from metaquorum import AdminClient

    async def main() -> None:
        async with AdminClient(["127.0.0.1:9001"]) as client:
            await client.create_topic("orders", partitions=12, replication_factor=3)

    asyncio.run(main())

This package only re-exports. `quorumctl`, the tests and the examples import from here too; a server imports the room that has
the thing. A name that is not in `__all__` may change with any release.
"""

from quorum_rpc.v1 import admin_pb2

from clients.admin import AdminClient
from clients.errors import AdminError, Incomplete, MayHaveHappened, MetadataError, NoLeader, NotReached, Unanswered
from clients.metadata.client_metadata import ClientMetadata, NotThere
from clients.metadata.cluster import (
    Cluster,
    ClusterNode,
    ClusterResource,
    PartitionNodes,
    PartitionView,
    TopicPartition,
    least_loaded_node,
)
from clients.metadata.refresher import ClientConfig
from clients.metadata.seen import ViewVersion
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate, TopicUpdate
from clients.metadata.waiting import Waited, WaitOnMetadata
from clients.metadata_client import MetadataClient
from clients.submit_stream import SubmitStream
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from service_kit.process.release import release
from service_kit.rpc.dial import Dialer
from service_kit.security.tls import TlsFiles

__all__ = [
    "BROKER_RESOURCE",
    "TOPIC_RESOURCE",
    "AdminClient",
    "AdminError",
    "ClientConfig",
    "ClientMetadata",
    "Cluster",
    "ClusterNode",
    "ClusterResource",
    "Dialer",
    "ErrorCode",
    "Incomplete",
    "MayHaveHappened",
    "MetadataClient",
    "MetadataError",
    "MetadataRequestPlan",
    "MetadataUpdate",
    "NoLeader",
    "NotReached",
    "NotThere",
    "PartitionNodes",
    "PartitionView",
    "SubmitStream",
    "TlsFiles",
    "TopicPartition",
    "TopicUpdate",
    "Unanswered",
    "ViewVersion",
    "WaitOnMetadata",
    "Waited",
    "__version__",
    "admin_pb2",
    "least_loaded_node",
]

__version__: str


def __getattr__(name: str) -> object:
    """The version of the installed package, as pip knows it: read on demand, because reading it takes 10 ms."""
    if name == "__version__":
        return release()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
