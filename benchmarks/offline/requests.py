"""Requests of operators and embedders in a simulated year: configs, labels, quotas, ACLs, producer ids, sessions and entities."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records import (
    BROKER_RESOURCE,
    PAYLOAD_HASH_BYTES,
    SESSION_CLOSED,
    SESSION_EXPIRED,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    AccessControlEntry,
    ClientQuota,
    ClientSession,
    Config,
    EndClientSession,
    Entity,
    Label,
    MetadataRecord,
    Owner,
    ProducerIds,
    QuotaEntity,
    Record,
    RemoveAccessControlEntry,
    RemoveEntity,
    RequestOutcome,
)

OUTCOMES: Final = 8_192
"""How many slots the ring of outcomes has (`request_outcomes_max`)."""
SESSIONS_MAX: Final = 200
ACLS_MAX: Final = 500
ENTITIES: Final = 2_000
"""How many names the entities have."""
CONFIG_KEYS: Final = ("cleanup.policy", "max.message.bytes", "min.insync.replicas", "retention.bytes", "segment.ms")

Append = Callable[[Sequence[Record]], Offset]
Topics = Sequence[tuple[str, Uuid]]


class Requests:
    """The state that the requests so far have left behind, as far as later requests depend on it."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._done = 0
        self._next_producer_id = 0
        self._acls: list[Uuid] = []
        self._sessions: dict[Uuid, Offset] = {}
        self._owned: dict[Uuid, str] = {}
        self._created: dict[str, Offset] = {}

    def outcome(self) -> RequestOutcome:
        """Return the outcome of the next request: the last record of its batch."""
        slot, self._done = self._done % OUTCOMES, self._done + 1
        digest, reply = self._dice.randbytes(PAYLOAD_HASH_BYTES), self._dice.randbytes(self._dice.randint(0, 60))
        return RequestOutcome(slot, self._dice.randbytes(16), digest, "User:operator", 0, reply)

    def write(self, append: Append, topics: Topics, brokers: Sequence[NodeId]) -> None:
        """Write one request of a random kind."""
        kind = self._dice.randrange(10)
        if kind < 3:
            self._session(append)
        elif kind < 6:
            self._entity(append)
        else:
            records = (self._config, self._setting, self._acl, self._producer_ids)[kind - 6](topics, brokers)
            append([*records, self.outcome()])

    # --- one batch each -----------------------------------------------------------------------------------------------

    def _config(self, topics: Topics, brokers: Sequence[NodeId]) -> list[MetadataRecord]:
        key, value = self._dice.choice(CONFIG_KEYS), str(self._dice.randrange(1 << 30))
        if self._dice.randrange(4) == 0:
            return [Config(BROKER_RESOURCE, str(self._dice.choice(brokers)), key, value)]
        chosen = self._dice.sample(topics, min(len(topics), self._dice.randint(1, 4)))
        return [Config(TOPIC_RESOURCE, name, key, self._dice.choice((value, value, None))) for name, _ in chosen]

    def _setting(self, topics: Topics, brokers: Sequence[NodeId]) -> list[MetadataRecord]:
        if self._dice.randrange(2):
            name, _ = self._dice.choice(topics)
            return [Label(TOPIC_RESOURCE, name, WHOLE_RESOURCE, "team", f"team-{self._dice.randrange(40)}")]
        user = QuotaEntity("user", f"user-{self._dice.randrange(300)}")
        return [ClientQuota((user,), "producer_byte_rate", float(self._dice.randrange(1, 1 << 24)))]

    def _acl(self, topics: Topics, brokers: Sequence[NodeId]) -> list[MetadataRecord]:
        if len(self._acls) >= ACLS_MAX:
            return [RemoveAccessControlEntry(self._acls.pop(self._dice.randrange(len(self._acls))))]
        name, _ = self._dice.choice(topics)
        self._acls.append(self._dice.randbytes(16))
        return [AccessControlEntry(self._acls[-1], 2, name, 3, f"User:{self._dice.randrange(300)}", "*", 3, 3)]

    def _producer_ids(self, topics: Topics, brokers: Sequence[NodeId]) -> list[MetadataRecord]:
        self._next_producer_id += 1_000
        return [ProducerIds(self._dice.choice(brokers), 0, self._next_producer_id)]

    # --- entities -----------------------------------------------------------------------------------------------------

    def _session(self, append: Append) -> None:
        """Open a session that owns one entity, or end an old session with its entity."""
        if len(self._sessions) < SESSIONS_MAX and self._dice.randrange(2):
            session = self._dice.randbytes(16)
            name = session.hex()
            epoch = append([ClientSession(session, f"worker-{name[:6]}", "User:worker", 30_000)])
            self._sessions[session], self._owned[session] = epoch, name
            append([Entity("lock", name, self._dice.randbytes(20), Owner(session, None, epoch))])
        elif self._sessions:
            session = next(iter(self._sessions))
            reason = self._dice.choice((SESSION_CLOSED, SESSION_EXPIRED))
            end = EndClientSession(session, self._sessions.pop(session), reason)
            append([RemoveEntity("lock", self._owned.pop(session)), end])

    def _entity(self, append: Append) -> None:
        """Write or remove an entity that has no owner."""
        name = f"shard-{self._dice.randrange(ENTITIES):05}"
        created = self._created.get(name)
        if created is not None and self._dice.randrange(10) == 0:
            append([RemoveEntity("shard", name)])
            del self._created[name]
            return
        value = self._dice.randbytes(self._dice.randint(20, 300))
        if created is None:
            self._created[name] = append([Entity("shard", name, value, None)])
        else:
            append([Entity("shard", name, value, None, created)])
