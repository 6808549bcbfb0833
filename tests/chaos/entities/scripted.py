"""Calls, answers and logs of entities that tests write by hand.

The number of a call stands for its request id. Times are so small that a test can name them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from quorum_rpc.v1 import entity_pb2

from clients.entities.messages import transact_request
from metadata_log.format.batch import Batch
from metadata_log.format.records import METADATA_VERSION, FeatureLevel, Record, RequestOutcome
from metaquorum import Condition, Operation
from tests.chaos.entities.recorder import ask_of
from tests.chaos.judge.history import Outcome
from tests.chaos.judge.test_committed import logged
from tests.chaos.operators.calls import OperatorCall
from tests.sim.history import History, Step

LEVEL: Final = FeatureLevel(METADATA_VERSION, 3)
"""The first record of each log here, at offset 0."""


def request_id(number: int) -> bytes:
    return bytes([number]) * 16


def named(number: int) -> RequestOutcome:
    """The last record of the batch that a call has made."""
    return RequestOutcome(number, request_id(number), bytes(32), "", 0, None)


def log_of(*batches: Record | list[Record]) -> list[Batch]:
    """A log with the level of entities at 0, and these batches from 1 on."""
    return logged([LEVEL, *batches])


def replayed(history: History, take: Callable[[Step], None], *, batches: Sequence[Batch]) -> None:
    """Appends the batches to the history, and gives each step to `take`."""
    for batch in batches:
        take(history.take(batch))


def _call(
    number: int, caller: str, request: Any, answer: Any, outcome: Outcome, at: tuple[int, int] | None
) -> OperatorCall:
    ask = ask_of(request, object)
    called_ns, returned_ns = at or (10 * number, 10 * number + 5)
    if answer is None:
        return OperatorCall(number, caller, ask, outcome, (), called_ns, returned_ns)
    offset = answer.as_of_offset if isinstance(answer, entity_pb2.GetEntitiesResponse) else answer.offset
    claims, is_free = tuple(ask.claims(answer)), ask.may_write_nothing(answer)
    return OperatorCall(number, caller, ask, outcome, claims, called_ns, returned_ns, offset, may_be_unwritten=is_free)


def did(
    number: int,
    conditions: Sequence[Condition],
    operations: Sequence[Operation],
    offset: int,
    *versions: int,
    at: tuple[int, int] | None = None,
) -> OperatorCall:
    """A transaction that was done, with the version in the result of each operation."""
    results = [entity_pb2.OperationResult(version=version) for version in versions]
    answer = entity_pb2.TransactResponse(offset=offset, succeeded=True, results=results)
    request = transact_request(conditions, operations)
    request.context.request_id = request_id(number)
    return _call(number, "register client 1", request, answer, Outcome.DONE, at)


def refused(
    number: int,
    conditions: Sequence[Condition],
    operations: Sequence[Operation],
    offset: int,
    place: int,
    version: int | None,
    at: tuple[int, int] | None = None,
) -> OperatorCall:
    """A transaction whose condition at `place` did not hold: the entity had this version; None: it did not exist."""
    failed = entity_pb2.FailedCondition(index=place)
    if version is not None:
        failed.entity.version = version
    answer = entity_pb2.TransactResponse(offset=offset, failed=failed)
    request = transact_request(conditions, operations)
    request.context.request_id = request_id(number)
    return _call(number, "register client 2", request, answer, Outcome.UNMET, at)


def unanswered(
    number: int,
    conditions: Sequence[Condition],
    operations: Sequence[Operation],
    outcome: Outcome = Outcome.UNKNOWN,
    at: tuple[int, int] | None = None,
) -> OperatorCall:
    """A transaction without an answer."""
    request = transact_request(conditions, operations)
    request.context.request_id = request_id(number)
    return _call(number, "register client 3", request, None, outcome, at)


def saw(
    number: int,
    offset: int,
    *found: tuple[str, bytes, int] | str,
    kind: str = "register",
    at: tuple[int, int] | None = None,
) -> OperatorCall:
    """A read that has seen these names, values and versions; a name alone: there was no such entity."""
    request, answer = entity_pb2.GetEntitiesRequest(), entity_pb2.GetEntitiesResponse(as_of_offset=offset)
    for place, each in enumerate(found):
        name = each if isinstance(each, str) else each[0]
        request.entities.add(kind=kind, name=name)
        if isinstance(each, str):
            answer.missing.append(place)
        else:
            answer.entities.add(kind=kind, name=name, value=each[1], version=each[2], created=each[2])
    return _call(number, "register client 4", request, answer, Outcome.DONE, at)
