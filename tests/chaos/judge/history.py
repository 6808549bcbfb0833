"""The calls of clients on a real cluster, and their outcomes: the words that all checkers share.

One key is one topic. Its state is one number, the value of the config `retention.ms` of the live topic of that name, or
None where there is no such topic:

    create(v)   None -> v             refused with EXISTS where there is a topic
    set(v)      anything but None -> v     refused with MISSING where there is none
    delete      anything but None -> None  refused with MISSING where there is none
    read        tells the state

Every value is written by one operation only, so a value that is seen tells who wrote it.
"""

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

State: TypeAlias = int | None


class Kind(StrEnum):
    """The request of a client."""

    CREATE = "create"
    SET = "set"
    DELETE = "delete"
    READ = "read"


class Outcome(StrEnum):
    """The knowledge of the client about the outcome. EXISTS, MISSING and UNMET are refusals that say something of the state."""

    DONE = "done"
    EXISTS = "exists"
    MISSING = "missing"
    UNMET = "unmet"
    """A condition of a transaction on entities did not hold, so nothing was done."""
    FAILED = "failed"
    """Definitely not done, for a reason that says nothing about the state: nobody led, no broker was online."""
    UNKNOWN = "unknown"
    """It may have been done, may be done later, or never."""


TELLING = frozenset({Outcome.DONE, Outcome.EXISTS, Outcome.MISSING, Outcome.UNMET})
"""Outcomes that say something about the state, and carry the offset that they are as of."""


class Operation(NamedTuple):
    """One call of one client. Times are this process's monotonic nanoseconds."""

    number: int
    client: int
    key: str
    kind: Kind
    value: State
    """The value that a create or set writes, or that a read has seen; None for a delete."""
    outcome: Outcome
    called_ns: int
    returned_ns: int
    offset: int | None = None
    """For a change, the end of its batch; for a read or a refusal, the offset that it is as of."""
    why: str = ""

    @property
    def is_change(self) -> bool:
        return self.kind is not Kind.READ

    def __str__(self) -> str:
        argument = "" if self.kind in (Kind.READ, Kind.DELETE) else f"({self.value})"
        seen = f" = {self.value}" if self.kind is Kind.READ and self.outcome is Outcome.DONE else ""
        at = "" if self.offset is None else f" @{self.offset}"
        return f"#{self.number} client {self.client} {self.kind}{argument} {self.key}: {self.outcome}{seen}{at}"


def save(path: Path, operations: Iterable[Operation]) -> None:
    """One operation a line, for whoever looks into a failure."""
    with path.open("w") as file:
        for each in operations:
            file.write(json.dumps(each._asdict()) + "\n")


def load(path: Path) -> list[Operation]:
    """The history that `save` wrote."""
    with path.open() as file:
        return [_operation(json.loads(line)) for line in file]


def _operation(fields: dict[str, object]) -> Operation:
    read = Operation(**fields)  # type: ignore[arg-type]
    return read._replace(kind=Kind(read.kind), outcome=Outcome(read.outcome))


class Drawable(Protocol):
    """An operation of any object."""

    @property
    def number(self) -> int: ...
    @property
    def outcome(self) -> Outcome: ...
    @property
    def called_ns(self) -> int: ...
    @property
    def returned_ns(self) -> int: ...


def drawn(operations: Iterable[Drawable], marked: frozenset[int] = frozenset(), width: int = 60) -> str:
    """The operations as bars over time, oldest first; the marked ones with an arrow; an operation without an end ends in `~`."""
    shown = sorted(operations, key=lambda each: each.called_ns)
    if not shown:
        return "(no operations)"
    first = shown[0].called_ns
    last = max(each.returned_ns for each in shown)
    scale = (width - 1) / max(1, last - first)
    lines = []
    for each in shown:
        begin = round((each.called_ns - first) * scale)
        end = max(begin + 1, round((each.returned_ns - first) * scale))
        is_open = each.outcome is Outcome.UNKNOWN
        bar = " " * begin + "|" + "-" * (end - begin - 1) + ("~" if is_open else "|")
        lines.append(f"{'->' if each.number in marked else '  '} {bar:<{width + 1}} {each}")
    return "\n".join(lines)
