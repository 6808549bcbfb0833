"""Clients of entities that note each of their calls, with the claims of its answer.

The client is production's, and so are the sessions and recipes on top of it. Every request of theirs passes `call`, so the
list has all that a run can have written, also the places in queues that no test has asked for by name.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from quorum_rpc.v1 import entity_pb2

from metadata_log.format.ids import Offset
from metaquorum import AdminError, EntityClient, ErrorCode
from quorum.controller.protocol.entity_commands import NO_VERSION
from quorum.wire.convert.convert_entities import from_transact
from tests.chaos.clients import AsksOnce
from tests.chaos.entities.claims import Deleted, EntityIs, Listed, SessionIs, Unmet
from tests.chaos.judge.history import Outcome
from tests.chaos.operators.calls import Ask, OperatorCall, noted
from tests.chaos.operators.claims import Claim

R = TypeVar("R")


class Recorder:
    """All calls of all clients of entities."""

    def __init__(self) -> None:
        self.calls: list[OperatorCall] = []
        self.oddities: list[str] = []
        """Errors that no client should ever get."""
        self.numbers = itertools.count(1)


class RecordedClient(EntityClient):
    """An EntityClient that notes its calls. It repeats a change without an answer, under the same request id."""

    def __init__(
        self, recorder: Recorder, caller: str, endpoints: Sequence[str], cluster_id: str, timeout_s: float
    ) -> None:
        super().__init__(endpoints, cluster_id, timeout_s)
        self.as_of: Offset = -1
        """The offset of the last answer."""
        self._recorder = recorder
        self._caller = caller

    async def call(self, request: Any, response_type: type[R], *, repeatable: bool = True) -> R:
        number, ask = next(self._recorder.numbers), ask_of(request, response_type)
        called_ns = time.monotonic_ns()
        try:
            answering = super().call(request, response_type, repeatable=repeatable)
            call, answer = await noted(number, self._caller, ask, answering)
        except asyncio.CancelledError:
            returned_ns = time.monotonic_ns()
            cut = OperatorCall(number, self._caller, ask, Outcome.UNKNOWN, (), called_ns, returned_ns, why="cancelled")
            self._recorder.calls.append(cut)
            raise
        self._recorder.calls.append(call)
        if isinstance(answer, AdminError):
            if answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self._recorder.oddities.append(f"{call}: {call.why}")
            raise answer
        assert isinstance(answer, response_type) and call.offset is not None, answer
        self.as_of = call.offset
        return answer


class RecordedOnce(AsksOnce, RecordedClient):
    """A RecordedClient that asks once for a change."""


def ask_of(request: Any, response_type: type[Any]) -> Ask:
    """The call of a request, with what its answer will claim."""
    match request:
        case entity_pb2.TransactRequest():
            return Ask(
                "transaction",
                _text(request),
                request,
                response_type,
                lambda answer: _transacted(request, answer),
                lambda answer: all(result.version == NO_VERSION for result in answer.results),
            )
        case entity_pb2.GetEntitiesRequest():
            text = f"get {', '.join(_name(each) for each in request.entities)}"
            return Ask("entities read", text, request, response_type, lambda answer: _got(request, answer))
        case entity_pb2.ListEntitiesRequest():
            text = f"list {request.kind}/{request.prefix}"
            return Ask("entities listed", text, request, response_type, lambda answer: _listed(request, answer))
        case entity_pb2.OpenSessionRequest():
            text = f"open the session {request.session_id.hex()} ({request.name})"
            return Ask(
                "session opened",
                text,
                request,
                response_type,
                lambda answer: [SessionIs(request.session_id, answer.epoch)],
                lambda _: True,
            )
        case entity_pb2.CloseSessionRequest():
            text = f"close the session {request.session_id.hex()}"
            return Ask(
                "session closed",
                text,
                request,
                response_type,
                lambda _: [SessionIs(request.session_id, None)],
                lambda _: True,
            )
    raise AssertionError(f"no client of entities sends {type(request).__name__}")


def _transacted(request: entity_pb2.TransactRequest, answer: entity_pb2.TransactResponse) -> list[Claim]:
    if not answer.succeeded:
        version = answer.failed.entity.version if answer.failed.HasField("entity") else NO_VERSION
        return [Unmet(from_transact(request).conditions, answer.failed.index, version)]
    found: list[Claim] = []
    for operation, result in zip(request.operations, answer.results, strict=True):
        if operation.HasField("put"):
            put = operation.put
            found.append(EntityIs(put.entity.kind, put.entity.name, put.value, result.version))
        else:
            found.append(Deleted(operation.delete.kind, operation.delete.name, result.version))
    return found


def _got(request: entity_pb2.GetEntitiesRequest, answer: entity_pb2.GetEntitiesResponse) -> list[Claim]:
    missing = [request.entities[place] for place in answer.missing]
    return [
        *(EntityIs(each.kind, each.name, each.value, each.version) for each in answer.entities),
        *(EntityIs(each.kind, each.name, None) for each in missing),
    ]


def _listed(request: entity_pb2.ListEntitiesRequest, answer: entity_pb2.ListEntitiesResponse) -> list[Claim]:
    assert not answer.next_page_token, "the lists of a chaos run have one page"
    entities = tuple((each.name, each.version, each.created) for each in answer.entities)
    return [Listed(request.kind, request.prefix, entities)]


def _name(message: entity_pb2.EntityName) -> str:
    return f"{message.kind}/{message.name}"


def _text(request: entity_pb2.TransactRequest) -> str:
    """Short, for people: `if a/1@40 a/2 absent: put a/1 = 7, delete a/2`."""
    conditions = [
        f"{_name(each.entity)}{f'@{each.version}' if each.HasField('version') else ' absent'}"
        for each in request.conditions
    ]
    operations = [
        f"put {_name(each.put.entity)} = {each.put.value.decode()}"
        if each.HasField("put")
        else f"delete {_name(each.delete)}"
        for each in request.operations
    ]
    return (f"if {' '.join(conditions)}: " if conditions else "") + ", ".join(operations)
