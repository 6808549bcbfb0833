"""A good request of every RPC, for a controller of the cluster that `lone_node` formats."""

from typing import Any

from quorum_rpc.v1 import admin_pb2, broker_pb2, common_pb2, entity_pb2, voter_pb2, watch_pb2

from metadata_log.format.ids import LOST_DIRECTORY, NodeId, OffsetAndEpoch
from tests.quorum.controller.cluster import incarnation
from tests.quorum.runtime.lone_node import CLUSTER_ID, directory_id

CONTEXT = admin_pb2.RequestContext(cluster_id=CLUSTER_ID, timeout_ms=500)


def key(node_id: NodeId) -> common_pb2.ReplicaKey:
    return common_pb2.ReplicaKey(node_id=node_id, directory_id=directory_id(node_id))


def sender(node_id: NodeId = 2) -> voter_pb2.Sender:
    return voter_pb2.Sender(cluster_id=CLUSTER_ID, replica=key(node_id), generation=1)


def voter(node_id: NodeId) -> voter_pb2.Voter:
    endpoint = common_pb2.Endpoint(listener="CONTROLLER", host="127.0.0.1", port=9_090 + node_id)
    return voter_pb2.Voter(replica=key(node_id), endpoints=[endpoint], kraft_version_min=0, kraft_version_max=1)


def _voters(snapshot: OffsetAndEpoch) -> dict[str, Any]:
    me, snapshot_id = sender(), common_pb2.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    return {
        "Vote": voter_pb2.VoteRequest(sender=me, receiver=key(1), epoch=2, last_epoch=1, end_offset=9),
        "BeginQuorumEpoch": voter_pb2.BeginQuorumEpochRequest(sender=me, receiver=key(1), epoch=2),
        "EndQuorumEpoch": voter_pb2.EndQuorumEpochRequest(sender=me, epoch=1, preferred_successors=[key(1), key(3)]),
        "Fetch": voter_pb2.FetchRequest(sender=me, epoch=1, number=1, max_bytes=1 << 20),
        "FetchSnapshot": voter_pb2.FetchSnapshotRequest(
            sender=me, epoch=1, number=1, snapshot=snapshot_id, max_bytes=1 << 20
        ),
        "ReadLog": voter_pb2.ReadLogRequest(sender=me, offset=0, end_offset=1, max_bytes=1 << 20),
        "ReadSnapshot": voter_pb2.ReadSnapshotRequest(sender=me, snapshot=snapshot_id, max_bytes=1 << 20),
        "DescribeChain": voter_pb2.DescribeChainRequest(sender=me, offset=1, epoch=1),
        "AddVoter": voter_pb2.AddVoterRequest(sender=me, voter=voter(4), timeout_ms=200),
        "RemoveVoter": voter_pb2.RemoveVoterRequest(sender=me, voter=key(3), timeout_ms=200),
        "RegisterController": voter_pb2.RegisterControllerRequest(
            sender=me,
            endpoints=voter(2).endpoints,
            features=[common_pb2.FeatureRange(name="metadata.version", min_level=1, max_level=3)],
        ),
        "UpdateVoter": voter_pb2.UpdateVoterRequest(sender=me, voter=voter(2), epoch=1, timeout_ms=200),
    }


def register(broker_id: NodeId) -> broker_pb2.RegisterBrokerRequest:
    return broker_pb2.RegisterBrokerRequest(
        cluster_id=CLUSTER_ID,
        broker_id=broker_id,
        incarnation_id=incarnation(broker_id),
        endpoints=[common_pb2.Endpoint(listener="PLAINTEXT", host=f"b{broker_id}", port=9092)],
        features=[common_pb2.FeatureRange(name="metadata.version", min_level=1, max_level=3)],
        rack="r1",
        log_dirs=[bytes([200 + broker_id]) * 16],
    )


