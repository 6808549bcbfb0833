"""The calls of operators: each with its request, its answer, and the claims of the answer."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from metadata_log.format.ids import Uuid
from metaquorum import AdminError
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


class OperatorCall(NamedTuple):
    """One call of one operator. Times are this process's monotonic nanoseconds."""

    number: int
    operator: int
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

    def __str__(self) -> str:
        at = "" if self.offset is None else f" @{self.offset}"
        return f"call {self.number} of operator {self.operator}, {self.ask.text}: {self.outcome}{at}"


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
