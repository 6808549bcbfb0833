"""A producer core in a test's hand: the test sees what the producer sends, and answers as it likes."""

import random
from collections.abc import Sequence

from clients.metadata.cluster import Cluster, TopicPartition
from clients.partition_values import AppendBatch, Appended, CallFailure, CurrentLeader, FailureKind
from clients.producer.config import ProducerConfig
from clients.producer.effects import (
    AskProducerId,
    Delivered,
    NotDelivered,
    NoteLeaderEpoch,
    NoteStale,
    ProducerEffects,
    SendAppend,
)
from clients.producer.errors import SendError
from clients.producer.producer_core import ProducerCore
from metadata_log.format.data_batch import DataRecord, pack_record
from metadata_log.format.errors import ErrorCode
from tests.clients.producer.leaders import FakeCluster

PRODUCER_ID = 7
ORDERS = TopicPartition("orders", 0)
LOST = CallFailure(FailureKind.DISCONNECTED, ErrorCode.REQUEST_TIMED_OUT, "the connection broke")
LATE = CallFailure(FailureKind.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, "no answer in time")
AWAY = CallFailure(FailureKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, "nobody listens there")


class Driver:
    """One producer, one cluster, and a clock that only the test moves. Every batch has one record unless the test says so."""

    def __init__(self, config: ProducerConfig | None = None, *, partitions: int = 1) -> None:
        self.cluster = FakeCluster([("orders", partitions)])
        self.core = ProducerCore(config or ProducerConfig(linger_ms=0, batch_size=1), random.Random(1))
        self.view: Cluster = self.cluster.view()
        self.now_ms = 1_000_000
        self.sent: list[SendAppend] = []
        """The requests that have no end yet."""
        self.delivered: dict[str, int | None] = {}
        """The offset of each record that was delivered, by its value."""
        self.errors: dict[str, SendError] = {}
        self.stale: list[NoteStale] = []
        self.epochs: list[NoteLeaderEpoch] = []
        self.id_questions = 0
        self.gives_ids = True

    def send(self, *values: str, partition: int = 0) -> None:
        """Enqueues records, and steps."""
        for value in values:
            packed = pack_record(DataRecord(0, None, value.encode()))
            self.core.enqueue(TopicPartition("orders", partition), packed, 0, value, self.now_ms)
        self.step()

    def step(self, ms: int = 0) -> None:
        self.now_ms += ms
        self._do(self.core.step(self.view, self.now_ms))

    def run(self, ms: int) -> None:
        """Lets time pass, with a step at each moment that the producer has named."""
        end_ms = self.now_ms + ms
        while (next_ms := self.core.next_ms(self.now_ms)) is not None and next_ms <= end_ms:
            assert next_ms > self.now_ms or self.core.next_ms(next_ms) is not None
            self.step(max(0, next_ms - self.now_ms))
            if self.core.next_ms(self.now_ms) == self.now_ms:
                self.step()
                assert self.core.next_ms(self.now_ms) != self.now_ms, "the producer spins"
        self.step(end_ms - self.now_ms)

    def _do(self, effects: ProducerEffects) -> None:
        for effect in effects:
            match effect:
                case SendAppend():
                    self.sent.append(effect)
                case AskProducerId():
                    self.id_questions += 1
                    if self.gives_ids:
                        self._do(self.core.id_allocated(PRODUCER_ID))
                        self.step()
                case NoteStale():
                    self.stale.append(effect)
                case NoteLeaderEpoch():
                    self.epochs.append(effect)
                case Delivered():
                    for place, token in enumerate(effect.tokens):
                        offset = None if effect.base_offset is None else effect.base_offset + place
                        self._tell(str(token)).delivered[str(token)] = offset
                case NotDelivered():
                    for token in effect.tokens:
                        self._tell(str(token)).errors[str(token)] = effect.error

    def _tell(self, value: str) -> "Driver":
        assert value not in self.delivered and value not in self.errors, f"{value} has two ends"
        return self

    # --- the network ---------------------------------------------------------------------------------------------

    def take(self, value: str | None = None) -> SendAppend:
        """Takes the oldest request, or the oldest one with a record of this value, out of `sent`."""
        found = next(each for each in self.sent if value is None or value in values_of(each))
        self.sent.remove(found)
        return found

    def deliver(self, request: SendAppend, *, commits: bool = True) -> tuple[Appended, ...]:
        """Lets a request arrive; the answer is the test's."""
        return tuple(self.cluster.append(request.node_id, batch, commits=commits) for batch in request.request.batches)

    def answer(self, request: SendAppend, results: Sequence[Appended]) -> None:
        self._do(self.core.answered(request.number, results, self.now_ms))
        self.step()

    def fail(self, request: SendAppend, failure: CallFailure = LOST) -> None:
        self._do(self.core.failed(request.number, failure, self.now_ms))
        self.step()

    def pass_on(self, value: str | None = None, *, commits: bool = True) -> None:
        """Lets the oldest request, or the oldest one with this record, arrive, and its answer, too."""
        request = self.take(value)
        self.answer(request, self.deliver(request, commits=commits))

    def refuse(self, code: ErrorCode, value: str | None = None, leader: CurrentLeader | None = None) -> None:
        """Answers a request with an error for each partition, without looking at the log."""
        request = self.take(value)
        self.answer(request, [Appended(each.place, code, current_leader=leader) for each in request.request.batches])

    def pass_all(self) -> None:
        while self.sent:
            self.pass_on()

    def warm_up(self) -> None:
        """Has a first record acknowledged, so that several batches may be in flight."""
        self.send("warm")
        self.pass_all()

    def log(self, partition: int = 0) -> list[str]:
        return [value.decode() for value in self.cluster.logs[TopicPartition("orders", partition)].values]

    def refresh(self) -> None:
        """Gives the producer fresh metadata."""
        self.view = self.cluster.view()
        self.step()


def values_of(request: SendAppend) -> str:
    """The records of a request, as text to search in."""
    return " ".join(each.records.decode(errors="ignore") for each in request.request.batches)


def only_batch(request: SendAppend) -> AppendBatch:
    (batch,) = request.request.batches
    return batch
