"""The entities as the laws know them: a replay of the committed log of its own, far simpler than production's.

Every value that a simulated client writes begins with the tag of its transaction. So each write in the log names its request.
Example: client e0 asks for its third transaction, a put of ("reg", "1") with the value `e0.3`. At offset 40 the log has
Entity("reg", "1", b"e0.3", ...). The laws know the request, its conditions and its other operations.
"""

from bisect import bisect_left
from typing import NamedTuple

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import (
    FROM_OFFSET,
    BrokerRegistrationChange,
    ClientSession,
    EndClientSession,
    Entity,
    Owner,
    RegisterBroker,
    RemoveEntity,
    UnregisterBroker,
)
from tests.sim.history import Step
from tests.sim.laws.broken import hold


class Touched(NamedTuple):
    """What one committed batch has done to entities and sessions."""

    before: dict[EntityName, Entity | None]
    """The entities that the batch writes or removes, as they were before."""
    written: tuple[Entity, ...]
    removed: tuple[EntityName, ...]
    opened: tuple[ClientSession, ...]
    ended: tuple[Owner, ...]
    """Sessions of clients and brokers that have ended in this batch."""
    reasons: tuple[EndClientSession, ...]

    def __bool__(self) -> bool:
        return bool(self.before or self.opened or self.ended)


class KnownEntities:
    """The replay, and the history of each entity."""

    def __init__(self) -> None:
        self.now: dict[EntityName, Entity] = {}
        self.owned: dict[Owner, set[EntityName]] = {}
        """Owner -> its entities; only owners with entities."""
        self.sessions: dict[Owner, ClientSession] = {}
        """The open sessions of clients."""
        self._writes: dict[EntityName, list[tuple[Offset, Entity | None]]] = {}
        """Each write and removal, with its offset."""

    def before(self, name: EntityName, offset: Offset) -> Entity | None:
        """The entity as of `offset`, which is end-exclusive; None: there was none."""
        writes = self._writes.get(name, [])
        place = bisect_left(writes, offset, key=lambda write: write[0])
        return writes[place - 1][1] if place else None

    def take(self, step: Step) -> Touched:
        """Replays a newly committed batch."""
        before: dict[EntityName, Entity | None] = {}
        written: list[Entity] = []
        removed: list[EntityName] = []
        opened: list[ClientSession] = []
        ended: list[Owner] = []
        reasons: list[EndClientSession] = []
        brokers: set[NodeId] = set()
        for offset, record in enumerate(step.records, step.batch.base_offset):
            match record:
                case Entity(kind, name):
                    before.setdefault((kind, name), self.now.get((kind, name)))
                    written.append(self._written(record, offset))
                case RemoveEntity(kind, name):
                    before.setdefault((kind, name), self.now.get((kind, name)))
                    removed.append((kind, name))
                    self._forget((kind, name))
                    self._writes.setdefault((kind, name), []).append((offset, None))
                case ClientSession(session_id):
                    session = record._replace(epoch=offset)
                    self.sessions[Owner(session_id, None, offset)] = session
                    opened.append(session)
                case EndClientSession(session_id, epoch):
                    owner = Owner(session_id, None, epoch)
                    hold(owner in self.sessions, "E2 EndsOnce", f"{owner} ends at {offset}, and is not open")
                    del self.sessions[owner]
                    ended.append(owner)
                    reasons.append(record)
                case RegisterBroker() | UnregisterBroker() | BrokerRegistrationChange():
                    brokers.add(record.broker_id)
        of_brokers = [_ended_broker(step, broker_id) for broker_id in sorted(brokers)]
        ended += [each for each in of_brokers if each is not None]
        return Touched(before, tuple(written), tuple(removed), tuple(opened), tuple(ended), tuple(reasons))

    def _written(self, record: Entity, offset: Offset) -> Entity:
        name = (record.kind, record.name)
        old = self.now.get(name)
        created = offset if old is None else old.created
        said = FROM_OFFSET if old is None else old.created
        hold(record.created == said, "E1 Created", f"{name} at {offset} says {record.created}; it is {said}")
        self._forget(name)
        entity = record._replace(created=created, version=offset)
        self.now[name] = entity
        self._writes.setdefault(name, []).append((offset, entity))
        if entity.owner is not None:
            self.owned.setdefault(entity.owner, set()).add(name)
        return entity

    def _forget(self, name: EntityName) -> None:
        old = self.now.pop(name, None)
        if old is not None and old.owner is not None:
            names = self.owned[old.owner]
            names.discard(name)
            if not names:
                del self.owned[old.owner]


def _ended_broker(step: Step, broker_id: NodeId) -> Owner | None:
    """The session of the broker that a batch has ended; None: the broker had none, or its session goes on."""
    before, after = step.before.brokers.get(broker_id), step.after.brokers.get(broker_id)
    if before is None or before.fenced:
        return None
    goes_on = after is not None and not after.fenced and after.broker_epoch == before.broker_epoch
    return None if goes_on else Owner(None, broker_id, before.broker_epoch)
