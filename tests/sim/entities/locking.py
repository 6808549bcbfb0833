"""The lock of a simulated client: a fair queue of ephemeral entities, as the recipe of the Python client does it.

Each client that wants the lock writes one entity of its session. The entity that was created first holds the lock, under the
offset of its creation as the token. Example with the lock "m":

    1  At 40 e0 creates ("lock", "m/e0/1/1"), and at 44 e1 creates ("lock", "m/e1/1/1"). e0 holds the lock under the token 40.
    2  e0 overwrites its entity at 50: the version is 50, and the creation is 40 still. e0 holds the lock.
    3  e0 deletes its entity. e1 holds the lock under the token 44.
"""

from typing import TYPE_CHECKING

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import Offset
from metadata_log.format.records import Entity
from quorum.controller.protocol.entity_commands import Condition, DeleteEntity, PutEntity
from tests.sim.entities.sessions import SimSession

if TYPE_CHECKING:
    from tests.sim.entities.clients import EntityClient

LOCKS = ("m", "n")
RELEASE_CHANCE = 0.2
REWRITE_CHANCE = 0.3
GIVE_UP_CHANCE = 0.3


def place_in_queue(entity: Entity) -> Offset:
    """Entities with a lower place come first."""
    return entity.created


class Locking:
    """The locks of one client: one at a time."""

    def __init__(self, client: "EntityClient") -> None:
        self._client = client
        self._lock: str | None = None
        self._name: EntityName = ("", "")
        self._session: SimSession | None = None
        self._is_held = False
        self._count = 0

    def act(self) -> None:
        """Goes on towards the lock, or releases it."""
        client, session = self._client, self._client.session
        if session is None or not session.is_open:
            return
        if self._lock is None:
            self._queue_up(session)
        elif self._is_held and client.dice.random() < RELEASE_CHANCE:
            self._release()
        elif client.dice.random() < REWRITE_CHANCE:
            self._rewrite()
        else:
            client.read(self._look)

    def forget(self) -> None:
        """The client does not believe any more that it holds the lock, or waits for it."""
        if self._lock is not None:
            self._client.cluster.laws.entities.locks.ended(self._lock, self._client.name)
        self._lock, self._session, self._is_held = None, None, False

    def _queue_up(self, session: SimSession) -> None:
        client = self._client
        self._lock = client.dice.choice(LOCKS)
        self._session = session
        self._count += 1  # a late deletion of an earlier entity must not delete this one
        self._name = ("lock", f"{self._lock}/{session.name}/{self._count}")
        name, owner = self._name, session.owner
        client.transact((Condition(name, exists=False),), lambda tag: (PutEntity(name, tag, owner=owner),))

    def _rewrite(self) -> None:
        """The holder, or a client that waits, tells the others something."""
        name = self._name
        self._client.transact(
            (Condition(name, exists=True),), lambda tag: (PutEntity(name, tag + b" busy", keep_owner=True),)
        )

    def _release(self) -> None:
        name, note = self._name, ("plain", f"note {self._client.name}")
        self._client.cluster.coverage["lock released"] += 1
        self.forget()
        self._client.transact((), lambda tag: (PutEntity(note, tag), DeleteEntity(name)))

    def _look(self) -> None:
        """Looks at the queue in an image that is linearizable."""
        client, lock, session = self._client, self._lock, self._session
        if lock is None or session is None or client.image is None or session.has_ended:
            return
        queue = [
            entity
            for (kind, name), entity in client.image.entities.items()
            if kind == "lock" and name.startswith(f"{lock}/")
        ]
        if self._name not in {(entity.kind, entity.name) for entity in queue}:
            if client.dice.random() < GIVE_UP_CHANCE:  # perhaps its request is still on its way
                self.forget()
            return
        first = min(queue, key=lambda entity: place_in_queue(entity))
        if (first.kind, first.name) == self._name and not self._is_held:
            self._is_held = True
            client.cluster.laws.entities.locks.holds(lock, client.name, session, first.created)
        elif len(queue) > 1:
            client.cluster.coverage["lock waited for"] += 1
