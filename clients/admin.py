"""The typed admin client: a list of controllers in, generated messages out, and errors that say what to do.

It asks the controller that it believes to lead, follows hints, and goes on to the next one while nobody leads, all within
one deadline per call. Every change goes out with an id, under which the controllers remember what became of it; so a change
whose answer is missing is sent again, also to a new leader, takes effect once, and gets its first answer. If the deadline
comes first, or a refusal, `MayHaveHappened` is raised, and the caller looks: the lost attempt may yet arrive.

Used by `quorumctl`, and by whoever automates a cluster:

    async with AdminClient(["127.0.0.1:9001"]) as client:
        await client.create_topic("orders", partitions=12, replication_factor=3)
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias

import grpc
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, common_pb2, voter_pb2

from clients.errors import AdminError, MayHaveHappened, NoLeader, NotReached, Unanswered, error_of_call
from clients.submit_stream import SubmitStream
from metadata_log.format.errors import ErrorCode
from service_kit.rpc.dial import was_never_sent
from service_kit.rpc.forwarding import STAY_HERE, changes_nothing
from service_kit.rpc.grpc_options import channel_options

Metadata: TypeAlias = tuple[tuple[str, str], ...]

DEFAULT_TIMEOUT_S: Final = 10.0
ATTEMPT_S: Final = 2.0
"""Who does not answer for so long may stand still: the next controller is asked."""
BACKOFF_FIRST_S: Final = 0.02
BACKOFF_MAX_S: Final = 0.2

TOPIC: Final = 2
BROKER: Final = 4
"""Config resource types."""

_OFFSETS: Final = ("offset", "as_of_offset")
"""The fields of answers that tell how far the log has come."""

ASK_ELSEWHERE: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_READY,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.STORAGE_ERROR,
    )
)
"""Nothing was done, and another controller may do it, or this one in a moment."""

NEVER_REPEATED: Final = frozenset((ErrorCode.RECORD_BATCH_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR))
"""Also where it may have happened. A request that one controller has made a mistake with must not be carried to the next one."""


class AdminClient:
    """A client of one cluster's controllers. Lives on the event loop that first uses it. Raises AdminError everywhere."""

    def __init__(
        self,
        endpoints: Sequence[str],
        cluster_id: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        dial: Any = None,
        local: bool = False,
    ) -> None:
        """`endpoints` are `host:port` of controllers, or of brokers that ask them; `dial(target) -> Channel` if the
        connection is to be secured. With `local`, reads see what the asked node has applied: perhaps of the past, but never
        older than what this client has seen.
        """
        assert endpoints, "at least one endpoint"
        self.endpoints = tuple(endpoints)
        self.timeout_s = timeout_s
        self._cluster_id = cluster_id or ""
        self._dial = dial or _dial_insecurely
        self._stubs: dict[str, tuple[grpc.aio.Channel, Any]] = {}
        self._target = self.endpoints[0]
        self._turn = 0
        self._local = local
        self.local_view: admin_pb2.LocalView | None = None
        """Of the last answer that was one node's own: whose, and how old it may be."""
        self._high_watermark = 0
        """The highest offset that this client was told of: what it asks for next takes effect above, or sees that."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        stubs, self._stubs = self._stubs, {}
        for channel, _ in stubs.values():
            await channel.close()

    # --- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[admin_pb2.NewTopic], *, validate_only: bool = False
    ) -> admin_pb2.CreateTopicsResponse:
        """Creates the topics that can be created; each result says how it went."""
        request = admin_pb2.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        response: admin_pb2.CreateTopicsResponse = await self._change("CreateTopics", request)
        return response

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        if_not_exists: bool = False,
    ) -> admin_pb2.TopicResult:
        """Creates one topic, or raises its error. With `if_not_exists` a topic that exists is no error: its result has the code
        TOPIC_ALREADY_EXISTS, and id, partitions and replication factor of the topic that there is.
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
        """Lets topics have more partitions; each result says how it went."""
        request = admin_pb2.CreatePartitionsRequest(topics=topics, validate_only=validate_only)
        response: admin_pb2.CreatePartitionsResponse = await self._change("CreatePartitions", request)
        return response

    async def delete_topics(self, names: Iterable[str]) -> admin_pb2.DeleteTopicsResponse:
        """Deletes topics; each result says how it went."""
        request = admin_pb2.DeleteTopicsRequest(names=names)
        response: admin_pb2.DeleteTopicsResponse = await self._change("DeleteTopics", request)
        return response

    async def list_topics(self, after: str = "", limit: int = 0) -> admin_pb2.ListTopicsResponse:
        """One page of topics by name."""
        request = admin_pb2.ListTopicsRequest(after=after, limit=limit)
        response: admin_pb2.ListTopicsResponse = await self._read("ListTopics", request)
        return response

    async def all_topics(self) -> AsyncIterator[admin_pb2.TopicListing]:
        """All topics by name, page by page; each page is as of its own offset."""
        after, more = "", True
        while more:
            page = await self.list_topics(after)
            for topic in page.topics:
                yield topic
            more = page.more and bool(page.topics)
            after = page.topics[-1].name if page.topics else ""

    async def describe_topics(
        self, names: Iterable[str], first_partition: int = 0, limit: int = 0
    ) -> admin_pb2.DescribeTopicsResponse:
        """Topics with their partitions, at most `limit` partitions in all."""
        request = admin_pb2.DescribeTopicsRequest(names=names, first_partition=first_partition, limit=limit)
        response: admin_pb2.DescribeTopicsResponse = await self._read("DescribeTopics", request)
        return response

    async def describe_topic(self, name: str) -> admin_pb2.TopicDescription:
        """One topic with all of its partitions, or its error."""
        topic: admin_pb2.TopicDescription = _only((await self.describe_topics([name])).topics)
        while len(topic.partitions) < topic.partition_count:
            page = _only((await self.describe_topics([name], first_partition=len(topic.partitions))).topics)
            if not page.partitions or page.topic_id != topic.topic_id:
                break
            topic.partitions.extend(page.partitions)
        return topic

    # --- configs ---------------------------------------------------------------------------------------------------

    async def alter_configs(
        self, alterations: Iterable[admin_pb2.ConfigAlteration], *, validate_only: bool = False
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Alters configs key by key; each result says how it went."""
        request = admin_pb2.IncrementalAlterConfigsRequest(alterations=alterations, validate_only=validate_only)
        response: admin_pb2.IncrementalAlterConfigsResponse = await self._change("IncrementalAlterConfigs", request)
        return response

    async def describe_configs(
        self, resources: Iterable[admin_pb2.ConfigResource]
    ) -> admin_pb2.DescribeConfigsResponse:
        """What was set on the resources themselves."""
        response: admin_pb2.DescribeConfigsResponse = await self._read(
            "DescribeConfigs", admin_pb2.DescribeConfigsRequest(resources=resources)
        )
        return response

    # --- leaders ---------------------------------------------------------------------------------------------------

    async def elect_leaders(self, partitions: Mapping[str, Iterable[int]]) -> admin_pb2.ElectLeadersResponse:
        """Lets preferred replicas lead, of these partitions by topic; each result says how it went. At most 10,000."""
        topics = [admin_pb2.TopicPartitions(topic=name, partitions=numbers) for name, numbers in partitions.items()]
        request = admin_pb2.ElectLeadersRequest(topics=topics)
        response: admin_pb2.ElectLeadersResponse = await self._change("ElectLeaders", request)
        return response

    # --- brokers ---------------------------------------------------------------------------------------------------

    async def list_brokers(self) -> admin_pb2.ListBrokersResponse:
        """All registered brokers, as the active controller sees them."""
        response: admin_pb2.ListBrokersResponse = await self._read("ListBrokers", admin_pb2.ListBrokersRequest())
        return response

    async def partition_health(self, limit: int = 0) -> admin_pb2.DescribePartitionHealthResponse:
        """How many partitions lack a leader or replicas in sync; at most `limit` of each kind are named."""
        request = admin_pb2.DescribePartitionHealthRequest(limit=limit)
        response: admin_pb2.DescribePartitionHealthResponse = await self._read("DescribePartitionHealth", request)
        return response

    async def fence_broker(self, broker_id: int) -> admin_pb2.MutationResponse:
        """Fences a broker whose session has ended. Raises POLICY_VIOLATION for one that is heard: it would come back at once."""
        response: admin_pb2.MutationResponse = await self._change(
            "FenceBroker", admin_pb2.FenceBrokerRequest(broker_id=broker_id)
        )
        return response

    async def unregister_broker(self, broker_id: int) -> admin_pb2.MutationResponse:
        """Forgets a broker for good. Raises POLICY_VIOLATION for one that is heard, or that has replicas."""
        response: admin_pb2.MutationResponse = await self._change(
            "UnregisterBroker", admin_pb2.UnregisterBrokerRequest(broker_id=broker_id)
        )
        return response

    # --- the quorum ------------------------------------------------------------------------------------------------

    async def describe_quorum(self, endpoint: str | None = None) -> admin_pb2.DescribeQuorumResponse:
        """What the controller at `endpoint` knows of the quorum; without one, what the first that answers knows."""
        request = admin_pb2.DescribeQuorumRequest()
        response: admin_pb2.DescribeQuorumResponse = await self._ask_one("DescribeQuorum", request, endpoint)
        return response

    async def add_voter(self, voter: voter_pb2.Voter) -> admin_pb2.MutationResponse:
        """Lets a running, caught-up observer vote."""
        return await self._change_quorum("AddVoter", admin_pb2.AdminAddVoterRequest(voter=voter))

    async def remove_voter(self, node_id: int, directory_id: bytes) -> admin_pb2.MutationResponse:
        """Takes a voter's vote away; it goes on as an observer, if it runs."""
        voter = common_pb2.ReplicaKey(node_id=node_id, directory_id=directory_id)
        return await self._change_quorum("RemoveVoter", admin_pb2.AdminRemoveVoterRequest(voter=voter))

    async def transfer_leadership(self, target_id: int | None = None) -> admin_pb2.MutationResponse:
        """Has the leader hand over, to `target_id` or whoever has come furthest. Who leads then is to be asked for."""
        return await self._change_quorum("TransferLeadership", admin_pb2.TransferLeadershipRequest(target_id=target_id))

    async def can_restart(self, node_id: int) -> admin_pb2.CanRestartResponse:
        """Whether a majority of caught-up voters would remain without that controller."""
        response: admin_pb2.CanRestartResponse = await self._ask(
            "CanRestart", admin_pb2.CanRestartRequest(node_id=node_id)
        )
        return response

    async def _change_quorum(self, method: str, request: Any) -> admin_pb2.MutationResponse:
        response: admin_pb2.MutationResponse = await self._ask(method, request, repeatable=False)
        return response

    async def list_snapshots(self, endpoint: str | None = None) -> admin_pb2.ListSnapshotsResponse:
        """The snapshots on the disk of one controller."""
        request = admin_pb2.ListSnapshotsRequest()
        response: admin_pb2.ListSnapshotsResponse = await self._ask_one("ListSnapshots", request, endpoint)
        return response

    async def create_snapshot(self, reason: str = "") -> admin_pb2.MutationResponse:
        """Has a snapshot mark committed; every node then writes its snapshot at the response's offset.

        Without an id: if it has to be asked for twice there may be two marks, which does no harm.
        """
        response: admin_pb2.MutationResponse = await self._ask(
            "CreateSnapshot", admin_pb2.CreateSnapshotRequest(reason=reason)
        )
        return response

    async def leader(self) -> str:
        """`host:port` of the active controller, waiting for one to be known if need be."""
        await self._ask("ListTopics", admin_pb2.ListTopicsRequest(limit=1), metadata=((STAY_HERE, "1"),))
        return self._target

    async def submit(self) -> SubmitStream:
        """A pipelined stream of changes to the active controller. See `SubmitStream`."""
        target = await self.leader()
        return SubmitStream(self._stub(target).Submit(), target, self._cluster_id, self.timeout_s)

    # --- asking ----------------------------------------------------------------------------------------------------

    async def _read(self, method: str, request: Any) -> Any:
        if self._local:
            request.context.consistency = admin_pb2.RequestContext.LOCAL
            request.context.client_high_watermark = self._high_watermark
        response = await self._ask(method, request)
        if response.HasField("local"):
            self.local_view = response.local
        return response

    async def _change(self, method: str, request: Any) -> Any:
        """The active controller's answer to a change that is made once, however often it has to be sent."""
        request.context.request_id = secrets.token_bytes(16)
        return await self._ask(method, request)

    async def _ask(self, method: str, request: Any, *, repeatable: bool = True, metadata: Metadata = ()) -> Any:
        """The active controller's answer. `repeatable`: it may be sent more than once, as a read or a change with an id."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.timeout_s
        backoff_s, last = BACKOFF_FIRST_S, AdminError(ErrorCode.NOT_CONTROLLER, "nobody was asked")
        lost: AdminError | None = None
        is_stale = not self._high_watermark
        while (left_s := deadline_s - loop.time()) > 0:
            target = self._target
            attempt_s = min(left_s, ATTEMPT_S) if repeatable else left_s
            try:
                if request.context.request_id and not request.context.client_high_watermark:
                    if is_stale:
                        await self._see(target, attempt_s)
                    request.context.client_high_watermark = self._high_watermark
                response = await self._attempt(target, method, request, attempt_s, metadata)
                doubt = None if lost is None else _doubt(request, response)
                if doubt is None:
                    return response
                last = doubt
                break
            except AdminError as e:
                last = e
            if last.code is ErrorCode.REQUEST_ID_EXPIRED and lost is None:
                request.context.client_high_watermark = 0  # nothing was done: what this client had seen is too long ago
                is_stale = True
                continue
            if repeatable and isinstance(last, Unanswered) and last.code not in NEVER_REPEATED:
                lost = last if isinstance(last, MayHaveHappened) else lost
            elif last.code not in ASK_ELSEWHERE:
                break
            if not self._go_elsewhere(target, last.hint):
                await asyncio.sleep(max(0.0, min(backoff_s, deadline_s - loop.time())))
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
        else:
            last = NoLeader.after(self.timeout_s, last)
        if lost is not None and request.context.request_id:
            raise MayHaveHappened(ErrorCode.REQUEST_TIMED_OUT, f"{lost.message}; then: {last.message}") from last
        raise last

    async def _see(self, target: str, timeout_s: float) -> None:
        """Asks how far the log has come, before a change is first sent: so far back its outcome will not be forgotten soon."""
        try:
            await self._attempt(target, "ListTopics", admin_pb2.ListTopicsRequest(limit=1), timeout_s)
        except Unanswered as e:  # of a read, before the change
            raise NotReached(ErrorCode.BROKER_NOT_AVAILABLE, e.message) from e

    async def _ask_one(self, method: str, request: Any, endpoint: str | None) -> Any:
        """The answer of the controller at `endpoint`, or of the first that answers."""
        targets = [endpoint] if endpoint is not None else [self._target, *self.endpoints]
        last: AdminError | None = None
        for target in dict.fromkeys(targets):
            try:
                return await self._attempt(target, method, request, min(self.timeout_s, ATTEMPT_S))
            except (NotReached, Unanswered) as e:
                last = e
        assert last is not None
        raise last

    async def _attempt(self, target: str, method: str, request: Any, timeout_s: float, metadata: Metadata = ()) -> Any:
        request.context.cluster_id = self._cluster_id
        request.context.timeout_ms = max(1, int(timeout_s * 1_000))
        is_read = changes_nothing(method, request)
        try:
            # The server's own deadline comes first, so that what it knows about the outcome still arrives.
            response = await getattr(self._stub(target), method)(request, timeout=timeout_s + 0.25, metadata=metadata)
        except grpc.aio.AioRpcError as e:
            sent, size = not was_never_sent(e), request.ByteSize()
            raise error_of_call(target, e, sent=sent, size=size, is_read=is_read) from e
        code = response.error.code
        if code:
            raise AdminError.of(response.error, getattr(response, "leader", None), target, is_read=is_read)
        for name in _OFFSETS:
            self._high_watermark = max(self._high_watermark, getattr(response, name, 0))
        return response

    def _go_elsewhere(self, asked: str, hint: str | None) -> bool:
        """Where to ask next: the leader that was named, if that is another one (then True), or the next endpoint."""
        if hint is not None and hint != asked:
            self._target = hint
            return True
        self._turn = (self._turn + 1) % len(self.endpoints)
        self._target = self.endpoints[self._turn]
        return False

    def _stub(self, target: str) -> Any:
        if target not in self._stubs:
            channel = self._dial(target)
            stub = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
            self._stubs[target] = (channel, stub)
        return self._stubs[target][1]


def _doubt(request: Any, response: Any) -> AdminError | None:
    """Why this answer to a change, of which an attempt was lost before, does not settle what became of it.

    All was refused: controllers remember only what was done, so the lost attempt, if it is still on its way, might yet find
    another cluster, and do it. Or the lost attempt was done, and its results were too long to be remembered.
    """
    if not request.context.request_id or getattr(request, "validate_only", False) or not hasattr(response, "results"):
        return None
    if not response.results:
        text = f"it was done below offset {response.offset}; which parts of it were refused is not remembered"
        return AdminError(ErrorCode.REQUEST_TIMED_OUT, text)
    errors = [result.error for result in response.results]
    return AdminError.of(errors[0]) if all(error.code for error in errors) else None


def _only(results: Any, tolerate: ErrorCode | None = None) -> Any:
    """The one result, or its error, if that is not the one to `tolerate`."""
    (result,) = results
    error: common_pb2.Error = result.error
    if error.code and ErrorCode.of(error.code) is not tolerate:
        raise AdminError.of(error)
    return result


def _dial_insecurely(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, options=channel_options())
