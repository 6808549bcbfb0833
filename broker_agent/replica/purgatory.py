"""Writes that wait until their records are durable: Kafka's produce purgatory of one partition.

    acks=0     nothing waits: the client wants no answer
    acks=1     the write is done when the leader's own disk has its records
    acks=all   the write is done when the high watermark has passed its records

Example: leader 1 of the ISR 1,2 with min.insync.replicas 2.
    1. A write with acks=all appends [4,6), and waits for the high watermark 6.
    2. Follower 2 fetches at 6: the high watermark is 6, and the write is done.
    3. The next write appends [6,8). Broker 2 dies, and the ISR is 1: the high watermark stays at 6.
    4. At the write's deadline the answer is NOT_ENOUGH_REPLICAS_AFTER_APPEND: the records are in the leader's log, and may be
       acknowledged to nobody. A write that times out while the ISR is large enough gets REQUEST_TIMED_OUT.
    5. A leader that resigns answers NOT_LEADER_OR_FOLLOWER to all writes that wait.

An idempotent producer repeats such a write without duplicates. The repeated write appends nothing, and waits for the old offsets.
"""

from dataclasses import dataclass
from enum import IntEnum, unique
from heapq import heappop, heappush

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset


@unique
class Acks(IntEnum):
    """The durability that a producer asks for; the numbers are Kafka's."""

    NONE = 0
    LEADER = 1
    ALL = -1


@dataclass(frozen=True, slots=True)
class ProduceDone:
    """Effect: answer the write with this token. NONE: the records below the end of the write are as durable as asked."""

    token: int
    code: ErrorCode


class Purgatory:
    """The waiting writes of one leadership."""

    def __init__(self) -> None:
        self._ends: dict[Acks, list[tuple[Offset, int]]] = {Acks.LEADER: [], Acks.ALL: []}
        """Heaps of the ends and tokens of the writes."""
        self._deadlines: list[tuple[int, int]] = []
        self._waiting: dict[int, Acks] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, token: int, end: Offset, acks: Acks, deadline_ms: int) -> None:
        """Add a write whose records end at `end`. Its caller has appended the records, now or before."""
        assert acks is not Acks.NONE, "a write with acks=0 has no answer to wait for"
        assert token not in self._waiting, f"write {token} waits already"
        heappush(self._ends[acks], (end, token))
        self._waiting[token] = acks
        heappush(self._deadlines, (deadline_ms, token))

    def reached(self, acks: Acks, offset: Offset, code: ErrorCode) -> list[ProduceDone]:
        """End the writes of this kind whose records are below `offset`."""
        ends, done = self._ends[acks], []
        while ends and ends[0][0] <= offset:
            _, token = heappop(ends)
            if self._waiting.pop(token, None) is not None:
                done.append(ProduceDone(token, code))
        return done

    def expire(self, now_ms: int, code_of_all: ErrorCode) -> list[ProduceDone]:
        """End the writes whose deadline has come. `code_of_all` is the answer to writes with acks=all."""
        done = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, token = heappop(self._deadlines)
            acks = self._waiting.pop(token, None)
            if acks is not None:
                done.append(ProduceDone(token, code_of_all if acks is Acks.ALL else ErrorCode.REQUEST_TIMED_OUT))
        return done

    def fail(self, code: ErrorCode) -> list[ProduceDone]:
        """End all writes that wait."""
        done = [ProduceDone(token, code) for token in self._waiting]
        for ends in self._ends.values():
            ends.clear()
        self._deadlines.clear()
        self._waiting.clear()
        return done

    def next_deadline_ms(self) -> int | None:
        """When the next write may expire."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
