"""metaquorum's front door: everything that a program outside this house may import, and nothing else.

    import asyncio
    from metaquorum import AdminClient

    async def main() -> None:
        async with AdminClient(["127.0.0.1:9001"]) as client:
            await client.create_topic("orders", partitions=12, replication_factor=3)

    asyncio.run(main())

This package only re-exports. No server imports it: a server imports the room that has the thing. A name that is not in
`__all__` may change with any release.
"""

from clients.admin import AdminClient
from clients.errors import AdminError, MayHaveHappened, NoLeader, NotReached, Unanswered
from clients.metadata.client_metadata import (
    ClientMetadata,
    MetadataRequestPlan,
    MetadataUpdate,
    TopicUpdate,
    WaitOnMetadata,
)
from clients.metadata.cluster import Cluster, ClusterNode, PartitionView, TopicPartition
from clients.submit_stream import SubmitStream
from metadata_log.format.errors import ErrorCode
from service_kit.process.release import release

__all__ = [
    "AdminClient",
    "AdminError",
    "ClientMetadata",
    "Cluster",
    "ClusterNode",
    "ErrorCode",
    "MayHaveHappened",
    "MetadataRequestPlan",
    "MetadataUpdate",
    "NoLeader",
    "NotReached",
    "PartitionView",
    "SubmitStream",
    "TopicPartition",
    "TopicUpdate",
    "Unanswered",
    "WaitOnMetadata",
    "__version__",
]

__version__ = release()
"""The version of the installed package, as pip knows it."""
