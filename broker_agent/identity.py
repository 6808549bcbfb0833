"""The identity of one broker process, and the requests that it sends under this identity.

The session decides when to ask and what; each request also says who asks. Example: broker 101 of cluster C fetches.

    1. The session returns `Fetch`, with position, broker epoch and number of the fetch. The session knows no cluster.
    2. `fetch_request` adds cluster id, broker id, incarnation, generation, and the log directories that have failed.
    3. A controller of another cluster, or of an older generation of this one, refuses the fetch by these fields.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from quorum_rpc.v1 import broker_pb2, common_pb2

from broker_agent import convert
from broker_agent.session.isr_proposals import IsrProposal
from broker_agent.session.lifecycle import DownloadSnapshot, FetchRequest, Register
from broker_agent.session.replica_directories import Assignment
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.records import EXTERNAL_DATA_PLANE, Endpoint, FeatureRange


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The registration of this process, as the controllers will record it."""

    cluster_id: str
    broker_id: NodeId
    incarnation: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    generation: int = 1
    data_plane: str = EXTERNAL_DATA_PLANE
    """With NO_DATA_PLANE the agent itself proposes ISRs for the partitions that this broker leads."""

    def register_request(self, effect: Register, online: tuple[Uuid, ...]) -> broker_pb2.RegisterBrokerRequest:
        """`online` are the log directories that have not failed; if none is left, the request names all of them."""
        return convert.register_request(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            endpoints=self.endpoints,
            features=self.features,
            rack=self.rack,
            log_dirs=online or self.log_dirs,
            previous_incarnation=effect.previous_incarnation,
            generation=self.generation,
            data_plane=self.data_plane,
            previous_broker_epoch=effect.previous_broker_epoch,
        )

    def fetch_request(self, request: FetchRequest, offline: tuple[Uuid, ...]) -> broker_pb2.MetadataFetchRequest:
        """`offline` are the log directories that have failed."""
        return convert.fetch_request(
            request,
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            generation=self.generation,
            offline_log_dirs=offline,
        )

    def snapshot_request(self, effect: DownloadSnapshot) -> broker_pb2.FetchMetadataSnapshotRequest:
        return broker_pb2.FetchMetadataSnapshotRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=effect.broker_epoch,
            incarnation_id=self.incarnation,
            snapshot=common_pb2.SnapshotId(end_offset=effect.snapshot.offset, epoch=effect.snapshot.epoch),
            generation=self.generation,
        )

    def alter_partition_request(
        self, proposals: Iterable[IsrProposal], broker_epoch: int
    ) -> broker_pb2.AlterPartitionRequest:
        return convert.alter_partition_request(
            proposals,
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=broker_epoch,
            generation=self.generation,
        )

    def assign_request(
        self, assignments: Iterable[Assignment], broker_epoch: int
    ) -> broker_pb2.AssignReplicasToDirsRequest:
        return convert.assign_request(
            assignments,
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=broker_epoch,
            generation=self.generation,
        )

    def producer_ids_request(self, broker_epoch: int) -> broker_pb2.AllocateProducerIdsRequest:
        return broker_pb2.AllocateProducerIdsRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=broker_epoch,
            generation=self.generation,
        )
