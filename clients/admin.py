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
from typing import Any, Final, Self, TypeAlias, TypeVar

import grpc
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, common_pb2, voter_pb2

from clients.errors import AdminError, MayHaveHappened, NoLeader, NotReached, Unanswered, error_of_call
from clients.submit_stream import SubmitStream
from metadata_log.format.errors import ErrorCode
from service_kit.rpc.api_methods import ADMIN, Kind, changes_nothing
from service_kit.rpc.dial import was_never_sent
from service_kit.rpc.forwarding import STAY_HERE
from service_kit.rpc.grpc_options import channel_options
from service_kit.rpc.refusals import Refusal

Metadata: TypeAlias = tuple[tuple[str, str], ...]
R = TypeVar("R")

METHODS: Final = {
    method.input_type.full_name: method.name
    for method in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods
    if not method.client_streaming
}
"""The unary methods of AdminService. The keys are the names of the requests' types; no two methods share one."""

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
        return await self.call(request, admin_pb2.CreatePartitionsResponse)

    async def delete_topics(self, names: Iterable[str]) -> admin_pb2.DeleteTopicsResponse:
        """Deletes topics; each result says how it went."""
        request = admin_pb2.DeleteTopicsRequest(names=names)
        return await self.call(request, admin_pb2.DeleteTopicsResponse)

    async def list_topics(self, after: str = "", limit: int = 0) -> admin_pb2.ListTopicsResponse:
        """One page of topics by name."""
        request = admin_pb2.ListTopicsRequest(after=after, limit=limit)
        return await self.call(request, admin_pb2.ListTopicsResponse)

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
        return await self.call(request, admin_pb2.DescribeTopicsResponse)

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
        return await self.call(request, admin_pb2.IncrementalAlterConfigsResponse)

    async def describe_configs(
        self, resources: Iterable[admin_pb2.ConfigResource]
    ) -> admin_pb2.DescribeConfigsResponse:
        """What was set on the resources themselves."""
        return await self.call(admin_pb2.DescribeConfigsRequest(resources=resources), admin_pb2.DescribeConfigsResponse)

    # --- leaders ---------------------------------------------------------------------------------------------------

    async def elect_leaders(self, partitions: Mapping[str, Iterable[int]]) -> admin_pb2.ElectLeadersResponse:
        """Lets preferred replicas lead, of these partitions by topic; each result says how it went. At most 10,000."""
        topics = [admin_pb2.TopicPartitions(topic=name, partitions=numbers) for name, numbers in partitions.items()]
        request = admin_pb2.ElectLeadersRequest(topics=topics)
        return await self.call(request, admin_pb2.ElectLeadersResponse)

    # --- brokers ---------------------------------------------------------------------------------------------------

    async def list_brokers(self) -> admin_pb2.ListBrokersResponse:
        """All registered brokers, as the active controller sees them."""
        return await self.call(admin_pb2.ListBrokersRequest(), admin_pb2.ListBrokersResponse)

    async def partition_health(self, limit: int = 0) -> admin_pb2.DescribePartitionHealthResponse:
        """How many partitions lack a leader or replicas in sync; at most `limit` of each kind are named."""
        request = admin_pb2.DescribePartitionHealthRequest(limit=limit)
        return await self.call(request, admin_pb2.DescribePartitionHealthResponse)

    async def fence_broker(self, broker_id: int) -> admin_pb2.MutationResponse:
        """Fences a broker whose session has ended. Raises POLICY_VIOLATION for one that is heard: it would come back at once."""
        return await self.call(admin_pb2.FenceBrokerRequest(broker_id=broker_id), admin_pb2.MutationResponse)

    async def unregister_broker(self, broker_id: int) -> admin_pb2.MutationResponse:
        """Forgets a broker for good. Raises POLICY_VIOLATION for one that is heard, or that has replicas."""
        return await self.call(admin_pb2.UnregisterBrokerRequest(broker_id=broker_id), admin_pb2.MutationResponse)

    # --- the quorum ------------------------------------------------------------------------------------------------

    async def describe_quorum(self, endpoint: str | None = None) -> admin_pb2.DescribeQuorumResponse:
        """What the controller at `endpoint` knows of the quorum; without one, what the first that answers knows."""
        request = admin_pb2.DescribeQuorumRequest()
        return await self._call_one(request, admin_pb2.DescribeQuorumResponse, endpoint)

    async def add_voter(self, voter: voter_pb2.Voter) -> admin_pb2.MutationResponse:
        """Lets a running, caught-up observer vote."""
        return await self.call(admin_pb2.AdminAddVoterRequest(voter=voter), admin_pb2.MutationResponse)

    async def remove_voter(self, node_id: int, directory_id: bytes) -> admin_pb2.MutationResponse:
        """Takes a voter's vote away; it goes on as an observer, if it runs."""
        voter = common_pb2.ReplicaKey(node_id=node_id, directory_id=directory_id)
        return await self.call(admin_pb2.AdminRemoveVoterRequest(voter=voter), admin_pb2.MutationResponse)

    async def transfer_leadership(self, target_id: int | None = None) -> admin_pb2.MutationResponse:
        """Has the leader hand over, to `target_id` or whoever has come furthest. Who leads then is to be asked for."""
        return await self.call(admin_pb2.TransferLeadershipRequest(target_id=target_id), admin_pb2.MutationResponse)

    async def can_restart(self, node_id: int) -> admin_pb2.CanRestartResponse:
        """Whether a majority of caught-up voters would remain without that controller."""
        return await self.call(admin_pb2.CanRestartRequest(node_id=node_id), admin_pb2.CanRestartResponse)

    async def list_snapshots(self, endpoint: str | None = None) -> admin_pb2.ListSnapshotsResponse:
        """The snapshots on the disk of one controller."""
        request = admin_pb2.ListSnapshotsRequest()
        return await self._call_one(request, admin_pb2.ListSnapshotsResponse, endpoint)

    async def create_snapshot(self, reason: str = "") -> admin_pb2.MutationResponse:
        """Has a snapshot mark committed; every node then writes its snapshot at the response's offset.

        Without an id: if it has to be asked for twice there may be two marks, which does no harm.
        """
        request = admin_pb2.CreateSnapshotRequest(reason=reason)
        return await self.call(request, admin_pb2.MutationResponse, repeatable=True)

    async def leader(self) -> str:
        """`host:port` of the active controller, waiting for one to be known if need be."""
        await self._ask(admin_pb2.ListTopicsRequest(limit=1), metadata=((STAY_HERE, "1"),))
        return self._target

    async def submit(self) -> SubmitStream:
        """A pipelined stream of changes to the active controller. See `SubmitStream`."""
        target = await self.leader()
        return SubmitStream(self._stub(target).Submit(), target, self._cluster_id, self.timeout_s)

    # --- asking ----------------------------------------------------------------------------------------------------

    async def call(self, request: Any, response_type: type[R], *, repeatable: bool | None = None) -> R:
        """The active controller's answer to any request of AdminService; the request's type says which method is called.

        `repeatable`: the request may be sent again when its answer is missing. By default reads and changes with an id are.
        """
        kind = ADMIN[METHODS[request.DESCRIPTOR.full_name]]
        if kind is Kind.CHANGE_ONCE:
            request.context.request_id = secrets.token_bytes(16)
        elif kind is Kind.READ and self._local:
            request.context.consistency = admin_pb2.RequestContext.LOCAL
            request.context.client_high_watermark = self._high_watermark
        if repeatable is None:
            repeatable = kind is not Kind.CHANGE
        response: Any = await self._ask(request, repeatable=repeatable)
        if "local" in response.DESCRIPTOR.fields_by_name and response.HasField("local"):
            self.local_view = response.local
        assert isinstance(response, response_type), response
        return response

    async def _ask(self, request: Any, *, repeatable: bool = True, metadata: Metadata = ()) -> Any:
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
                response = await self._attempt(target, request, attempt_s, metadata)
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
            await self._attempt(target, admin_pb2.ListTopicsRequest(limit=1), timeout_s)
        except Unanswered as e:  # of a read, before the change
            raise NotReached(ErrorCode.BROKER_NOT_AVAILABLE, e.message) from e

    async def _call_one(self, request: Any, response_type: type[R], endpoint: str | None) -> R:
        """The answer of the controller at `endpoint`, or of the first that answers."""
        targets = [endpoint] if endpoint is not None else [self._target, *self.endpoints]
        last: AdminError | None = None
        for target in dict.fromkeys(targets):
            try:
                response = await self._attempt(target, request, min(self.timeout_s, ATTEMPT_S))
                assert isinstance(response, response_type), response
                return response
            except (NotReached, Unanswered) as e:
                last = e
        assert last is not None
        raise last

    async def _attempt(self, target: str, request: Any, timeout_s: float, metadata: Metadata = ()) -> Any:
        method = METHODS[request.DESCRIPTOR.full_name]
        request.context.cluster_id = self._cluster_id
        request.context.timeout_ms = max(1, int(timeout_s * 1_000))
        is_read = changes_nothing(method, request)
        try:
            # The server's own deadline comes first, so that what it knows about the outcome still arrives.
            response = await getattr(self._stub(target), method)(request, timeout=timeout_s + 0.25, metadata=metadata)
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            if refusal is not None:
                raise AdminError.of_refusal(refusal, target, is_read=is_read) from e
            sent, size = not was_never_sent(e), request.ByteSize()
            raise error_of_call(target, e, sent=sent, size=size, is_read=is_read) from e
        refused = getattr(response, "error", None)
        if refused is not None and refused.code:  # so release 0.1.0 refuses
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
