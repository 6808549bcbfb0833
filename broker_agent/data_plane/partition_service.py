"""`PartitionService`: the records of this broker's partitions over gRPC, for followers, producers and consumers.

The service translates, and checks two things itself:

*The lease.* An answer as a leader needs the lease at the moment of the answer, after every wait (`docs/embedding.md`):

    1. Broker 101 leads orders-0. A consumer's fetch waits for records. The process is stopped (SIGSTOP) for 20 s.
    2. The controllers fence broker 101. Broker 102 leads, and has new records.
    3. The process goes on, and the fetch's time is up. Without a check, the answer would say that there is nothing new.
    4. The service asks for the lease, which is over: BROKER_NOT_AVAILABLE. The consumer asks another broker.

A broker that stops loses its lease when the controllers let it go, a moment before its process ends. Until then it answers the
producers of partitions that it has handed over: NOT_LEADER_OR_FOLLOWER, with the next leader (KIP-951). They follow in one round
trip.

A follower's fetch needs no lease: leader epochs and broker epochs decide if it counts.

*The follower.* Over TLS only the broker itself may fetch as a follower, because a fetch acknowledges records.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
from quorum_rpc.v1 import partition_pb2, partition_pb2_grpc

from broker_agent.client import CallFailed
from broker_agent.data_plane.append_messages import (
    Outcome,
    WriteOrRefused,
    append_response,
    record_count,
    terms_of,
    writes_of,
)
from broker_agent.data_plane.data_plane import DataPlane
from broker_agent.data_plane.fetch_messages import (
    LEADER_CODES,
    Fetch,
    error_message,
    fetch_of,
    fetch_response,
    place_message,
)
from broker_agent.data_plane.offset_messages import epoch_questions, offset_questions
from broker_agent.data_plane.producer_ids import ProducerIds
from broker_agent.partitions.effects import UNKNOWN_OFFSET
from broker_agent.session.isr_proposals import Place
from broker_agent.session.lifecycle import BrokerState
from broker_agent.wire import ServingBroker, describe
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_state import LEADER, LEADER_EPOCH
from service_kit.process.switches import frequent_switches
from service_kit.rpc.doors import Doors, NotAuthorized
from service_kit.rpc.refusals import Refusal
from service_kit.security.node_identity import BROKER

SERVICE: Final = partition_pb2.DESCRIPTOR.services_by_name["PartitionService"]
RECORDS_MAX: Final = 2_000
"""Maximum number of records that the event loop checks by itself: a few milliseconds. More are checked on a thread."""
FETCHES_MAX: Final = 300
"""The same for the partitions of a fetch."""
BYTES_IN_FLIGHT_MAX: Final = 256 << 20
"""Maximum number of bytes of records in all appends that wait."""
QUESTIONS_SLICE: Final = 100
"""How many questions are answered in one turn."""


class PartitionService(partition_pb2_grpc.PartitionServiceServicer):
    """The service of one broker, the same on all its listeners."""

    def __init__(self, broker: ServingBroker, data_plane: DataPlane, producer_ids: ProducerIds, doors: Doors) -> None:
        self._broker = broker
        self.data_plane = self._data_plane = data_plane
        self._producer_ids = producer_ids
        self._doors = doors
        self._bytes_in_flight = 0

    # --- appends -----------------------------------------------------------------------------------------------------

    async def Append(self, request: partition_pb2.AppendRequest, context: Any) -> partition_pb2.AppendResponse:  # noqa: N802
        """Appends a batch to each of the named partitions."""
        size = sum(len(each.records) for each in request.batches)
        self._bytes_in_flight += size
        try:
            return await self._append(request)
        except Refusal as e:
            return await e.end(context)
        finally:
            self._bytes_in_flight -= size

    async def _append(self, request: partition_pb2.AppendRequest) -> partition_pb2.AppendResponse:
        if self._bytes_in_flight > BYTES_IN_FLIGHT_MAX:
            text = (
                f"more than {BYTES_IN_FLIGHT_MAX >> 20} MiB of appends wait here. Nothing was done; send it again later"
            )
            raise Refusal("THROTTLING_QUOTA_EXCEEDED", text)
        acks, timeout_ms = terms_of(request)
        writes = await self._checked(request)
        outcomes = self._led_elsewhere(writes, "nothing was appended")
        if outcomes is None:
            self._check_lease()
            outcomes = await self._data_plane.append(writes, acks, timeout_ms)
            moved = self._led_elsewhere(writes, "the records may have been appended")
            if moved is None:
                self._check_lease(grpc.StatusCode.ABORTED, "The records may have been appended: send them again")
            outcomes = moved or outcomes
        return append_response([self._told(each) for each in outcomes], self._leader_of)

    def _led_elsewhere(self, writes: list[WriteOrRefused], what: str) -> list[Outcome] | None:
        """The outcomes if this broker stops, and has handed over all these partitions; None if not.

        "Not leader" is no answer as a leader, so that it needs no lease.
        """
        broker, image = self._broker, self._image
        if broker.may_serve() or broker.state not in (BrokerState.STOPPING, BrokerState.OFFLINE):
            return None
        for each in writes:
            topic = image.topic_by_id(each.place[0])
            state = None if topic is None else topic.state(each.place[1])
            if state is None or state[LEADER] in (NO_LEADER, broker.broker_id):
                return None
        text = f"this broker stops, and another one leads; {what}. Send the batch to that leader"
        return [Outcome(each.place, ErrorCode.NOT_LEADER_OR_FOLLOWER, text=text) for each in writes]

    async def _checked(self, request: partition_pb2.AppendRequest) -> list[WriteOrRefused]:
        if record_count(request) <= RECORDS_MAX:
            return list(writes_of(request))
        with frequent_switches():
            return await asyncio.to_thread(lambda: list(writes_of(request)))

    def _told(self, outcome: Outcome) -> Outcome:
        if outcome.base_offset != UNKNOWN_OFFSET:
            return outcome  # the records are in the log, and UNKNOWN_TOPIC_ID would say that they are not
        return outcome._replace(code=self._code(outcome.place, outcome.code))

    # --- fetches -----------------------------------------------------------------------------------------------------

    async def FetchRecords(  # noqa: N802
        self, request: partition_pb2.FetchRecordsRequest, context: Any
    ) -> partition_pb2.FetchRecordsResponse:
        """Reads batches, for a follower or a consumer."""
        try:
            if request.HasField("replica_id"):
                self._check_follower(context, request.replica_id)
            return await self._fetch(await self._fetch_of(request))
        except Refusal as e:
            return await e.end(context)

    async def _fetch_of(self, request: partition_pb2.FetchRecordsRequest) -> Fetch:
        if len(request.partitions) + len(request.forgotten) <= FETCHES_MAX:
            return fetch_of(request)
        with frequent_switches():
            return await asyncio.to_thread(fetch_of, request)

    def _check_follower(self, context: Any, broker_id: int) -> None:
        try:
            self._doors.caller(context).check_node(BROKER, broker_id)
        except NotAuthorized as e:
            raise Refusal("CLUSTER_AUTHORIZATION_FAILED", str(e)) from e

    async def _fetch(self, fetch: Fetch) -> partition_pb2.FetchRecordsResponse:
        if not fetch.is_follower:
            self._check_lease()
        answer = await self._data_plane.fetch(fetch)
        if answer.error is not ErrorCode.NONE:
            raise Refusal(answer.error.name, "no such session, or not this request of it. Begin a new session")
        if len(answer.answers) <= FETCHES_MAX:
            response = fetch_response(answer, self._code, self._leader_of)
        else:
            with frequent_switches():
                response = await asyncio.to_thread(fetch_response, answer, self._code, self._leader_of)
        if not fetch.is_follower:
            self._check_lease()
        return response

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def ListOffsets(  # noqa: N802
        self, request: partition_pb2.ListOffsetsRequest, context: Any
    ) -> partition_pb2.ListOffsetsResponse:
        """Finds the log start, the high watermark, or the first record that is not older than a time."""
        response = partition_pb2.ListOffsetsResponse()

        async def answer(each: Any) -> None:
            found = await self._data_plane.list_offset(each)
            told = response.partitions.add(partition=place_message(each.place), leader_epoch=found.leader_epoch)
            self._put_error(told, each.place, found.code)
            if found.offset is not None:
                told.offset, told.timestamp_ms = found.offset, found.timestamp_ms

        await self._answer_all(context, lambda: offset_questions(request), answer)
        return response

    async def OffsetForLeaderEpoch(  # noqa: N802
        self, request: partition_pb2.OffsetForLeaderEpochRequest, context: Any
    ) -> partition_pb2.OffsetForLeaderEpochResponse:
        """Tells where leader epochs end in the leader's log."""
        response = partition_pb2.OffsetForLeaderEpochResponse()

        async def answer(each: Any) -> None:
            found = self._data_plane.end_of_epoch(each)
            told = response.partitions.add(
                partition=place_message(each.place), leader_epoch=found.leader_epoch, end_offset=found.end_offset
            )
            self._put_error(told, each.place, found.code)

        await self._answer_all(context, lambda: epoch_questions(request), answer)
        return response

    async def _answer_all(
        self, context: Any, questions: Callable[[], Iterable[Any]], answer: Callable[[Any], Awaitable[None]]
    ) -> None:
        try:
            self._check_lease()
            for index, each in enumerate(questions()):
                await answer(each)
                if index % QUESTIONS_SLICE == QUESTIONS_SLICE - 1:
                    await asyncio.sleep(0)
            self._check_lease()
        except Refusal as e:
            await e.end(context)

    # --- producers ---------------------------------------------------------------------------------------------------

    async def AllocateProducerId(  # noqa: N802
        self, request: partition_pb2.AllocateProducerIdRequest, context: Any
    ) -> partition_pb2.AllocateProducerIdResponse:
        """Gives a producer an id that no other producer has had."""
        try:
            self._check_lease()
            producer_id = await self._allocated()
            self._check_lease()
            return partition_pb2.AllocateProducerIdResponse(producer_id=producer_id)
        except Refusal as e:
            return await e.end(context)

    async def _allocated(self) -> int:
        try:
            return await self._producer_ids.next()
        except CallFailed as e:
            raise Refusal("REQUEST_TIMED_OUT", f"{e}. Ask again, or ask another broker") from e

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_lease(
        self, status: grpc.StatusCode | None = None, todo: str = "Nothing was done; ask another broker"
    ) -> None:
        """Raises Refusal if this broker must not answer at this moment."""
        broker = self._broker
        if not broker.may_serve():
            text = f"broker {broker.broker_id} {describe(broker)}. {todo}"
            raise Refusal("BROKER_NOT_AVAILABLE", text, status=status)
        if not self._data_plane.inputs.has_caught_up:
            text = f"broker {broker.broker_id} has not carried out its assignments yet. {todo}"
            raise Refusal("BROKER_NOT_AVAILABLE", text, status=status)

    def _code(self, place: Place, code: ErrorCode) -> ErrorCode:
        """The code for a caller: a partition of no topic is not one with another leader."""
        is_gone = code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._image.topic_by_id(place[0]) is None
        return ErrorCode.UNKNOWN_TOPIC_ID if is_gone else code

    def _put_error(self, told: Any, place: Place, code: ErrorCode) -> None:
        code = self._code(place, code)
        error = error_message(code)
        if error is not None:
            told.error.CopyFrom(error)
        if code in LEADER_CODES and (leader := self._leader_of(place)) is not None:
            told.current_leader.CopyFrom(leader)

    @property
    def _image(self) -> Any:
        return self._broker.cache.current.image

    def _leader_of(self, place: Place) -> partition_pb2.CurrentLeader | None:
        """The leader of a partition in this broker's image (KIP-951); None if the partition is not there."""
        topic = self._image.topic_by_id(place[0])
        state = None if topic is None else topic.state(place[1])
        if state is None:
            return None
        leader = partition_pb2.CurrentLeader(leader_epoch=state[LEADER_EPOCH])
        if state[LEADER] >= 0:
            leader.leader_id = state[LEADER]
        return leader