def _brokers(epoch: int, topic_id: bytes, offset: int, snapshot: OffsetAndEpoch) -> dict[str, Any]:
    fetch = broker_pb2.MetadataFetchRequest(
        cluster_id=CLUSTER_ID,
        broker_id=0,
        broker_epoch=epoch,
        incarnation_id=incarnation(0),
        offset=offset,
        max_bytes=1 << 20,
        number=1,
    )
    member = broker_pb2.IsrMember(broker_id=0, broker_epoch=epoch)
    alteration = broker_pb2.PartitionAlteration(topic_id=topic_id, new_isr=[member], leader_recovery_state=0)
    return {
        "RegisterBroker": register(7),
        "MetadataFetch": fetch,
        "MetadataFetchOnce": fetch,
        "FetchMetadataSnapshot": broker_pb2.FetchMetadataSnapshotRequest(
            cluster_id=CLUSTER_ID,
            broker_id=0,
            broker_epoch=epoch,
            incarnation_id=incarnation(0),
            snapshot=common_pb2.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        ),
        "AlterPartition": broker_pb2.AlterPartitionRequest(
            cluster_id=CLUSTER_ID, broker_id=0, broker_epoch=epoch, partitions=[alteration]
        ),
        "AssignReplicasToDirs": broker_pb2.AssignReplicasToDirsRequest(
            cluster_id=CLUSTER_ID,
            broker_id=0,
            broker_epoch=epoch,
            directories=[
                broker_pb2.ReplicasInDirectory(
                    directory_id=LOST_DIRECTORY, replicas=[broker_pb2.ReplicaPlace(topic_id=topic_id)]
                )
            ],
        ),
        "ReportDeath": broker_pb2.ReportDeathRequest(
            cluster_id=CLUSTER_ID, broker_id=0, incarnation_ids=[incarnation(0)]
        ),
        "AllocateProducerIds": broker_pb2.AllocateProducerIdsRequest(
            cluster_id=CLUSTER_ID, broker_id=0, broker_epoch=epoch
        ),
    }


def _creation() -> admin_pb2.CreateTopicsRequest:
    topic = admin_pb2.NewTopic(
        name="new", partitions=2, replication_factor=1, configs=[admin_pb2.ConfigEntry(key="retention.ms", value="9")]
    )
    with_id = admin_pb2.RequestContext()
    with_id.CopyFrom(CONTEXT)
    with_id.request_id = bytes(range(16))
    return admin_pb2.CreateTopicsRequest(context=with_id, topics=[topic])


def _topics() -> dict[str, Any]:
    resource = admin_pb2.ConfigResource(resource_type=2, name="orders")
    operation = admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key="retention.ms", value="7")
    alteration = admin_pb2.ConfigAlteration(resource=resource, operations=[operation])
    return {
        "CreateTopics": _creation(),
        "CreatePartitions": admin_pb2.CreatePartitionsRequest(
            context=CONTEXT, topics=[admin_pb2.NewPartitions(name="orders", total_count=3)]
        ),
        "DeleteTopics": admin_pb2.DeleteTopicsRequest(context=CONTEXT, names=["orders"]),
        "ListTopics": admin_pb2.ListTopicsRequest(context=CONTEXT, page_size=10),
        "DescribeTopics": admin_pb2.DescribeTopicsRequest(context=CONTEXT, names=["orders"], page_size=10),
        "IncrementalAlterConfigs": admin_pb2.IncrementalAlterConfigsRequest(context=CONTEXT, alterations=[alteration]),
        "DescribeConfigs": admin_pb2.DescribeConfigsRequest(context=CONTEXT, resources=[resource]),
        "AlterConfigKeys": admin_pb2.AlterConfigKeysRequest(
            context=CONTEXT,
            definitions=[
                admin_pb2.ConfigKeyDefinition(
                    resource_type=2, name="acme.share", value_type="int", default_value="1", minimum=0, maximum=9
                )
            ],
        ),
        "AlterLabels": admin_pb2.AlterLabelsRequest(
            context=CONTEXT,
            alterations=[
                admin_pb2.LabelAlteration(
                    resource=resource, partition=0, set=[admin_pb2.Label(key="team", value="a")], remove=["hot"]
                )
            ],
        ),
        "ListLabels": admin_pb2.ListLabelsRequest(context=CONTEXT, label="team=a", page_size=10),
        "DescribeConfigKeys": admin_pb2.DescribeConfigKeysRequest(context=CONTEXT, page_size=10),
    }


