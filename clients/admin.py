"""AdminClient: a typed client of the controllers for programs.

One method for each method of AdminService; `topics`, `described_topics`, `partitions`, `brokers` and `described_configs` ask
for all pages of an answer. `clients.calls` says how a call finds the leader, and what becomes of a lost answer.

`quorumctl` uses this client. A program of your own:

    async with AdminClient(["127.0.0.1:9001"]) as client:
        await client.create_topic("orders", partitions=12, replication_factor=3)
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from quorum_rpc.v1 import admin_pb2, common_pb2, voter_pb2

from clients.errors import AdminError
from clients.settings_calls import SettingsCalls
from clients.streams.submit_stream import SubmitStream
from metadata_log.format.errors import ErrorCode


class AdminClient(SettingsCalls):
    """A client of one cluster's controllers. Use it on one event loop. Every method raises AdminError."""

    # --- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[admin_pb2.NewTopic], *, validate_only: bool = False
    ) -> admin_pb2.CreateTopicsResponse:
        """Creates topics. Each topic has a result of its own, and the others are created although one is refused."""
        request = admin_pb2.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return await self.call(request, admin_pb2.CreateTopicsResponse)

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        if_not_exists: bool = False,
    ) -> admin_pb2.TopicResult:
        """Creates one topic, or raises the topic's error.

        With `if_not_exists` an existing topic is no error: the result has the code TOPIC_ALREADY_EXISTS, and the id, partitions
        and replication factor of the existing topic.
        """
        entries = [admin_pb2.ConfigEntry(key=key, value=value) for key, value in (configs or {}).items()]
        topic = admin_pb2.NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=entries
        )
        response = await self.create_topics([topic])
        tolerate = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
        result: admin_pb2.TopicResult = _only(response.results, tolerate)
        return result

    async def create_partitions(
        self, topics: Iterable[admin_pb2.NewPartitions], *, validate_only: bool = False
    ) -> admin_pb2.CreatePartitionsResponse:
        """Adds partitions to topics. Each topic has a result of its own."""
        request = admin_pb2.CreatePartitionsRequest(topics=topics, validate_only=validate_only)
        return await self.call(request, admin_pb2.CreatePartitionsResponse)

    async def delete_topics(self, names: Iterable[str]) -> admin_pb2.DeleteTopicsResponse:
        """Deletes topics. Each topic has a result of its own."""
        request = admin_pb2.DeleteTopicsRequest(names=names)
        return await self.call(request, admin_pb2.DeleteTopicsResponse)

    async def list_topics(
        self, page_size: int = 0, page_token: bytes = b"", *, label: str = ""
    ) -> admin_pb2.ListTopicsResponse:
        """Returns one page of topics by name; `label`: only those with this key, or key=value."""
        request = admin_pb2.ListTopicsRequest(page_size=page_size, page_token=page_token, label=label)
        return await self.call(request, admin_pb2.ListTopicsResponse)

    async def topics(self, page_size: int = 0, *, label: str = "") -> AsyncIterator[admin_pb2.TopicListing]:
        """Yields all topics by name, with `label` those with this key, or key=value. Each page is as of its own offset."""
        request = admin_pb2.ListTopicsRequest(page_size=page_size, label=label)
        async for page in self.pages(request, admin_pb2.ListTopicsResponse):
            for topic in page.topics:
                yield topic

    async def describe_topics(
        self, names: Iterable[str], page_size: int = 0, page_token: bytes = b""
    ) -> admin_pb2.DescribeTopicsResponse:
        """Returns one page of the topics with their partitions. The page may end inside a topic."""
        request = admin_pb2.DescribeTopicsRequest(names=names, page_size=page_size, page_token=page_token)
        return await self.call(request, admin_pb2.DescribeTopicsResponse)

    async def described_topics(
        self, names: Iterable[str], page_size: int = 0
    ) -> AsyncIterator[admin_pb2.TopicDescription]:
        """Yields each topic with all of its partitions. A topic that does not exist has an error.

        A topic that was deleted and created anew between two pages is described as it was created anew.
        """
        request = admin_pb2.DescribeTopicsRequest(names=names, page_size=page_size)
        topic: admin_pb2.TopicDescription | None = None
        async for page in self.pages(request, admin_pb2.DescribeTopicsResponse):
            for part in page.topics:
                if topic is not None and (topic.name, topic.topic_id) == (part.name, part.topic_id):
                    topic.partitions.extend(part.partitions)
                    continue
                if topic is not None and topic.name != part.name:
                    yield await self._whole(topic)
                topic = part
        if topic is not None:
            yield await self._whole(topic)

    async def _whole(self, topic: admin_pb2.TopicDescription) -> admin_pb2.TopicDescription:
        """Adds the partitions that a controller of release 0.1.0, which has no page tokens, has left out."""
        while not topic.error.code and len(topic.partitions) < topic.partition_count:
            request = admin_pb2.DescribeTopicsRequest(names=[topic.name], first_partition=len(topic.partitions))
            (rest,) = (await self.call(request, admin_pb2.DescribeTopicsResponse)).topics
            if not rest.partitions or rest.topic_id != topic.topic_id:
                break
            topic.partitions.extend(rest.partitions)
        return topic

    async def describe_topic(self, name: str) -> admin_pb2.TopicDescription:
        """Describes one topic with all of its partitions, or raises the topic's error."""
        topic: admin_pb2.TopicDescription = _only([each async for each in self.described_topics([name])])
        return topic

    # --- partitions ------------------------------------------------------------------------------------------------

    async def list_partitions(self, request: admin_pb2.ListPartitionsRequest) -> admin_pb2.ListPartitionsResponse:
        """Returns one page of the partitions that pass the request's filters. It may be empty and have a token."""
        return await self.call(request, admin_pb2.ListPartitionsResponse)

    async def partitions(
        self,
        *conditions: admin_pb2.PartitionCondition,
        replica_on: int | None = None,
        led_by: int | None = None,
        topics: Iterable[str] = (),
        page_size: int = 0,
    ) -> AsyncIterator[admin_pb2.PartitionListing]:
        """Yields the partitions that meet at least one of the conditions, if any is given, and pass every other filter."""
        request = admin_pb2.ListPartitionsRequest(
            conditions=conditions, replica_on=replica_on, led_by=led_by, topics=topics, page_size=page_size
        )
        async for page in self.pages(request, admin_pb2.ListPartitionsResponse):
            for partition in page.partitions:
                yield partition

    # --- configs ---------------------------------------------------------------------------------------------------

    async def alter_configs(
        self, alterations: Iterable[admin_pb2.ConfigAlteration], *, validate_only: bool = False
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Alters configs key by key. Each resource has a result of its own."""
        request = admin_pb2.IncrementalAlterConfigsRequest(alterations=alterations, validate_only=validate_only)
        return await self.call(request, admin_pb2.IncrementalAlterConfigsResponse)

    async def describe_configs(
        self, resources: Iterable[admin_pb2.ConfigResource], page_size: int = 0, page_token: bytes = b""
    ) -> admin_pb2.DescribeConfigsResponse:
        """Returns one page of the resources, with the configs that were set on the resources themselves."""
        request = admin_pb2.DescribeConfigsRequest(resources=resources, page_size=page_size, page_token=page_token)
        return await self.call(request, admin_pb2.DescribeConfigsResponse)

    async def described_configs(
        self, resources: Iterable[admin_pb2.ConfigResource], page_size: int = 0, *, with_defaults: bool = False
    ) -> AsyncIterator[admin_pb2.DescribedResource]:
        """Yields each resource, with the configs that were set on the resource itself; `with_defaults`: also with all keys,
        their values on each level, and their meanings."""
        request = admin_pb2.DescribeConfigsRequest(
            resources=resources, page_size=page_size, with_defaults=with_defaults
        )
        async for page in self.pages(request, admin_pb2.DescribeConfigsResponse):
            for resource in page.resources:
                yield resource

    # --- leaders ---------------------------------------------------------------------------------------------------

    async def elect_leaders(
        self,
        partitions: Mapping[str, Iterable[int]],
        election_type: admin_pb2.ElectLeadersRequest.ElectionType = admin_pb2.ElectLeadersRequest.PREFERRED,
        leader_id: int | None = None,
    ) -> admin_pb2.ElectLeadersResponse:
        """Elects the leaders of partitions, by topic; at most 10,000. Each has a result.

        PREFERRED elects the first assigned replicas, DESIGNATED the replicas on broker `leader_id`; UNCLEAN gives a leader to
        partitions that have none, and may lose records.
        """
        topics = [admin_pb2.TopicPartitions(topic=name, partitions=numbers) for name, numbers in partitions.items()]
        request = admin_pb2.ElectLeadersRequest(topics=topics, election_type=election_type, leader_id=leader_id)
        return await self.call(request, admin_pb2.ElectLeadersResponse)

    # --- reassignments ---------------------------------------------------------------------------------------------

    async def alter_partition_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        validate_only: bool = False,
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Gives partitions, by topic and number, the replicas on these brokers; at most 10,000. Each has a result.

        None cancels the reassignment in progress. THROTTLING_QUOTA_EXCEEDED: ask again for that partition in a moment.
        """
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.PartitionReassignment(
                    topic=topic,
                    partition=partition,
                    target=None if target is None else admin_pb2.ReplicaList(broker_ids=target),
                )
                for (topic, partition), target in targets.items()
            ],
            allow_replication_factor_change=allow_replication_factor_change,
            validate_only=validate_only,
        )
        return await self.call(request, admin_pb2.AlterPartitionReassignmentsResponse)

    async def list_partition_reassignments(
        self, page_size: int = 0, page_token: bytes = b""
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """Returns one page of the partitions in reassignment, by topic and number."""
        request = admin_pb2.ListPartitionReassignmentsRequest(page_size=page_size, page_token=page_token)
        return await self.call(request, admin_pb2.ListPartitionReassignmentsResponse)

    async def reassignments(self, page_size: int = 0) -> AsyncIterator[admin_pb2.OngoingReassignment]:
        """Yields the partitions in reassignment, by topic and number."""
        request = admin_pb2.ListPartitionReassignmentsRequest(page_size=page_size)
        async for page in self.pages(request, admin_pb2.ListPartitionReassignmentsResponse):
            for reassignment in page.reassignments:
                yield reassignment

    # --- features --------------------------------------------------------------------------------------------------

    async def describe_features(self) -> admin_pb2.DescribeFeaturesResponse:
        """Returns for each feature what the release supports, and the cluster's level; and the registered controllers."""
        return await self.call(admin_pb2.DescribeFeaturesRequest(), admin_pb2.DescribeFeaturesResponse)

    async def update_features(
        self, levels: Mapping[str, int], *, downgrade: bool = False, validate_only: bool = False
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Raises features to these levels, all or none; with `downgrade` lowers them. Level 0 turns a feature off."""
        types = admin_pb2.FeatureUpdate
        direction = types.SAFE_DOWNGRADE if downgrade else types.UPGRADE
        request = admin_pb2.UpdateFeaturesRequest(
            updates=[
                admin_pb2.FeatureUpdate(name=name, level=level, upgrade_type=direction)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        return await self.call(request, admin_pb2.UpdateFeaturesResponse)

    # --- quotas ----------------------------------------------------------------------------------------------------

    async def alter_client_quotas(
        self, alterations: Iterable[admin_pb2.ClientQuotaAlteration], *, validate_only: bool = False
    ) -> admin_pb2.AlterClientQuotasResponse:
        """Sets and removes quotas of clients. Each entity has a result of its own."""
        request = admin_pb2.AlterClientQuotasRequest(alterations=alterations, validate_only=validate_only)
        return await self.call(request, admin_pb2.AlterClientQuotasResponse)

    async def describe_client_quotas(
        self, request: admin_pb2.DescribeClientQuotasRequest
    ) -> admin_pb2.DescribeClientQuotasResponse:
        """Returns one page of the entities that pass the request's filter, with their quotas."""
        return await self.call(request, admin_pb2.DescribeClientQuotasResponse)

    async def client_quotas(
        self,
        *components: admin_pb2.DescribeClientQuotasRequest.Component,
        strict: bool = False,
        page_size: int = 0,
    ) -> AsyncIterator[admin_pb2.DescribedClientQuotas]:
        """Yields the quotas of the entities that meet all conditions; `strict`: and have no other part."""
        request = admin_pb2.DescribeClientQuotasRequest(components=components, strict=strict, page_size=page_size)
        async for page in self.pages(request, admin_pb2.DescribeClientQuotasResponse):
            for entry in page.entries:
                yield entry

    # --- ACLs ------------------------------------------------------------------------------------------------------

    async def create_acls(
        self, acls: Iterable[admin_pb2.AclBinding], *, validate_only: bool = False
    ) -> admin_pb2.CreateAclsResponse:
        """Creates ACLs. Each has a result of its own; an ACL that exists is no error."""
        request = admin_pb2.CreateAclsRequest(acls=acls, validate_only=validate_only)
        return await self.call(request, admin_pb2.CreateAclsResponse)

    async def delete_acls(
        self, filters: Iterable[admin_pb2.AclFilter], *, validate_only: bool = False
    ) -> admin_pb2.DeleteAclsResponse:
        """Deletes the ACLs that pass one of the filters, and names them. Each filter has a result of its own."""
        request = admin_pb2.DeleteAclsRequest(filters=filters, validate_only=validate_only)
        return await self.call(request, admin_pb2.DeleteAclsResponse)

    async def describe_acls(self, request: admin_pb2.DescribeAclsRequest) -> admin_pb2.DescribeAclsResponse:
        """Returns one page of the ACLs that pass the request's filter."""
        return await self.call(request, admin_pb2.DescribeAclsResponse)

    async def acls(
        self, wanted: admin_pb2.AclFilter | None = None, page_size: int = 0
    ) -> AsyncIterator[admin_pb2.AclBinding]:
        """Yields the ACLs that pass the filter, by default all, by resource and principal."""
        request = admin_pb2.DescribeAclsRequest(filter=wanted, page_size=page_size)
        async for page in self.pages(request, admin_pb2.DescribeAclsResponse):
            for acl in page.acls:
                yield acl

    # --- users -----------------------------------------------------------------------------------------------------

    async def alter_user_scram_credentials(
        self, alterations: Iterable[admin_pb2.ScramAlteration], *, validate_only: bool = False
    ) -> admin_pb2.AlterUserScramCredentialsResponse:
        """Sets and removes SCRAM credentials (`clients.scram` makes them). Each alteration has a result of its own."""
        request = admin_pb2.AlterUserScramCredentialsRequest(alterations=alterations, validate_only=validate_only)
        return await self.call(request, admin_pb2.AlterUserScramCredentialsResponse)

    async def describe_user_scram_credentials(
        self, page_size: int = 0, page_token: bytes = b""
    ) -> admin_pb2.DescribeUserScramCredentialsResponse:
        """Returns one page of the users with SCRAM credentials."""
        request = admin_pb2.DescribeUserScramCredentialsRequest(page_size=page_size, page_token=page_token)
        return await self.call(request, admin_pb2.DescribeUserScramCredentialsResponse)

    async def scram_users(self, page_size: int = 0) -> AsyncIterator[admin_pb2.DescribedUser]:
        """Yields the users with SCRAM credentials by name, without secrets."""
        request = admin_pb2.DescribeUserScramCredentialsRequest(page_size=page_size)
        async for page in self.pages(request, admin_pb2.DescribeUserScramCredentialsResponse):
            for user in page.users:
                yield user

    # --- brokers ---------------------------------------------------------------------------------------------------

    async def list_brokers(
        self, page_size: int = 0, page_token: bytes = b"", *, label: str = ""
    ) -> admin_pb2.ListBrokersResponse:
        """Returns one page of the registered brokers by id, as the active controller sees them."""
        request = admin_pb2.ListBrokersRequest(page_size=page_size, page_token=page_token, label=label)
        return await self.call(request, admin_pb2.ListBrokersResponse)

    async def brokers(self, page_size: int = 0, *, label: str = "") -> AsyncIterator[admin_pb2.BrokerListing]:
        """Yields all registered brokers by id, as the active controller sees them; `label`: a key, or key=value."""
        request = admin_pb2.ListBrokersRequest(page_size=page_size, label=label)
        async for page in self.pages(request, admin_pb2.ListBrokersResponse):
            for broker in page.brokers:
                yield broker

    async def describe_cluster(self) -> admin_pb2.DescribeClusterResponse:
        """Counts brokers by state, topics and partitions. `describe_quorum` tells the cluster's id and the controllers."""
        return await self.call(admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse)

    async def partition_health(self, limit: int = 0) -> admin_pb2.DescribePartitionHealthResponse:
        """Counts the partitions that lack a leader or replicas in sync, and names at most `limit` of each kind."""
        request = admin_pb2.DescribePartitionHealthRequest(limit=limit)
        return await self.call(request, admin_pb2.DescribePartitionHealthResponse)

    async def fence_broker(
        self, broker_id: int, reason: str = "", *, validate_only: bool = False
    ) -> admin_pb2.MutationResponse:
        """Fences a broker until `unfence_broker`. Below metadata.version 2, POLICY_VIOLATION: the broker still fetches."""
        request = admin_pb2.FenceBrokerRequest(broker_id=broker_id, reason=reason, validate_only=validate_only)
        return await self.call(request, admin_pb2.MutationResponse)

    async def unfence_broker(self, broker_id: int, *, validate_only: bool = False) -> admin_pb2.MutationResponse:
        """Ends the fence of `fence_broker`: the broker is online after its next fetch."""
        request = admin_pb2.UnfenceBrokerRequest(broker_id=broker_id, validate_only=validate_only)
        return await self.call(request, admin_pb2.MutationResponse)

    async def drain_broker(
        self, broker_id: int, reason: str = "", *, validate_only: bool = False
    ) -> admin_pb2.MutationResponse:
        """Begins a maintenance: the leaderships move away, and nothing new is placed on the broker, until `undrain_broker`.

        The broker still leads a partition while no other active broker is in the ISR (`led_partitions` of `brokers`).
        """
        request = admin_pb2.DrainBrokerRequest(broker_id=broker_id, reason=reason, validate_only=validate_only)
        return await self.call(request, admin_pb2.MutationResponse)

    async def undrain_broker(self, broker_id: int, *, validate_only: bool = False) -> admin_pb2.MutationResponse:
        """Ends the maintenance of `drain_broker`: the broker may lead again."""
        request = admin_pb2.UndrainBrokerRequest(broker_id=broker_id, validate_only=validate_only)
        return await self.call(request, admin_pb2.MutationResponse)

    async def unregister_broker(self, broker_id: int) -> admin_pb2.MutationResponse:
        """Deletes a broker's registration. POLICY_VIOLATION: the broker still fetches, or has replicas."""
        return await self.call(admin_pb2.UnregisterBrokerRequest(broker_id=broker_id), admin_pb2.MutationResponse)

    # --- the quorum ------------------------------------------------------------------------------------------------

    async def describe_quorum(
        self, endpoint: str | None = None, *, of_leader: bool = False
    ) -> admin_pb2.DescribeQuorumResponse:
        """Describes the quorum as the controller at `endpoint` knows it; by default, as the first controller that answers.

        With `of_leader` that controller asks the leader, and returns the leader's answer. A controller of release 0.1.0 answers
        for itself all the same: see `role` in the answer.
        """
        request = admin_pb2.DescribeQuorumRequest(of_leader=of_leader)
        return await self.call_one(request, admin_pb2.DescribeQuorumResponse, endpoint)

    async def add_voter(self, voter: voter_pb2.Voter) -> admin_pb2.MutationResponse:
        """Makes a running, caught-up observer a voter."""
        return await self.call(admin_pb2.AdminAddVoterRequest(voter=voter), admin_pb2.MutationResponse)

    async def remove_voter(self, node_id: int, directory_id: bytes) -> admin_pb2.MutationResponse:
        """Removes a voter. Its controller, if it runs, becomes an observer."""
        voter = common_pb2.ReplicaKey(node_id=node_id, directory_id=directory_id)
        return await self.call(admin_pb2.AdminRemoveVoterRequest(voter=voter), admin_pb2.MutationResponse)

    async def transfer_leadership(self, target_id: int | None = None) -> admin_pb2.MutationResponse:
        """Lets the leader hand over to `target_id`, by default to the voter with the longest log. Ask `leader()` afterwards."""
        return await self.call(admin_pb2.TransferLeadershipRequest(target_id=target_id), admin_pb2.MutationResponse)

    async def can_restart(self, node_id: int) -> admin_pb2.CanRestartResponse:
        """Says whether a majority of caught-up voters would remain without that controller."""
        return await self.call(admin_pb2.CanRestartRequest(node_id=node_id), admin_pb2.CanRestartResponse)

    async def list_snapshots(self, endpoint: str | None = None) -> admin_pb2.ListSnapshotsResponse:
        """Lists the snapshots on the disk of one controller."""
        request = admin_pb2.ListSnapshotsRequest()
        return await self.call_one(request, admin_pb2.ListSnapshotsResponse, endpoint)

    async def create_snapshot(self, reason: str = "") -> admin_pb2.MutationResponse:
        """Commits a snapshot mark. Every node then writes its snapshot at the response's offset.

        If an answer is missing, the client asks again, and a second mark may be committed, which does no harm.
        """
        return await self.call(admin_pb2.CreateSnapshotRequest(reason=reason), admin_pb2.MutationResponse)

    async def skip_batch(
        self, offset: int, epoch: int, chain: bytes, *, although_applied: bool = False, validate_only: bool = False
    ) -> admin_pb2.SkipBatchResponse:
        """Makes all nodes drop a committed batch that they cannot apply. The content of the batch is lost.

        `although_applied` skips a batch that the leader has applied, and other nodes cannot apply: acknowledged changes are
        undone.
        """
        request = admin_pb2.SkipBatchRequest(offset=offset, epoch=epoch, chain=chain)
        request.although_applied, request.validate_only = although_applied, validate_only
        # Without a request id: the chain names the batch, so a repetition is safe. A client with an id first reads the offset of
        # the log, and no controller answers reads while all of them stand in front of the batch.
        response: admin_pb2.SkipBatchResponse = await self._ask(request)
        return response

    async def read_tree(self, request: admin_pb2.ReadTreeRequest) -> AsyncGenerator[admin_pb2.ReadTreeResponse, None]:
        """Yields the parts of the answer to a query of the metadata as a tree; the first part has no rows.

        An AdminError in the middle of an answer means that the rest is missing. Close the iterator to end an answer early.
        """
        answer = await self.read(request)
        async with aclosing(answer.messages()) as messages:
            async for message in messages:
                yield message

    async def submit(self) -> SubmitStream:
        """Opens a stream of changes to the active controller. See `SubmitStream`."""
        self.check_present()
        target = await self.leader()
        return SubmitStream(self.stub(target).Submit(), target, self.cluster_id, self.timeout_s)


def _only(results: Any, tolerate: ErrorCode | None = None) -> Any:
    """Returns the only result, or raises its error unless the error is `tolerate`."""
    (result,) = results
    error: common_pb2.Error = result.error
    if error.code and ErrorCode.of(error.code) is not tolerate:
        raise AdminError.of(error)
    return result
