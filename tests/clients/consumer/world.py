"""A pure consumer, fake leaders and a clock. Answers take 5 ms; a fetch without records is parked, as brokers do it."""

import random
from typing import Any

from clients.consumer.config import ConsumerConfig
from clients.consumer.consumer_core import ConsumerCore
from clients.consumer.effects import AskEpochs, AskOffsets, Cancel, Effect, Fetch, SawEpoch, Stale, Warn
from clients.consumer.positions import StoredPosition
from clients.consumer.records import ConsumerRecord
from clients.metadata.cluster import TopicPartition
from clients.partition_values import CallFailure, FailureKind
from metadata_log.format.errors import ErrorCode
from tests.clients.consumer.leaders import FakeLeaders

LATENCY_MS = 5
LOST = CallFailure(FailureKind.DISCONNECTED, ErrorCode.REQUEST_TIMED_OUT, "the connection broke")

Asked = Fetch | AskOffsets | AskEpochs


class World:
    """Runs one consumer. `knows_news`: the metadata client hears at once of each election."""

    def __init__(
        self,
        partitions: int = 1,
        stored: dict[TopicPartition, StoredPosition] | None = None,
        *,
        core: type[ConsumerCore] = ConsumerCore,
        **config: Any,
    ) -> None:
        self.leaders = FakeLeaders(partitions)
        self.config = ConsumerConfig(**{"auto_offset_reset": "earliest", **config})
        self.core = core(self.config, random.Random(7), stored or {})
        self.now_ms = 1_000
        self.sent: list[Asked] = []
        self.stale: list[Stale] = []
        self.saw: list[SawEpoch] = []
        self.warnings: list[str] = []
        self.cancelled: list[int] = []
        self.dead: set[int] = set()
        """Brokers whose connections break."""
        self.silent: set[int] = set()
        """Brokers that never answer."""
        self.knows_news = True
        self._parked: dict[int, tuple[Asked, int, int]] = {}
        """The requests in flight, each with the time of its answer and the end of its wait."""

    # --- the world ---------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Gives the consumer the present view of the cluster."""
        self.core.follow(self.leaders.cluster())

    def step(self) -> list[Effect]:
        effects = self.core.step(self.now_ms)
        for effect in effects:
            match effect:
                case Fetch() | AskOffsets() | AskEpochs():
                    self._send(effect)
                case Cancel():
                    self.cancelled.append(effect.number)
                    self._parked.pop(effect.number, None)
                case Stale():
                    self.stale.append(effect)
                    if self.knows_news:
                        self.learn()
                case SawEpoch():
                    self.saw.append(effect)
                case Warn():
                    self.warnings.append(effect.message)
        return effects

    def _send(self, effect: Asked) -> None:
        self.sent.append(effect)
        wait_ms = effect.request.max_wait_ms if isinstance(effect, Fetch) else 0
        at_ms = self.now_ms + LATENCY_MS
        self._parked[effect.number] = (effect, at_ms, at_ms + wait_ms)

    def run(self, ms: int) -> None:
        """Lets `ms` pass."""
        end_ms = self.now_ms + ms
        for _ in range(100_000):
            self.step()
            due = [number for number, (_, at_ms, _) in self._parked.items() if self._is_due(number, at_ms)]
            for number in due:
                self.answer(number)
            if due:
                continue
            times = [self.core.next_ms(), end_ms]
            times += [at_ms if self.now_ms < at_ms else until_ms for _, at_ms, until_ms in self._parked.values()]
            next_ms = min(each for each in times if each > self.now_ms) if self.now_ms < end_ms else self.now_ms
            if next_ms == self.now_ms:
                return
            self.now_ms = next_ms
        raise AssertionError("the consumer never rests")

    def _is_due(self, number: int, at_ms: int) -> bool:
        asked, _, until_ms = self._parked[number]
        if asked.node.node_id in self.silent or self.now_ms < at_ms:
            return False
        if asked.node.node_id in self.dead or not isinstance(asked, Fetch) or self.now_ms >= until_ms:
            return True
        return self.leaders.has_news(asked)

    def answer(self, number: int) -> None:
        """Answers a request now."""
        asked = self._parked.pop(number)[0]
        self.reply(asked)

    def reply(self, asked: Asked) -> None:
        if asked.node.node_id in self.dead:
            self.core.failed(asked.number, LOST, self.now_ms)
        elif isinstance(asked, Fetch):
            self.core.answered(asked.number, self.leaders.fetched(asked), self.now_ms)
        elif isinstance(asked, AskOffsets):
            self.core.answered(asked.number, self.leaders.offsets(asked), self.now_ms)
        else:
            self.core.answered(asked.number, self.leaders.epochs(asked), self.now_ms)

    # --- the program -------------------------------------------------------------------------------------------------

    def read(self, ms: int = 1_000, limit: int = 500) -> list[ConsumerRecord]:
        """Polls until no records come for `ms`."""
        found: list[ConsumerRecord] = []
        self.run(ms)
        while records := self.core.poll(limit):
            found += records
            self.run(ms)
        return found

    def values(self, ms: int = 1_000) -> list[str]:
        """Returns the values of all records that come."""
        return [(record.value or b"").decode() for record in self.read(ms)]

    @property
    def fetches(self) -> list[Fetch]:
        return [each for each in self.sent if isinstance(each, Fetch)]
