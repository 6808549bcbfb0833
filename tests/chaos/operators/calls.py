"""The calls of operators and of clients of entities: each with its request, its answer, and the claims of the answer."""

import json
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from metadata_log.format.ids import Uuid
from metaquorum import AdminError, Unanswered
from tests.chaos.judge.history import Outcome
from tests.chaos.operators.claims import Claim


class Ask(NamedTuple):
    """A call to make. `claims` reads the claims out of the answer."""

    kind: str
    """The word under which the call is counted."""
    text: str
    request: Any
    response_type: type[Any]
    claims: Callable[[Any], list[Claim]]
    """Raises AdminError: each part of the request was refused, and nothing was done."""
    may_write_nothing: Callable[[Any], bool] = lambda answer: False
    """True of an answer that may stand without a record in the log."""


class OperatorCall(NamedTuple):
    """One call of one operator, or of one client of entities. Times are this process's monotonic nanoseconds."""

    number: int
    caller: str
    ask: Ask
    outcome: Outcome
    claims: tuple[Claim, ...]
    called_ns: int
    returned_ns: int
    offset: int | None = None
    """For a change, one past its last record; for a read, the offset that it is as of."""
    is_local: bool = False
    """One node answered out of its own image, which may be old."""
    why: str = ""
    may_be_unwritten: bool = False
    """The answer may stand without a record in the log, because nothing had to be written."""

    @property
    def request_id(self) -> Uuid:
        """The name of a change in the log; empty for a read."""
        return bytes(self.ask.request.context.request_id)

    @property
    def is_change(self) -> bool:
        return bool(self.request_id)

    @property
    def is_done(self) -> bool:
        return self.outcome is Outcome.DONE

    @property
    def is_write(self) -> bool:
        """True of an acknowledged change with a record in the log."""
        return self.is_change and self.is_done and not self.may_be_unwritten

    def __str__(self) -> str:
        at = "" if self.offset is None else f" @{self.offset}"
        return f"call {self.number} of {self.caller}, {self.ask.text}: {self.outcome}{at}"


async def noted(number: int, caller: str, ask: Ask, answering: Awaitable[Any]) -> tuple[OperatorCall, Any | AdminError]:
    """Awaits the answer to a call. Returns the call with its outcome and claims, and the answer or the error."""
    called_ns = time.monotonic_ns()
    call = OperatorCall(number, caller, ask, Outcome.UNKNOWN, (), called_ns, called_ns)
    answer: Any
    try:
        answer = await answering
        is_read = "as_of_offset" in answer.DESCRIPTOR.fields_by_name
        call = call._replace(
            outcome=Outcome.DONE if getattr(answer, "succeeded", True) else Outcome.UNMET,
            claims=tuple(ask.claims(answer)),
            offset=answer.as_of_offset if is_read else answer.offset,
            is_local=is_read and answer.HasField("local"),
            may_be_unwritten=ask.may_write_nothing(answer),
        )
    except AdminError as e:
        answer = e
        outcome = Outcome.UNKNOWN if isinstance(e, Unanswered) else Outcome.FAILED
        call = call._replace(outcome=outcome, why=f"{e.code.name}: {e.message}")
    return call._replace(returned_ns=time.monotonic_ns()), answer


def done_parts(results: Iterable[Any]) -> list[Any]:
    """The results of the parts that were done.

    Raises:
        AdminError: the first refusal, if there is no such part.
    """
    whole = list(results)
    found = [each for each in whole if not each.error.code]
    if not found:
        raise AdminError.of(whole[0].error)
    return found


def save(path: Path, calls: Iterable[OperatorCall]) -> None:
    """Writes one call a line, for people who look into a failure."""
    with path.open("w") as file:
        for each in calls:
            texts = {
                "ask": each.ask.text,
                "request_id": each.request_id.hex(),
                "claims": [str(one) for one in each.claims],
            }
            fields = each._asdict() | texts
            file.write(json.dumps(fields) + "\n")
