"""A simulated client of entities: registers, transactions, ephemeral entities, and entities with a time to live.

Clients share a few names, so that their conditions often fail. Each client remembers the versions that it was told of.
Each value begins with the tag of its transaction (`tests.sim.laws.entities.known`).
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from metadata_log.format.entity_names import EntityName
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import Owner
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.entity_commands import (
    CloseSession,
    CloseSessionReply,
    Condition,
    DeleteEntity,
    OpenSession,
    OpenSessionReply,
    Operation,
    PutEntity,
    Transact,
    TransactReply,
)
from quorum.controller.protocol.topic_commands import NewTopic
from quorum.runtime.protocol.requests import ReadView, Refused, SessionName, SessionsKept
from quorum.runtime.protocol.world import Answer, KeepAlive, Read
from tests.sim.entities.locking import Locking
from tests.sim.entities.sessions import SimSession
from tests.sim.nodes.clients import TIMEOUT_MS, SimClient
from tests.sim.world.clock import Clock

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

REGISTERS = 4
NAMES = 5
PAUSE_CHANCE = 0.01
"""How often a client falls asleep instead of doing something."""
DIE_CHANCE = 0.005
"""How often a client forgets its session without closing it."""
CLOSE_CHANCE = 0.01
KEEP_ALIVES_A_TIMEOUT = 3
STREAM_PATIENCE_MS = 600.0
TTL_MS = (1_000, 1_500, 4_000)


class EntityClient:
    """Works with entities, over the wire of a client with or without request ids."""

    def __init__(self, cluster: "Cluster", wire: SimClient) -> None:
        self.cluster = cluster
        self.wire = wire
        self.name = wire.name
        self.dice = random.Random(f"{cluster.seed} {self.name} entities")
        self.clock = Clock(lambda: cluster.now_ms, self.dice, cluster.options.clock_drift)
        self.session: SimSession | None = None
        self.known: dict[EntityName, Offset] = {}
        """The versions that it was told of."""
        self.image: MetadataImage | None = None
        """The newest image that it has read."""
        self._image_offset: Offset = -1
        self._locking = Locking(self)
        self._count = self._sessions = 0
        self._awake_ms = 0.0
        self._keeper = cluster.controllers[0]
        """The controller of the stream of keep-alives: the client stays there as long as it is answered."""
        self._kept_ms = 0.0

    @property
    def is_awake(self) -> bool:
        return self.cluster.now_ms >= self._awake_ms

    def act(self) -> None:
        """Begins one operation, unless the client sleeps."""
        if not self.is_awake:
            return
        self.wire.look_for_another()
        dice = self.dice
        if dice.random() < PAUSE_CHANCE and not self.cluster.is_calm:
            self._sleep()
            return
        if self.session is not None and self.session.has_ended:
            self._forget_session()
        roll = dice.random()
        if self.session is None:
            self._open()
        elif roll < DIE_CHANCE:
            self.cluster.coverage["client forgets its session"] += 1
            self._forget_session()
        elif roll < DIE_CHANCE + CLOSE_CHANCE:
            self._close()
        elif roll < 0.15 or self.image is None:
            self.read()
        elif roll < 0.45:
            self._locking.act()
        elif roll < 0.70:
            self._compare_and_set()
        elif roll < 0.80:
            self._put_ephemeral()
        elif roll < 0.87:
            self._put_with_ttl()
        else:
            self._transact()

    def _sleep(self) -> None:
        """Often for just so long that the session is about to end when the client wakes."""
        timeout_ms, session = self.cluster.options.session_timeout_ms, self.session
        times = self.dice.uniform(0.9, 1.3) if self.dice.random() < 0.5 else self.dice.uniform(0.0, 2.0)
        self._awake_ms = self.cluster.now_ms + times * timeout_ms
        self.cluster.coverage["client of a session sleeps"] += 1
        if session is not None:
            self.cluster.schedule(times * timeout_ms, lambda: self._send_keep_alive(session))

    # --- sessions --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._sessions += 1
        timeout_ms = self.dice.choice((1_000, self.cluster.options.session_timeout_ms))
        session = SimSession(self.cluster, self.name, self._sessions, self.dice.randbytes(16), timeout_ms, self.clock)
        laws = self.cluster.laws
        self.session = session
        laws.entities.sessions.begun(session)
        laws.entities.ephemerals.asked(session.session_id)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, OpenSessionReply):
                laws.clients.answered(answer.offset, floor)
                session.opened(answer.epoch)
                self._keep_alive(session)
            elif session.epoch < 0:
                session.ended()

        self.wire.submit(OpenSession(session.session_id, session.name, self.name, timeout_ms), answered)
        self.cluster.schedule(2.0 * TIMEOUT_MS, lambda: None if session.epoch >= 0 else session.ended())

    def _forget_session(self) -> None:
        if self.session is not None:
            self._locking.forget()
            self.session.ended()
            self.session = None

    def _close(self) -> None:
        session, laws = self.session, self.cluster.laws
        assert session is not None
        if not session.is_open:
            return
        self._locking.forget()
        session.ended()

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, CloseSessionReply):
                self.cluster.coverage["session closed"] += 1
                laws.clients.answered(answer.offset, floor)

        self.wire.submit(CloseSession(session.session_id, session.epoch), answered)

    def _keep_alive(self, session: SimSession) -> None:
        """Sends a keep-alive, and again after a third of the timeout, until the session has ended."""
        if session.has_ended:
            return
        self._send_keep_alive(session)
        every_ms = session.timeout_ms / KEEP_ALIVES_A_TIMEOUT * self.dice.uniform(0.6, 1.0)
        self.cluster.schedule(every_ms, lambda: self._keep_alive(session))

    def _send_keep_alive(self, session: SimSession) -> None:
        if not self.is_awake or not session.is_open:
            return
        cluster, sent_ms = self.cluster, self.clock.now_ms()
        name = SessionName(session.session_id, session.epoch)
        if cluster.now_ms - self._kept_ms > STREAM_PATIENCE_MS:
            self._turn_to(None)
        keeper = self._keeper

        def answered(answer: Answer) -> None:
            self._kept_ms = cluster.now_ms
            if isinstance(answer, SessionsKept):
                (kept,) = answer.sessions
                session.kept(kept, sent_ms)
            elif isinstance(answer, Refused) and keeper is self._keeper:
                self._turn_to(None if answer.hint is None else answer.hint.leader_id)

        def back(answer: Answer) -> None:
            cluster.network.carry(keeper.name, self.name, lambda: answered(answer))

        def arrive() -> None:
            keeper.ask(lambda reply_to, _: KeepAlive((name,), reply_to), back, f"keep alive {self.name}")

        cluster.network.carry(self.name, keeper.name, arrive)

    def _turn_to(self, leader_id: NodeId | None) -> None:
        """Opens the stream of keep-alives at another controller."""
        cluster = self.cluster
        self._keeper = self.dice.choice(cluster.controllers) if leader_id is None else cluster.controller(leader_id)
        self._kept_ms = cluster.now_ms

    # --- entities --------------------------------------------------------------------------------------------------

    def read(self, then: Callable[[], None] | None = None) -> None:
        """A linearizable read of everything."""

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, ReadView) and self.is_awake:
                self.cluster.laws.clients.read(answer.as_of_offset, answer.image, floor)
                if answer.as_of_offset >= self._image_offset:
                    self.image, self._image_offset = answer.image, answer.as_of_offset
                    self._look(answer.image)
                if then is not None:
                    then()

        self.wire.ask(lambda reply_to, now_ms: Read(reply_to, now_ms + TIMEOUT_MS), answered, "read entities")

    def _look(self, image: MetadataImage) -> None:
        if len(image.entities):
            self.cluster.coverage["entity read"] += 1
        self.known = {name: entity.version for name, entity in image.entities.items()}

    def _name(self, kind: str, count: int = NAMES) -> EntityName:
        return kind, str(self.dice.randrange(count))

    def _condition(self, name: EntityName) -> Condition:
        """On what the client knows of the entity. Often another client knows more."""
        version = self.known.get(name)
        if version is None:
            return Condition(name, exists=False)
        roll = self.dice.random()
        if roll < 0.1:
            return Condition(name, version_at_most=version + self.dice.randint(0, 3))
        return Condition(name, exists=True) if roll < 0.2 else Condition(name, version=version)

    def _compare_and_set(self) -> None:
        name = self._name("reg", REGISTERS)
        self.transact((self._condition(name),), lambda tag: (PutEntity(name, tag),))

    def _put_ephemeral(self) -> None:
        owner = self._some_owner()
        if owner is not None:
            name = self._name("eph")
            self.transact((), lambda tag: (PutEntity(name, tag + b" mine", owner=owner),))

    def _some_owner(self) -> Owner | None:
        """The own session, or that of a broker that was not fenced when the client looked."""
        brokers = [] if self.image is None else [each for each in self.image.brokers.values() if not each.fenced]
        if brokers and self.dice.random() < 0.4:
            broker = self.dice.choice(brokers)
            return Owner(None, broker.broker_id, broker.broker_epoch)
        return self.session.owner if self.session is not None and self.session.is_open else None

    def _put_with_ttl(self) -> None:
        name, ttl_ms = self._name("ttl", 3), self.dice.choice(TTL_MS)
        if self.dice.random() < 0.4:
            ttl_ms = 0  # from now on the entity stays
        self.transact((), lambda tag: (PutEntity(name, tag, ttl_ms=ttl_ms),))

    def _transact(self) -> None:
        """Some conditions, and several operations of all kinds."""
        dice = self.dice
        kinds = dice.choices(("reg", "eph", "ttl", "plain"), k=dice.randint(1, 5))
        names = sorted({self._name(kind) for kind in kinds})
        conditions = tuple(self._condition(name) for name in dice.sample(names, dice.randint(0, min(2, len(names)))))
        deleted = [name for name in names if dice.random() < 0.3]
        written = [name for name in names if name not in deleted] or [("plain", f"note {self.name}")]
        kept = {name for name in written if name in self.known and dice.random() < 0.2}
        owner = self._some_owner() if dice.random() < 0.3 else None
        topic = self._new_topic() if self.cluster.options.brokers and dice.random() < 0.2 else None

        def operations(tag: bytes) -> tuple[Operation, ...]:
            puts = [
                PutEntity(name, tag, keep_owner=True) if name in kept else PutEntity(name, tag, owner)
                for name in written
            ]
            return (*puts, *map(DeleteEntity, deleted), *(() if topic is None else (topic,)))

        self.transact(conditions, operations)

    def _new_topic(self) -> NewTopic:
        name, factor = f"{self.name}-t{self._count}", self.dice.randint(1, min(3, self.cluster.options.brokers))
        self.cluster.laws.placement.asked(name, 1, factor)
        return NewTopic(name, 1, factor, (), ())

    def transact(
        self,
        conditions: tuple[Condition, ...],
        operations: Callable[[bytes], tuple[Operation, ...]],
        then: Callable[[TransactReply | None], None] | None = None,
    ) -> None:
        """Asks for a transaction. `then` gets the answer; None: the transaction was not done, or nobody knows."""
        self._count += 1
        tag = f"{self.name}.{self._count}".encode()
        command = Transact(conditions, operations(tag))
        laws, coverage = self.cluster.laws, self.cluster.coverage
        laws.entities.registers.asked(tag, command)

        def answered(answer: Answer, floor: Offset) -> None:
            if isinstance(answer, TransactReply):
                laws.clients.answered(answer.offset, floor)
                laws.entities.registers.answered(tag, answer, is_final=self.wire.is_final(answer))
                coverage["transaction of entities done" if answer.failed is None else "condition failed"] += 1
                self._learn(command, answer)
            else:
                assert isinstance(answer, Refused)
                coverage["put for a session that has ended"] += answer.code is ErrorCode.UNKNOWN_SESSION
                if self.wire.is_final(answer):
                    laws.entities.registers.never(tag)
            if then is not None:
                then(answer if isinstance(answer, TransactReply) else None)

        self.wire.submit(command, answered)

    def _learn(self, command: Transact, reply: TransactReply) -> None:
        if reply.failed is not None:
            name, found = command.conditions[reply.failed.number].entity, reply.failed.entity
            self._learn_version(name, -1 if found is None else found.version)
            return
        for operation, result in zip(command.operations, reply.operations, strict=True):
            if isinstance(operation, PutEntity):
                self._learn_version(operation.entity, result.version)

    def _learn_version(self, name: EntityName, version: Offset) -> None:
        if version < 0:
            self.known.pop(name, None)
        else:
            self.known[name] = version
