"""The calls of producers and consumers, and their answers: what the judge of partitions judges.

Every record of a run has a value of its own, so that the judge knows the record wherever it turns up. Times are monotonic
nanoseconds of the harness. A send is one batch, repeated by its producer under one sequence number until its outcome is known.
"""

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Fate(StrEnum):
    """The outcome of a send."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """No attempt can have been appended."""
    UNKNOWN = "unknown"


class Send(NamedTuple):
    """One batch of one producer. `offset`: that of the first record, if the batch was acknowledged."""

    producer: str
    partition: int
    values: tuple[str, ...]
    sent_ns: int
    ended_ns: int
    fate: Fate
    offset: int | None = None

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at {self.offset}"
        return f"{self.producer} sent {self.values[0]}..{self.values[-1]} to {self.partition}: {self.fate}{where}"


class Seen(NamedTuple):
    """One answer to a consumer: the records from `offset` on, one after the other, and the high watermark.

    `leader_epoch`: the epoch that the consumer named in its fetch, so that only the leader of this epoch can have answered.
    """

    consumer: str
    partition: int
    asked_ns: int
    answered_ns: int
    leader_epoch: int
    high_watermark: int
    offset: int
    values: tuple[str, ...]

    def __str__(self) -> str:
        end = self.offset + len(self.values)
        return f"{self.consumer} read [{self.offset}, {end}) of {self.partition} in epoch {self.leader_epoch}"


class History(NamedTuple):
    """All calls of a run."""

    sends: list[Send]
    reads: list[Seen]


def save(path: Path, history: History) -> None:
    """One line of JSON for each call, for people."""
    with path.open("w") as file:
        for call in _all(history):
            file.write(json.dumps({"call": type(call).__name__, **call._asdict()}) + "\n")


def _all(history: History) -> Iterable[Send | Seen]:
    yield from history.sends
    yield from history.reads
