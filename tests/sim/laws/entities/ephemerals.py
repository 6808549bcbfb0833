"""The laws of ephemeral entities (E2): they live exactly as long as their session, and nothing vanishes for no reason.

Example: broker 101 of epoch 30 owns ("eph", "7"), and is fenced.

    1. If the batch of the fence left the entity in the image, a reader would believe in an owner that is gone: NoOrphan.
    2. If the entity had vanished two batches before the fence, the broker would have lost it while it lived: NoneVanishes.
"""

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import Uuid
from metadata_log.format.records import Entity, Owner
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold
from tests.sim.laws.entities.known import KnownEntities, Touched


class EphemeralLaws:
    """Checks every committed batch, in order."""

    def __init__(self, known: KnownEntities, coverage: Coverage) -> None:
        self._known = known
        self._coverage = coverage
        self._of_clients: set[Uuid] = set()
        """The sessions that clients have asked for. Every other one belongs to one entity with a time to live."""

    def asked(self, session_id: Uuid) -> None:
        """Notes a session that a client will open."""
        self._of_clients.add(session_id)

    def committed(self, step: Step, touched: Touched, deleted: frozenset[EntityName]) -> None:
        """Checks a newly committed batch, in which a client has deleted the entities `deleted`."""
        for entity in touched.written:
            self._check_owner(step, entity)
        for owner in touched.ended:
            left = self._known.owned.get(owner, set())
            hold(not left, "E2 NoOrphan", f"{owner} has ended in the batch up to {step.end}, and {sorted(left)} live")
        for name in touched.removed:
            old = touched.before[name]
            why = name in deleted or (old is not None and old.owner in touched.ended)
            hold(why, "E2 NoneVanishes", f"{name} is gone after the batch up to {step.end}; it was {old}")
            if name not in deleted and old is not None and old.owner is not None:
                of_broker = old.owner.broker_id is not None
                self._coverage[f"ephemeral entity of a {'broker' if of_broker else 'session'} ended with it"] += 1
        self._check_ttl(step, touched)
        self._check_image(step.after, touched)

    def _check_owner(self, step: Step, entity: Entity) -> None:
        owner = entity.owner
        if owner is None:
            return
        if owner.broker_id is None:
            lives = owner in self._known.sessions
        else:
            broker = step.after.brokers.get(owner.broker_id)
            lives = broker is not None and broker.broker_epoch == owner.epoch and not broker.fenced
        hold(
            lives or entity != self._known.now.get((entity.kind, entity.name)), "E2 NoOrphan", f"{entity} at {step.end}"
        )

    def _check_ttl(self, step: Step, touched: Touched) -> None:
        """The session of an entity with a time to live has this entity, from its first batch to its last."""
        owners = {entity.owner for entity in touched.before.values() if entity is not None}
        owners |= {Owner(session.session_id, None, session.epoch) for session in touched.opened}
        for owner in owners & self._known.sessions.keys():
            assert owner is not None and owner.session_id is not None
            if owner.session_id not in self._of_clients:
                count = len(self._known.owned.get(owner, ()))
                hold(
                    count == 1, "E2 TtlEndsWithEntity", f"{owner} has {count} entities after the batch up to {step.end}"
                )

    def _check_image(self, image: MetadataImage, touched: Touched) -> None:
        """The image has the entities of the laws' own replay, and counts them rightly."""
        for name in touched.before:
            own, found = self._known.now.get(name), image.entity(*name)
            hold(own == found, "E2 Replayed", f"the image has {found}; the log says {own}")
        for kind in {kind for kind, _ in touched.before}:
            of_kind = [entity for entity in self._known.now.values() if entity.kind == kind]
            size = sum(len(entity.name.encode()) + len(entity.value) for entity in of_kind)
            usage = image.kind_usage.get(kind)
            counted = (0, 0) if usage is None else (usage.entity_count, usage.byte_count)
            hold(counted == (len(of_kind), size), "E2 Usage", f"{kind} counts {counted}; it has {len(of_kind)}, {size}")
