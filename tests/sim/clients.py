"""A simulated client: one admin operation after the other, each remembered with what it was told."""

import random
from typing import TYPE_CHECKING

from metadata_log.errors import ErrorCode
from metadata_log.records import TOPIC_RESOURCE
from quorum.controller.commands import (
    AlterConfigs,
    Command,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    CreatePartitions,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from quorum.runtime.requests import ReadView, Refused, SnapshotMarked
from quorum.runtime.world import Answer, Read, SnapshotWanted, Submission

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.controllers import SimController

DEADLINE_MS = 2_000


class SimClient:
    """Asks whom it believes to lead; every operation has a name of its own, so that its effect can be told from others'."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._rng = random.Random(cluster.rng.random())
        self._target: "SimController" = cluster.controllers[0]
        self._count = 0
        self._topics: list[str] = []
        self._open = 0

    def act(self) -> None:
        """Begins one operation, unless too many are open."""
        if self._open >= 8:
            self._target = self._rng.choice(self.cluster.controllers)
            self._open = 0
        roll = self._rng.random()
        if roll < 0.12:
            self._read()
        elif roll < 0.14:
            self._snapshot()
        elif roll < 0.60 or not self._topics:
            self._create()
        else:
            self._change()

    def _send(self, make: "object", on_answer: "object", what: str) -> None:
        target = self._target
        self._open += 1

        def back(answer: Answer) -> None:
            self.cluster.network.carry(target.name, self.name, lambda: arrive(answer), what)

        def arrive(answer: Answer) -> None:
            self._open = max(0, self._open - 1)
            if isinstance(answer, Refused) and answer.code is ErrorCode.NOT_CONTROLLER:
                hint = answer.hint
                known = hint is not None and hint.leader_id is not None
                self._target = (
                    self.cluster.controller(hint.leader_id)  # type: ignore[union-attr, arg-type]
                    if known
                    else self._rng.choice(self.cluster.controllers)
                )
            if isinstance(answer, Refused) and answer.code is ErrorCode.REQUEST_TIMED_OUT:
                self.cluster.coverage["unknown outcome"] += 1
            on_answer(answer)  # type: ignore[operator]

        self.cluster.network.carry(self.name, target.name, lambda: target.ask(make, back, f"{what} {self.name}"), what)  # type: ignore[arg-type]

    def _submit(self, command: Command, on_answer: "object", what: str) -> None:
        deadline_ms = int(self.cluster.now_ms) + DEADLINE_MS
        self._send(lambda reply_to: Submission(command, reply_to, deadline_ms), on_answer, what)

    def _create(self) -> None:
        self._count += 1
        name = f"{self.name}-{self._count}"
        factor = self._rng.randint(1, max(1, min(3, self.cluster.options.brokers)))
        topic = NewTopic(name, self._rng.randint(1, 4), factor, (), (("retention.ms", "60000"),))
        duplicated = False

        def answered(answer: Answer) -> None:
            nonlocal duplicated
            if isinstance(answer, Refused):
                # With a duplicated request, one copy may be refused while the other takes effect.
                if answer.code is not ErrorCode.REQUEST_TIMED_OUT and not self.cluster.options.duplicate:
                    self.cluster.laws.never_happens(name)
                return
            assert isinstance(answer, CreateTopicsReply)
            if answer.results[0].error is ErrorCode.NONE:
                self.cluster.acknowledged(answer.offset)
                self._topics.append(name)
            elif answer.results[0].error is ErrorCode.INVALID_REPLICATION_FACTOR and not self.cluster.options.duplicate:
                self.cluster.laws.never_happens(name)

        self._submit(CreateTopics((topic,)), answered, "create")

    def _change(self) -> None:
        name = self._rng.choice(self._topics)
        roll = self._rng.random()
        command: Command
        if roll < 0.4:
            self._topics.remove(name)
            command = DeleteTopics((name,))
        elif roll < 0.6:
            command = CreatePartitions((NewPartitions(name, self._rng.randint(1, 8)),))
        else:
            operation = ConfigOperation(ConfigOperationKind.SET, "retention.ms", str(self._rng.randint(1, 1 << 30)))
            command = AlterConfigs((ConfigAlteration(TOPIC_RESOURCE, name, (operation,)),))

        def answered(answer: Answer) -> None:
            if not isinstance(answer, Refused):
                self.cluster.acknowledged(answer.offset)  # type: ignore[union-attr]

        self._submit(command, answered, type(command).__name__)

    def _read(self) -> None:
        floor = self.cluster.laws.acknowledged_end
        deadline_ms = int(self.cluster.now_ms) + DEADLINE_MS

        def answered(answer: Answer) -> None:
            if isinstance(answer, ReadView):
                self.cluster.coverage["linearizable read"] += 1
                self.cluster.laws.read_returned(answer.as_of_offset, floor)

        self._send(lambda reply_to: Read(reply_to, deadline_ms), answered, "read")

    def _snapshot(self) -> None:
        deadline_ms = int(self.cluster.now_ms) + DEADLINE_MS

        def answered(answer: Answer) -> None:
            if isinstance(answer, SnapshotMarked):
                self.cluster.acknowledged(answer.offset)

        self._send(lambda reply_to: SnapshotWanted("asked for", reply_to, deadline_ms), answered, "snapshot")
