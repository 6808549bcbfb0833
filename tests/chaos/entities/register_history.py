"""The history of registers, as their clients know it, and its linearizability.

A transaction compares versions. The search for an order knows values: the answers tell which value has which version. Example:

    1. Client 1 puts a/1 = 7, and is told the version 40. Client 2 puts a/1 = 9 on condition that the version is 40, and is done.
    2. Client 3 puts a/1 = 11 on condition that the version is 40, and is done, too.
    3. Both need a state in which a/1 is 7. The put of client 2 ends this state, and nobody puts 7 again: there is no order.

All registers of one group are one object, because a transaction writes them together. A transaction of unknown outcome is placed
where the log has it, by its request id; one that is not in the log was never done.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorum_rpc.v1 import entity_pb2

from metadata_log.format.ids import Offset, Uuid
from quorum.controller.protocol.entity_commands import NO_VERSION
from tests.chaos.entities.claims import Deleted, EntityIs, Unmet
from tests.chaos.entities.registers import GROUPS, KIND
from tests.chaos.judge.history import Outcome, drawn
from tests.chaos.judge.linearizability import Possible, Span, check
from tests.chaos.judge.witness import Bounds
from tests.chaos.operators.calls import OperatorCall

Values: TypeAlias = tuple[bytes | None, ...]
"""The value of each register of a group; None: it does not exist."""
Pairs: TypeAlias = tuple[tuple[int, bytes | None], ...]
"""Places of registers in their group, each with a value."""
Versions: TypeAlias = Mapping[tuple[str, Offset], bytes | None]

SHOWN_BEFORE: Final = 12
SHOWN_AFTER: Final = 5
"""Operations drawn around a violation."""


class RegisterOperation(NamedTuple):
    """One read or transaction of the registers of a group. Times are this process's monotonic nanoseconds."""

    number: int
    text: str
    outcome: Outcome
    called_ns: int
    returned_ns: int
    tests: Pairs = ()
    """The conditions: the values that must be there before."""
    writes: Pairs = ()
    seen: Pairs = ()
    """The values that the answer shows from before: all that a read has seen, and what a transaction has deleted or found."""
    failed: int | None = None
    """The place of the condition that did not hold, among `tests`."""

    def __str__(self) -> str:
        seen = ", ".join("none" if value is None else value.decode() for _, value in self.seen)
        return f"{self.text}, saw {seen}" if seen else self.text


def register_step(state: Values, operation: RegisterOperation) -> Possible[Values]:
    """The state after the operation; None: the operation cannot have had its answer in this state."""
    if any(state[place] != value for place, value in operation.seen):
        return None
    held = [state[place] == value for place, value in operation.tests]
    if operation.outcome is Outcome.UNMET:
        assert operation.failed is not None
        return (state,) if all(held[: operation.failed]) and not held[operation.failed] else None
    if not all(held):
        return None
    after = list(state)
    for place, value in operation.writes:
        after[place] = value
    return (tuple(after),)


def versions_of(calls: Iterable[OperatorCall]) -> Versions:
    """The value of each version of each register, as the answers tell it."""
    return {
        (claim.name, claim.version): claim.value
        for call in calls
        for claim in call.claims
        if isinstance(claim, EntityIs) and claim.kind == KIND
    }


def spans_of(
    calls: Sequence[OperatorCall], group: Sequence[str], ends: Mapping[Uuid, Offset], bounds: Bounds
) -> list[Span[RegisterOperation]]:
    """The operations of one group. `ends`: where the log has each request, by its id."""
    versions = versions_of(calls)
    spans = []
    for call in calls:
        operation = _operation(call, group, versions)
        if operation is None:
            continue
        if call.outcome in (Outcome.DONE, Outcome.UNMET):
            spans.append(Span(operation, call.called_ns, call.returned_ns))
        elif call.outcome is Outcome.UNKNOWN and call.request_id in ends:
            spans.append(bounds.span(operation, ends[call.request_id]))
    return spans


def disorders(calls: Sequence[OperatorCall], ends: Mapping[Uuid, Offset], bounds: Bounds) -> list[str]:
    """A text for each group of registers whose history has no order."""
    found = []
    for group in GROUPS:
        spans = spans_of(calls, group, ends, bounds)
        nothing: Values = (None,) * len(group)
        blocked = check(spans, nothing, register_step).blocked
        if blocked is not None:
            operations = sorted((span.operation for span in spans), key=lambda each: each.called_ns)
            place = operations.index(blocked)
            near = operations[max(0, place - SHOWN_BEFORE) : place + SHOWN_AFTER]
            picture = drawn(near, frozenset({blocked.number}))
            found.append(
                f"the registers {', '.join(group)} are not linearizable: nothing explains {blocked}\n{picture}"
            )
    return found


def _operation(call: OperatorCall, group: Sequence[str], versions: Versions) -> RegisterOperation | None:
    """None: the call is not about these registers, or its client knows nothing of it."""
    places = {name: place for place, name in enumerate(group)}
    begun = RegisterOperation(call.number, str(call), call.outcome, call.called_ns, call.returned_ns)
    match call.ask.request:
        case entity_pb2.GetEntitiesRequest():
            if call.outcome is not Outcome.DONE:
                return None
            read = [claim for claim in call.claims if isinstance(claim, EntityIs) and claim.kind == KIND]
            seen = tuple((places[claim.name], claim.value) for claim in read if claim.name in places)
            return begun._replace(seen=seen) if seen else None
        case entity_pb2.TransactRequest() as request if _registers(request) & places.keys():
            return begun._replace(
                tests=tuple(_tests(request, places, versions)),
                writes=tuple(_writes(request, places)),
                seen=tuple(_seen(call, places, versions)),
                failed=next((claim.place for claim in call.claims if isinstance(claim, Unmet)), None),
            )
    return None


def _registers(request: entity_pb2.TransactRequest) -> set[str]:
    """The registers that the transaction writes."""
    written = [each.put.entity if each.HasField("put") else each.delete for each in request.operations]
    return {each.name for each in written if each.kind == KIND}


def _tests(
    request: entity_pb2.TransactRequest, places: Mapping[str, int], versions: Versions
) -> Iterable[tuple[int, bytes | None]]:
    for each in request.conditions:
        name, version = each.entity.name, each.version
        is_absent = each.WhichOneof("test") == "exists"
        yield places[name], None if is_absent else versions.get((name, version), b"untold value of %d" % version)


def _writes(request: entity_pb2.TransactRequest, places: Mapping[str, int]) -> Iterable[tuple[int, bytes | None]]:
    for each in request.operations:
        if each.HasField("put"):
            yield places[each.put.entity.name], each.put.value
        else:
            yield places[each.delete.name], None


def _seen(call: OperatorCall, places: Mapping[str, int], versions: Versions) -> Iterable[tuple[int, bytes | None]]:
    """The former values that the answer tells by their versions, as far as some answer tells the value of the version."""
    for claim in call.claims:
        if isinstance(claim, Deleted):
            name, version = claim.name, claim.version
        elif isinstance(claim, Unmet):
            name, version = claim.conditions[claim.place].entity[1], claim.version
        else:
            continue
        if version == NO_VERSION or (name, version) in versions:
            yield places[name], versions.get((name, version))
