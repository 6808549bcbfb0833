"""Random histories of one producer: leaders that move, lose answers, answer late, crash, refuse; topics created anew.

A request meets one of these fates: its answer comes; its answer is lost; the request is lost; nobody listens; or the request
arrives long after the producer has given it up. After the history the network heals, and the laws are checked:

1. Each record has exactly one end.
2. No log has a record twice (with idempotence).
3. An acknowledged record is in the log, at the offset that was told.
4. The acknowledged records of a log are in the order in which they were enqueued.
5. A record that failed with NotWritten is in no log, and never comes.
6. With time enough no record expires, and without fatal errors every record is delivered.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clients.metadata.cluster import Cluster, TopicPartition
from clients.partition_values import Appended, CallFailure
from clients.producer.config import ProducerConfig
from clients.producer.effects import AskProducerId, Delivered, NotDelivered, NoteStale, ProducerEffects, SendAppend
from clients.producer.errors import SendError
from clients.producer.producer_core import ProducerCore
from metadata_log.format.data_batch import DataRecord, pack_record
from metadata_log.format.errors import ErrorCode
from tests.clients.producer.driving import AWAY, LATE, LOST
from tests.clients.producer.leaders import BROKERS, FakeCluster

REQUEST_TIMEOUT_MS = 3_000


@dataclass(frozen=True)
class Faults:
    """How bad the world is."""

    bad: float = 0.3
    """The share of requests with a bad fate."""
    moves: float = 0.02
    """The chance of a new leader at each event."""
    recreates: float = 0.0
    fatal: float = 0.0
    """The chance that a batch is refused for good."""
    commits: float = 0.9
    """The share of appends that are committed at once."""
    delivery_timeout_ms: int = 1_000_000
    is_complete: bool = True
    idempotent: bool = True

    @property
    def has_time(self) -> bool:
        return self.delivery_timeout_ms >= 1_000_000

    @property
    def all_must_arrive(self) -> bool:
        return self.fatal == 0 and not self.recreates


class LawBroken(AssertionError):
    """A law does not hold in this history."""


class History:
    """One seed."""

    def __init__(self, seed: int, faults: Faults, make: Callable[..., ProducerCore] = ProducerCore) -> None:
        self.dice = random.Random(seed)
        self.faults = faults
        self.cluster = FakeCluster([("a", 2), ("b", 1)], is_complete=faults.is_complete)
        config = ProducerConfig(
            acks="all" if faults.idempotent else 1,
            linger_ms=self.dice.choice((0, 5)),
            batch_size=self.dice.choice((1, 60)),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=faults.delivery_timeout_ms,
        )
        self.core = make(config, random.Random(seed))
        self.view = self.cluster.view()
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.enqueued: dict[TopicPartition, list[bytes]] = {key: [] for key in self.cluster.logs}
        self.ends: dict[bytes, int | SendError | None] = {}
        self.in_flight = 0
        self.is_healed = False

    # --- the world -----------------------------------------------------------------------------------------------

    def _at(self, ms: int, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + ms, self._count, do))

    def run(self, records: int) -> None:
        """Runs the whole history. Raises LawBroken."""
        at_ms = 0
        for number in range(records):
            at_ms += self.dice.choice((0, 0, 0, 1, 10, 300))
            self._at(at_ms, lambda number=number: self._enqueue(number))  # type: ignore[misc]
        self._at(at_ms + 60_000, self._heal)
        self._pump(lambda: self.is_healed and len(self.ends) == records and not self.in_flight and not self._events)
        self._check(records)

    def _pump(self, is_over: Callable[[], bool]) -> None:
        for _ in range(50_000):
            if is_over():
                return
            next_ms = self.core.next_ms(self.now_ms)
            if self._events and (next_ms is None or self._events[0][0] <= next_ms):
                self.now_ms, _, do = heapq.heappop(self._events)
                do()
                self._trouble()
            else:
                if next_ms is None:
                    raise LawBroken("law 1: nothing will happen any more, and records have no end")
                self.now_ms = max(self.now_ms, next_ms)
            self._carry_out(self.core.step(self.view, self.now_ms))
        raise LawBroken("law 1: the history does not end")

    def _enqueue(self, number: int) -> None:
        key = self.dice.choice(list(self.enqueued))
        value = b"%d" % number
        self.enqueued[key].append(value)
        self.core.enqueue(key, pack_record(DataRecord(0, None, value)), 0, value, self.now_ms)

    def _trouble(self) -> None:
        if self.is_healed:
            return
        dice = self.dice
        if dice.random() < self.faults.moves:
            log = dice.choice(list(self.cluster.logs.values()))
            log.elect(dice.choice((*BROKERS, None)), dice)
        if dice.random() < self.faults.moves:
            log = dice.choice(list(self.cluster.logs.values()))
            log.below_min_isr = not log.below_min_isr
        if dice.random() < self.faults.recreates:
            self.cluster.create("b", 1)

    def _heal(self) -> None:
        self.is_healed = True
        for log in self.cluster.logs.values():
            log.below_min_isr = False
            log.elect(1, self.dice)
        self.view = self.cluster.view()

    # --- the network ---------------------------------------------------------------------------------------------

    def _carry_out(self, effects: ProducerEffects) -> None:
        for effect in effects:
            match effect:
                case SendAppend():
                    self._send(effect)
                case AskProducerId():
                    self._ask_for_id()
                case NoteStale():
                    view = self.cluster.view()  # as of now; it arrives later
                    self._at(self.dice.choice((1, 50, 500)), lambda view=view: self._see(view))  # type: ignore[misc]
                case Delivered():
                    for place, token in enumerate(effect.tokens):
                        self._end(token, None if effect.base_offset is None else effect.base_offset + place)
                case NotDelivered():
                    for token in effect.tokens:
                        self._end(token, effect.error)

    def _see(self, view: Cluster) -> None:
        """Takes metadata, with the rule of the metadata client: neither leader epochs nor topics go back."""
        old = self.view.topic_ids
        epochs = {key: (old[key.topic], each.leader_epoch or 0) for key, each in self.view.partitions.items()}
        news = {key: (view.topic_ids[key.topic], each.leader_epoch or 0) for key, each in view.partitions.items()}
        if all(news[key] >= epochs[key] for key in epochs):
            self.view = view

    def _end(self, token: Any, end: int | SendError | None) -> None:
        if token in self.ends:
            raise LawBroken(f"law 1: {token} has two ends: {self.ends[token]} and {end}")
        self.ends[token] = end

    def _ask_for_id(self) -> None:
        def end() -> None:
            if self.is_healed or self.dice.random() < 0.5:
                self.core.id_allocated(7)
            else:
                self.core.id_refused("no controller", self.now_ms)

        self._at(5, end)

    def _send(self, send: SendAppend) -> None:
        dice = self.dice
        self.in_flight += 1
        there_ms, back_ms = dice.choice((1, 5, 40)), dice.choice((1, 5, 40))
        if self.is_healed or dice.random() >= self.faults.bad:
            self._at(there_ms, lambda: self._arrive(send, back_ms))
            return
        match dice.randrange(4):
            case 0:
                self._at(there_ms, lambda: self._arrive(send, None))
                self._fail_soon(send)
            case 1:
                self._fail_soon(send)
            case 2:
                self._at(1, lambda: self._fail(send, AWAY))
            case _:
                self._at(dice.choice((REQUEST_TIMEOUT_MS + 1, 20_000, 200_000)), lambda: self._arrive(send, None))
                self._fail_soon(send)

    def _fail_soon(self, send: SendAppend) -> None:
        if self.dice.random() < 0.5:
            self._at(60, lambda: self._fail(send, LOST))
        else:
            self._at(REQUEST_TIMEOUT_MS, lambda: self._fail(send, LATE))

    def _arrive(self, send: SendAppend, back_ms: int | None) -> None:
        results = []
        for batch in send.request.batches:
            commits = self.is_healed or self.dice.random() < self.faults.commits
            if not self.is_healed and self.dice.random() < self.faults.fatal:
                results.append(Appended(batch.place, ErrorCode.INVALID_TIMESTAMP))
                continue
            result = self.cluster.append(send.node_id, batch, commits=commits)
            if result.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND and self.dice.random() < 0.5:
                # The leadership ended while the write waited: the records may survive.
                result = Appended(batch.place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            results.append(result)
        if back_ms is not None:
            self._at(back_ms, lambda: self._answer(send, results))

    def _answer(self, send: SendAppend, results: list[Appended]) -> None:
        self.in_flight -= 1
        self._carry_out(self.core.answered(send.number, results, self.now_ms))

    def _fail(self, send: SendAppend, failure: CallFailure) -> None:
        self.in_flight -= 1
        self._carry_out(self.core.failed(send.number, failure, self.now_ms))

    # --- the laws ------------------------------------------------------------------------------------------------

    def _check(self, records: int) -> None:
        logs = self.cluster.all_logs()
        for log in logs:
            values = log.values
            if self.faults.idempotent and len(set(values)) != len(values):
                raise LawBroken(f"law 2: {log.key} has a record twice: {values}")
        for key, enqueued in self.enqueued.items():
            own = [log for log in logs if log.key == key]
            acked = [value for value in enqueued if not isinstance(self.ends[value], SendError)]
            written = {value for log in own for value in log.values}
            for value in acked:
                at = self.ends[value]
                if not isinstance(at, int) or not any(log.values[at : at + 1] == [value] for log in own):
                    raise LawBroken(f"law 3: {value!r} was acknowledged at {at}: {own[-1].values}")
            for log in own:
                there = {value: offset for offset, value in reversed([*enumerate(log.values)])}
                offsets = [there[value] for value in acked if value in there]
                if offsets != sorted(offsets):
                    raise LawBroken(f"law 4: {acked} of {key} are in another order: {log.values}")
            for value in enqueued:
                end = self.ends[value]
                if isinstance(end, SendError) and not end.may_have_been_written and value in written:
                    raise LawBroken(f"law 5: {value!r} is in the log, and its error says: {end}")
        failed = [end for end in self.ends.values() if isinstance(end, SendError)]
        late = [end for end in failed if end.code is ErrorCode.REQUEST_TIMED_OUT]
        if (failed if self.faults.all_must_arrive else late) and self.faults.has_time:
            raise LawBroken(f"law 6: {failed[0]}")
        if self.core.records.used_bytes:
            raise LawBroken(f"{self.core.records.used_bytes} bytes of the buffer are in use, and nothing is left")
