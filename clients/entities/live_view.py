"""LiveView: the entities of a kind as a dictionary that follows the cluster.

    async with client.live("shard", "a/") as shards:
        print(shards["a/7"].value)
        await shards.wait_for(lambda: "a/8" in shards)

The view is always the state of the cluster at one offset, `position`: whole transactions, and never older than before. The view
may be behind the cluster. A program that must see its own write waits for it:

    1. The view is at offset 1,244. The program writes a/8, and gets the token (0, 1,250).
    2. `await shards.reach(token)` returns when the view is at 1,251 or above. Now `a/8` is there, unless it was deleted since.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Self

from clients.entities.core.values import Entity, Token
from clients.entities.core.watch_values import EntityDeleted, EntityWritten, WatchBatch, WatchPosition
from clients.entities.watch import Watch
from clients.errors import AdminError
from metadata_log.format.errors import ErrorCode


class LiveView(Mapping[str, Entity]):
    """The entities of one kind by name. Use `async with`, which waits for the first state."""

    def __init__(self, watch: Watch) -> None:
        """`watch`: with `keep_state` and `bookmarks`, for one kind."""
        self._watch = watch
        self._entities: dict[str, Entity] = {}
        self._position: WatchPosition | None = None
        self._changed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow(), name="live view")
        try:
            await self.wait_for(lambda: self._position is not None)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the view, which then stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._watch.close()

    # --- the dictionary --------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Entity:
        return self._entities[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entities)

    def __len__(self) -> int:
        return len(self._entities)

    @property
    def position(self) -> WatchPosition:
        """The view is the state at this position."""
        assert self._position is not None, "use `async with`, which waits for the first state"
        return self._position

    # --- waits -----------------------------------------------------------------------------------------------------

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Returns once `holds()` is true. The question is asked now, and after changes; several changes may come at once.

        Raises:
            AdminError: the watch was refused, or the view was closed, so the view cannot follow any more.
        """
        while not holds():
            await self.changed()

    async def changed(self, since: WatchPosition | None = None) -> None:
        """Returns when the view has moved on, from now or from the position `since`; at the latest after a few seconds. Raises as
        `wait_for`.

        Without `since` it misses a change that came between the program's look at the view and this call:

            1. The program looks at the view at offset 1,244, and sends a transaction. Meanwhile the view moves to 1,250.
            2. `changed()` waits for the change after 1,250. `changed(since=...)` with the position of the look returns at once.
        """
        assert self._task is not None, "use `async with`: the view does not follow yet"
        if since is not None and self._position != since:
            return
        if self._task.done():
            self.check()
            raise AdminError(ErrorCode.NOT_READY, "the view was closed, so it follows no changes any more")
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def check(self) -> None:
        """Raises AdminError if the watch was refused, so that the view stays as it is. A view that was closed is no error."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def reach(self, token: Token) -> None:
        """Returns once the view contains this write, and all before it."""
        await self.wait_for(lambda: self._position is not None and self._position.token > token)

    # --- the task --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            async for batch in self._watch:
                self._take(batch)
                self._tell()
        finally:
            self._tell()

    def _take(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if isinstance(event, EntityWritten):
                self._entities[event.entity.name] = event.entity
            elif isinstance(event, EntityDeleted):
                self._entities.pop(event.name, None)
        self._position = batch.position

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)
