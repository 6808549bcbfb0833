"""All clients of entities of a run: those of registers and locks, and watchers. `tests.chaos.entities.judging` judges them."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, NamedTuple

from metadata_log.format.records import Owner
from metaquorum import AdminError, DeleteEntity, EntityClient
from tests.chaos.cluster import ChaosCluster
from tests.chaos.entities import locks, registers
from tests.chaos.entities.locks import Hold, LockClients
from tests.chaos.entities.recorder import RecordedClient, RecordedOnce, Recorder
from tests.chaos.entities.registers import RegisterClients
from tests.chaos.entities.truce import Truce
from tests.chaos.entities.watchers import Episode, View, Watchers
from tests.chaos.judge.wellness import PATIENCE_S, REPEATED_S
from tests.chaos.operators.calls import OperatorCall

REGISTER_CLIENTS: Final = 4
LOCK_CLIENTS: Final = 3
PAUSE_S: Final = 0.08
"""How long a client pauses between two calls, on average."""


class Noted(NamedTuple):
    """All that the clients of entities have noted."""

    calls: Sequence[OperatorCall] = ()
    holds: Sequence[Hold] = ()
    lost: Sequence[Owner] = ()
    """The sessions of which a client was told that they have ended."""
    episodes: Sequence[Episode] = ()
    views: Sequence[View] = ()


class Entities:
    """The clients of one run."""

    def __init__(self, cluster: ChaosCluster, seed: int) -> None:
        self._cluster = cluster
        self._recorder = Recorder()
        self._truce = Truce()
        self._seed = seed
        self._registers = RegisterClients(self._register_client, seed, REGISTER_CLIENTS, PAUSE_S, self._truce)
        self._locks = LockClients(self._lock_client, seed, LOCK_CLIENTS, PAUSE_S, self._truce)
        self.watchers = Watchers(self._watcher, seed)
        self._errors: list[str] = []

    @property
    def noted(self) -> Noted:
        return Noted(
            self._recorder.calls, self._locks.holds, self._locks.lost, self.watchers.episodes, self.watchers.views
        )

    @property
    def oddities(self) -> list[str]:
        """What no client should ever get."""
        return [*self._recorder.oddities, *self.watchers.oddities, *self._errors]

    async def run(self, until: asyncio.Event) -> None:
        """The clients of registers and locks at work until the event is set; then each ends what it has begun."""
        with _errors_of_clients(self._errors):
            await asyncio.gather(self._registers.run(until), self._locks.run(until))

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """In the block no client works, and no entity is there, unless a call was not answered."""
        async with self._truce.kept():
            async with self._client("janitor", random.Random(0), asks_brokers=False) as janitor:
                with suppress(AdminError):  # then the level stays where it is
                    await _clean(janitor)
            yield

    # --- connections -----------------------------------------------------------------------------------------------

    def _register_client(self, number: int, dice: random.Random) -> RecordedClient:
        """The odd ones ask once. The first two ask controllers, the others ask brokers, which ask the controllers."""
        asks_brokers, caller = number > REGISTER_CLIENTS // 2, f"register client {number}"
        return self._client(caller, dice, asks_brokers=asks_brokers, asks_once=number % 2 == 1)

    def _lock_client(self, number: int, dice: random.Random) -> RecordedClient:
        """The last one asks brokers."""
        return self._client(f"lock client {number}", dice, asks_brokers=number == LOCK_CLIENTS)

    def _watcher(self, number: int, dice: random.Random) -> EntityClient:
        """The first one asks controllers, the second one brokers, the third one all nodes."""
        brokers = [node.endpoint for node in self._cluster.layout.brokers]
        known = {1: self._cluster.endpoints, 2: brokers}.get(number, [*self._cluster.endpoints, *brokers])
        return EntityClient(dice.sample(known, len(known)), self._cluster.layout.cluster_id, REPEATED_S)

    def _client(
        self, caller: str, dice: random.Random, *, asks_brokers: bool, asks_once: bool = False
    ) -> RecordedClient:
        brokers = [node.endpoint for node in self._cluster.layout.brokers]
        known = brokers if asks_brokers else self._cluster.endpoints
        endpoints, cluster_id = dice.sample(known, len(known)), self._cluster.layout.cluster_id
        if asks_once:
            return RecordedOnce(self._recorder, caller, endpoints, cluster_id, dice.choice(PATIENCE_S))
        return RecordedClient(self._recorder, caller, endpoints, cluster_id, REPEATED_S)


async def _clean(janitor: RecordedClient) -> None:
    """Deletes one entity after the other, so that the registers of one group stay a history of their own."""
    for kind in (registers.KIND, locks.GUARDED):
        for entity in [each async for each in janitor.list(kind, names_only=True)]:
            await janitor.transact([], [DeleteEntity(kind, entity.name)])


class _Errors(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append(f"{record.name}: {record.getMessage()} {record.exc_info or ''}")


@contextmanager
def _errors_of_clients(into: list[str]) -> Iterator[None]:
    """Collects the errors that the client library logs: its own mistakes. Its warnings are about faults, and are dropped."""
    logger, handler = logging.getLogger("clients"), _Errors(into)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