def _brokers_and_partitions() -> dict[str, Any]:
    return {
        "ListBrokers": admin_pb2.ListBrokersRequest(context=CONTEXT),
        "DescribePartitionHealth": admin_pb2.DescribePartitionHealthRequest(context=CONTEXT, limit=3),
        "DescribeCluster": admin_pb2.DescribeClusterRequest(context=CONTEXT),
        "ListPartitions": admin_pb2.ListPartitionsRequest(
            context=CONTEXT,
            conditions=[admin_pb2.UNDER_MIN_ISR],
            replica_on=0,
            led_by=0,
            topics=["orders"],
            page_size=9,
        ),
        "ElectLeaders": admin_pb2.ElectLeadersRequest(
            context=CONTEXT, topics=[admin_pb2.TopicPartitions(topic="moved", partitions=[0])]
        ),
        "AlterPartitionReassignments": admin_pb2.AlterPartitionReassignmentsRequest(
            context=CONTEXT,
            partitions=[
                admin_pb2.PartitionReassignment(
                    topic="moved", partition=0, target=admin_pb2.ReplicaList(broker_ids=[0, 1])
                )
            ],
        ),
        "ListPartitionReassignments": admin_pb2.ListPartitionReassignmentsRequest(context=CONTEXT, page_size=10),
        "DescribeFeatures": admin_pb2.DescribeFeaturesRequest(context=CONTEXT),
        "UpdateFeatures": admin_pb2.UpdateFeaturesRequest(
            context=CONTEXT,
            updates=[
                admin_pb2.FeatureUpdate(
                    name="metadata.version", level=1, upgrade_type=admin_pb2.FeatureUpdate.SAFE_DOWNGRADE
                )
            ],
        ),
        "DescribeUserScramCredentials": admin_pb2.DescribeUserScramCredentialsRequest(context=CONTEXT, page_size=9),
        "AlterUserScramCredentials": admin_pb2.AlterUserScramCredentialsRequest(
            context=CONTEXT,
            alterations=[
                admin_pb2.ScramAlteration(
                    user="alice",
                    mechanism="SCRAM_SHA_256",
                    credential=admin_pb2.ScramCredential(
                        iterations=4_096, salt=b"salt", stored_key=bytes(32), server_key=bytes(32)
                    ),
                )
            ],
        ),
        "DescribeAcls": admin_pb2.DescribeAclsRequest(context=CONTEXT, filter=admin_pb2.AclFilter(resource_name="x")),
        "CreateAcls": admin_pb2.CreateAclsRequest(
            context=CONTEXT,
            acls=[
                admin_pb2.AclBinding(
                    resource_type="TOPIC",
                    resource_name="orders",
                    pattern_type="LITERAL",
                    principal="User:alice",
                    host="*",
                    operation="READ",
                    permission_type="ALLOW",
                )
            ],
        ),
        "DeleteAcls": admin_pb2.DeleteAclsRequest(
            context=CONTEXT,
            filters=[admin_pb2.AclFilter(resource_name="orders", principal="User:alice", host="*")],
        ),
        "DescribeClientQuotas": admin_pb2.DescribeClientQuotasRequest(
            context=CONTEXT,
            components=[admin_pb2.DescribeClientQuotasRequest.Component(entity_type="user", match="ANY")],
        ),
        "AlterClientQuotas": admin_pb2.AlterClientQuotasRequest(
            context=CONTEXT,
            alterations=[
                admin_pb2.ClientQuotaAlteration(
                    entity=admin_pb2.ClientQuotaEntity(
                        parts=[admin_pb2.ClientQuotaEntityPart(entity_type="user", name="alice")]
                    ),
                    operations=[admin_pb2.ClientQuotaOperation(key="producer_byte_rate", value=1_000)],
                )
            ],
        ),
        "FenceBroker": admin_pb2.FenceBrokerRequest(context=CONTEXT, broker_id=2, reason="slow disk"),
        "UnfenceBroker": admin_pb2.UnfenceBrokerRequest(context=CONTEXT, broker_id=2),
        "DrainBroker": admin_pb2.DrainBrokerRequest(context=CONTEXT, broker_id=2, reason="new disk"),
        "UndrainBroker": admin_pb2.UndrainBrokerRequest(context=CONTEXT, broker_id=2),
        "UnregisterBroker": admin_pb2.UnregisterBrokerRequest(context=CONTEXT, broker_id=2),
    }


