"""Watchers of entities: they go on at any node, from the position that they have seen, for the whole run.

A watcher keeps all batches that it gets. Now and then it closes its watch, and opens another one: at another node, from the last
position or without one. The batches from one opening to the next are an *episode*. One more client keeps a live view, and notes
what the view shows.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from clients.entities.live_view import LiveView
from metaquorum import AdminError, Entity, EntityClient, ErrorCode, WatchBatch, WatchPosition
from tests.chaos.entities import locks, registers
from tests.chaos.judge.wellness import WELL_WITHIN_S, NotWell

BOOKMARK_MS: Final = 1_000
LASTS_S: Final = (5.0, 25.0)
"""How long an episode lasts."""
FORGET_CHANCE: Final = 0.15
"""How often a watcher begins anew, without a position."""
LOOK_S: Final = 1.0

Connect = Callable[[int, random.Random], EntityClient]


class Episode(NamedTuple):
    """A watch from its opening on."""

    who: str
    kind: str
    """Of entities. Empty: every kind."""
    since: WatchPosition | None
    batches: list[WatchBatch]


class View(NamedTuple):
    """A live view, as it was at one moment."""

    who: str
    kind: str
    position: WatchPosition
    entities: tuple[Entity, ...]


class Watchers:
    """Watcher 1 watches all entities, and watcher 2 the registers; watcher 3 has a live view of what locks guard.

    `connect(number, dice)` makes a watcher's connection.
    """

    def __init__(self, connect: Connect, seed: int) -> None:
        self.episodes: list[Episode] = []
        self.views: list[View] = []
        self.oddities: list[str] = []
        self._connect = connect
        self._seed = seed
        self._seen: dict[str, int] = {}
        """How far each watcher has seen the log."""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """The watchers watch while the block runs."""
        work = (self._follow(1, ""), self._follow(2, registers.KIND), self._keep_view(3, locks.GUARDED))
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(ended, asyncio.CancelledError):
                    self.oddities.append(f"a watcher has ended: {ended!r}")

    async def until_seen(self, offset: int) -> None:
        """Returns once each watcher has seen everything below `offset`.

        Raises:
            NotWell: a watcher has not come so far in time.
        """
        for _ in range(round(WELL_WITHIN_S / LOOK_S * 5)):
            if len(self._seen) == 3 and min(self._seen.values()) >= offset:
                return
            await asyncio.sleep(LOOK_S / 5)
        raise NotWell(f"the log ends at {offset}, and the watchers have seen it up to {self._seen} only")

    async def _follow(self, number: int, kind: str) -> None:
        dice, who = random.Random(f"{self._seed} watcher {number}"), f"watcher {number}"
        position: WatchPosition | None = None
        while True:
            episode = Episode(who, kind, None if dice.random() < FORGET_CHANCE else position, [])
            self.episodes.append(episode)
            try:
                async with asyncio.timeout(dice.uniform(*LASTS_S)), self._connect(number, dice) as client:
                    watch = client.watch(kind, position=episode.since, bookmarks=True, bookmark_interval_ms=BOOKMARK_MS)
                    async with watch:
                        async for batch in watch:
                            episode.batches.append(batch)
                            position = batch.position
                            self._seen[who] = position.offset
            except TimeoutError:
                continue
            except AdminError as e:
                await self._refused(who, e)

    async def _keep_view(self, number: int, kind: str) -> None:
        dice, who = random.Random(f"{self._seed} watcher {number}"), f"watcher {number}"
        while True:
            try:
                limit = asyncio.timeout(dice.uniform(*LASTS_S))
                async with limit, self._connect(number, dice) as client, _live(client, kind) as view:
                    while True:
                        self.views.append(View(who, kind, view.position, tuple(view.values())))
                        self._seen[who] = view.position.offset
                        await view.changed()
                        await asyncio.sleep(LOOK_S * dice.random())
            except TimeoutError:
                continue
            except AdminError as e:
                await self._refused(who, e)

    async def _refused(self, who: str, error: AdminError) -> None:
        if error.code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST):
            self.oddities.append(f"{who}: {error.code.name}: {error.message}")
        await asyncio.sleep(LOOK_S / 5)


def _live(client: EntityClient, kind: str) -> LiveView:
    """As `client.live`, but the node says more often how far it has come."""
    return LiveView(client.watch(kind, keep_state=True, bookmarks=True, bookmark_interval_ms=BOOKMARK_MS))
