"""The notes of a load's clients, and their judgement. Pure.

The judge is that of `tests.chaos.data`. What the consumer has read, from offset 0 on without a gap, counts as the log:

    1. Producer p1 sent b"p1-7". The leader acknowledged offset 5 of partition 3.
    2. The consumer must have read offset 5 of partition 3 once, after offset 4, with the value b"p1-7".
    3. No record may fail: each restart is shorter than `delivery_timeout_ms`.
"""

from typing import NamedTuple

from tests.chaos.data.history import Fate, History, Send
from tests.chaos.data.judge import judge_partition
from tests.chaos.judge.judging import at_most


class Append(NamedTuple):
    """One acknowledged record: when it was due, and how long it took from then on."""

    due_ns: int
    took_ns: int


class Totals(NamedTuple):
    """The load so far, counted in records."""

    sent: int
    acknowledged: int
    read: int


class Notes:
    """See the file's head. Every record is one send with a value of its own."""

    def __init__(self, partitions: int) -> None:
        self.appends: list[Append] = []
        self._sent = 0
        self._sends: list[Send] = []
        self._logs: list[list[str]] = [[] for _ in range(partitions)]
        self._acknowledged_ends = [0] * partitions
        self._read = 0
        self._problems: list[str] = []

    @property
    def totals(self) -> Totals:
        return Totals(self._sent, len(self.appends), self._read)

    def sent(self) -> None:
        """A producer takes a record."""
        self._sent += 1

    def acknowledged(self, send: Send, offset: int, due_ns: int) -> None:
        """The leader has acknowledged the record at `offset`."""
        self.appends.append(Append(due_ns, send.ended_ns - due_ns))
        self._sends.append(send._replace(fate=Fate.ACKNOWLEDGED, offset=offset))
        self._acknowledged_ends[send.partition] = max(offset + 1, self._acknowledged_ends[send.partition])

    def failed(self, send: Send, *, may_be_written: bool) -> None:
        """The producer has given up."""
        self._sends.append(send._replace(fate=Fate.UNKNOWN if may_be_written else Fate.FAILED))

    def read(self, partition: int, offset: int, value: str) -> bool:
        """The consumer has got a record. False: the offset is not the next one, so nothing further counts."""
        log = self._logs[partition]
        if offset != len(log):
            self._problems.append(f"partition {partition}: the consumer got offset {offset}, and not {len(log)}")
            return False
        log.append(value)
        self._read += 1
        return True

    def unread(self) -> dict[int, str]:
        """By partition, how far the consumer is behind the end of what was acknowledged."""
        ends = enumerate(zip(self._logs, self._acknowledged_ends, strict=True))
        return {partition: f"{len(log)} of {end}" for partition, (log, end) in ends if len(log) < end}

    def judge(self) -> list[str]:
        """Whole sentences about records that are lost, twice, at another offset, out of order, or not acknowledged."""
        history = History(self._sends, [])
        found = [text for at, log in enumerate(self._logs) for text in judge_partition(at, history, log).problems]
        failed = [str(send) for send in self._sends if send.fate is not Fate.ACKNOWLEDGED]
        without_end = self._sent - len(self._sends)
        ends = [f"{without_end} records were taken by a producer and have no end"] if without_end else []
        return [*self._problems, *at_most(found), *at_most(failed), *ends]