def _quorum() -> dict[str, Any]:
    return {
        "DescribeQuorum": admin_pb2.DescribeQuorumRequest(context=CONTEXT),
        "AddVoter": admin_pb2.AdminAddVoterRequest(context=CONTEXT, voter=voter(4)),
        "RemoveVoter": admin_pb2.AdminRemoveVoterRequest(context=CONTEXT, voter=key(3)),
        "TransferLeadership": admin_pb2.TransferLeadershipRequest(context=CONTEXT, target_id=2),
        "CanRestart": admin_pb2.CanRestartRequest(context=CONTEXT, node_id=1),
        "CreateSnapshot": admin_pb2.CreateSnapshotRequest(context=CONTEXT, reason="why not"),
        "SkipBatch": admin_pb2.SkipBatchRequest(
            context=CONTEXT, offset=1, epoch=1, chain=bytes(32), validate_only=True
        ),
        "ListSnapshots": admin_pb2.ListSnapshotsRequest(context=CONTEXT),
        "ReadTree": admin_pb2.ReadTreeRequest(context=CONTEXT, values=admin_pb2.TreeValues(patterns=["/topics/*/id"])),
        "Submit": admin_pb2.SubmitRequests(requests=[admin_pb2.SubmitRequest(id=1, create_topics=_creation())]),
    }


def _entities() -> dict[str, Any]:
    task = entity_pb2.EntityName(kind="task", name="7")
    operation = admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key="retention.ms", value="7")
    resource = admin_pb2.ConfigResource(resource_type=2, name="orders")
    operations = (
        entity_pb2.Operation(put=entity_pb2.PutEntity(entity=task, value=b'{"host": "a"}', ttl_ms=5_000)),
        entity_pb2.Operation(delete=entity_pb2.EntityName(kind="task", name="6")),
        entity_pb2.Operation(create_topic=admin_pb2.NewTopic(name="task-7", partitions=1, replication_factor=1)),
        entity_pb2.Operation(alter_configs=admin_pb2.ConfigAlteration(resource=resource, operations=[operation])),
    )
    kind = entity_pb2.Kind(kind="job", schema='{"type": "object"}', entities_max=10)
    return {
        "Transact": entity_pb2.TransactRequest(
            context=CONTEXT, conditions=[entity_pb2.Condition(entity=task, exists=False)], operations=operations
        ),
        "GetEntities": entity_pb2.GetEntitiesRequest(context=CONTEXT, entities=[task]),
        "ListEntities": entity_pb2.ListEntitiesRequest(context=CONTEXT, kind="task", prefix="7", page_size=3),
        "AlterKinds": entity_pb2.AlterKindsRequest(context=CONTEXT, declare=[kind], remove=["task"]),
        "DescribeKinds": entity_pb2.DescribeKindsRequest(context=CONTEXT, page_size=3),
        "OpenSession": entity_pb2.OpenSessionRequest(
            context=CONTEXT, session_id=bytes(range(16)), name="worker 1", timeout_ms=9_000
        ),
        "CloseSession": entity_pb2.CloseSessionRequest(context=CONTEXT, session_id=bytes(range(16)), epoch=3),
        "ListSessions": entity_pb2.ListSessionsRequest(context=CONTEXT, page_size=3),
        "KeepAlive": entity_pb2.KeepAliveRequest(
            cluster_id=CLUSTER_ID, id=1, sessions=[entity_pb2.SessionName(session_id=bytes(range(16)), epoch=1 << 40)]
        ),
    }


def _watch() -> watch_pb2.WatchRequest:
    return watch_pb2.WatchRequest(
        filter=watch_pb2.WatchFilter(
            entities=[{"kind": "lock", "name_prefix": "a"}], topics=["orders"], brokers=[0], sessions=True, others=True
        ),
        position=watch_pb2.WatchPosition(generation=1, offset=1, epoch=1, chain=bytes(32)),
        bookmark_interval_ms=1_000,
    )


def good_requests(
    broker_epoch: int = 0,
    topic_id: bytes = bytes(16),
    offset: int = 0,
    snapshot: OffsetAndEpoch = OffsetAndEpoch(3, 1),  # noqa: B008 -- a value
) -> dict[str, Any]:
    """By `Service.Method`. Broker 0 with this epoch leads partition 0 of the topic `orders`, and of `moved`, which prefers 1."""
    return {
        f"{service}.{method}": request
        for service, requests in (
            ("VoterService", _voters(snapshot)),
            ("BrokerService", _brokers(broker_epoch, topic_id, offset, snapshot)),
            ("AdminService", {**_topics(), **_brokers_and_partitions(), **_quorum()}),
            ("EntityService", _entities()),
            ("WatchService", {"Watch": _watch()}),
        )
        for method, request in requests.items()
    }
