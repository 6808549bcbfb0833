"""Replay of entities and sessions beside a dumb twin, which judges each record by plain sentences over dicts.

Many of the random records are wrong in one thing: an entity that exists, another creation, an owner of yesterday, an end too
early.
"""

import random
from dataclasses import dataclass, field

import pytest

from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import (
    FROM_OFFSET,
    BrokerRegistrationChange,
    ClientSession,
    EndClientSession,
    Entity,
    EntityKind,
    MetadataRecord,
    Owner,
    RegisterBroker,
    RemoveEntity,
    RemoveEntityKind,
    UnregisterBroker,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
from tests.metadata_log.image.histories import broker, newest_level, uuid

KEYS = [("a", "x"), ("a", "y"), ("b", "x")]


@dataclass
class Twin:
    """What a reader of the log would write down."""

    entities: dict[tuple[str, str], Entity] = field(default_factory=dict)
    sessions: dict[Uuid, Offset] = field(default_factory=dict)
    brokers: dict[int, RegisterBroker] = field(default_factory=dict)
    kinds: dict[str, EntityKind] = field(default_factory=dict)

    def is_open(self, owner: Owner) -> bool:
        if owner.session_id is not None:
            return owner.broker_id is None and self.sessions.get(owner.session_id) == owner.epoch
        found = None if owner.broker_id is None else self.brokers.get(owner.broker_id)
        return found is not None and found.broker_epoch == owner.epoch and not found.fenced

    def owns_nothing(self, owner: Owner) -> bool:
        return all(entity.owner != owner for entity in self.entities.values())

    def takes(self, record: MetadataRecord, offset: Offset) -> bool:
        """True, and changed, if the record fits."""
        match record:
            case Entity():
                old = self.entities.get((record.kind, record.name))
                if record.version != FROM_OFFSET or record.created != (FROM_OFFSET if old is None else old.created):
                    return False
                if record.owner is not None and not self.is_open(record.owner):
                    return False
                created = offset if old is None else old.created
                self.entities[record.kind, record.name] = record._replace(created=created, version=offset)
                return True
            case RemoveEntity():
                return self.entities.pop((record.kind, record.name), None) is not None
            case EntityKind():
                self.kinds[record.kind] = record
                return True
            case RemoveEntityKind():
                return self.kinds.pop(record.kind, None) is not None
            case ClientSession():
                if record.session_id in self.sessions or record.epoch != FROM_OFFSET:
                    return False
                self.sessions[record.session_id] = offset
                return True
            case EndClientSession(session_id, epoch):
                if self.sessions.get(session_id) != epoch or not self.owns_nothing(Owner(session_id, None, epoch)):
                    return False
                del self.sessions[session_id]
                return True
            case _:
                return self.takes_of_a_broker(record, offset)

    def takes_of_a_broker(self, record: MetadataRecord, offset: Offset) -> bool:
        """The session of a broker ends with the fence, the removal, and another registration."""
        assert isinstance(record, RegisterBroker | BrokerRegistrationChange | UnregisterBroker)
        old = self.brokers.get(record.broker_id)
        new: RegisterBroker | None = None
        match record:
            case RegisterBroker():
                is_same = old is not None and old.incarnation_id == record.incarnation_id
                epoch = offset if record.broker_epoch == FROM_OFFSET else record.broker_epoch
                if epoch != offset and not (is_same and old is not None and old.broker_epoch == epoch):
                    return False
                new = record._replace(broker_epoch=epoch)
            case BrokerRegistrationChange():
                if old is None or old.broker_epoch != record.broker_epoch:
                    return False
                new = old._replace(fenced=bool(record.fenced))
            case UnregisterBroker():
                if old is None or old.broker_epoch != record.broker_epoch:
                    return False
        if old is not None:
            goes_on = new is not None and new.broker_epoch == old.broker_epoch and not new.fenced
            if not goes_on and not self.owns_nothing(Owner(None, old.broker_id, old.broker_epoch)):
                return False
        if new is None:
            del self.brokers[record.broker_id]
        else:
            self.brokers[record.broker_id] = new
        return True


def some_record(dice: random.Random, twin: Twin, offset: Offset) -> MetadataRecord:
    epochs = [*twin.sessions.values(), *(each.broker_epoch for each in twin.brokers.values()), offset]
    epoch = dice.choice(epochs)
    session, broker_id, key = uuid(dice.randrange(2)), dice.randrange(2), dice.choice(KEYS)
    now = twin.brokers.get(broker_id)
    ended = EndClientSession(session, twin.sessions.get(session, epoch), "closed")
    match dice.randrange(12):
        case 0 | 1 | 2 | 3:
            opened = Owner(session, None, twin.sessions.get(session, epoch))
            of_broker = Owner(None, broker_id, now.broker_epoch if now is not None else epoch)
            owner = dice.choice((None, opened, opened, of_broker, of_broker, opened._replace(epoch=epoch)))
            old = twin.entities.get(key)
            right = FROM_OFFSET if old is None else old.created
            created = dice.choice((right, right, right, FROM_OFFSET, epoch))
            return Entity(*key, dice.randbytes(2), owner, created, dice.choice((FROM_OFFSET,) * 9 + (offset,)))
        case 4 | 5:
            return RemoveEntity(*key)
        case 6:
            return dice.choice((EntityKind(key[0], "", 0, 0, 0), RemoveEntityKind(key[0])))
        case 7:
            return ClientSession(session, "", "", 9_000, dice.choice((FROM_OFFSET, FROM_OFFSET, offset)))
        case 8:
            return ended if dice.random() < 0.7 else ended._replace(epoch=epoch)
        case 9 if now is not None:
            return UnregisterBroker(broker_id, now.broker_epoch)
        case 10 if now is not None:
            return now._replace(rack=str(offset), fenced=dice.random() < 0.3)
        case 11 if now is not None:
            return BrokerRegistrationChange(broker_id, now.broker_epoch, fenced=dice.random() < 0.4)
        case _:
            return broker(broker_id, dice.randrange(1, 3))._replace(fenced=dice.random() < 0.3)


@pytest.mark.parametrize("seed", range(6))
def test_a_record_fits_exactly_if_the_twin_says_so(seed: int) -> None:
    """And the images of all records that fit are what the twin has written down."""
    dice = random.Random(seed)
    image, twin = newest_level(), Twin()
    taken = {True: 0, False: 0}
    kinds = set()
    for offset in range(1, 700):
        record = some_record(dice, twin, offset)
        fits = twin.takes(record, offset)
        try:
            image = replayed(image, record, offset)
        except InvalidRecord as e:
            assert not fits, (record, e)
        else:
            assert fits, record
            check(image, twin)
        taken[fits] += 1
        kinds.add((type(record), fits))
    assert min(taken.values()) > 100, taken
    assert len(kinds) >= 16, kinds


def replayed(image: MetadataImage, record: MetadataRecord, offset: Offset) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay(record, offset)
    return delta.finish(Provenance(offset + 1, 1, 1_000))


def check(image: MetadataImage, twin: Twin) -> None:
    assert [*image.entities.items()] == sorted(twin.entities.items())
    assert {each.session_id: each.epoch for each in image.client_sessions.values()} == twin.sessions
    assert dict(image.entity_kinds.items()) == twin.kinds
    assert dict(image.brokers.items()) == twin.brokers
    image.check_invariants()
