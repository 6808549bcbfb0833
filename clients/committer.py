"""Carries positions to the store of a consumer: one commit at a time, at most one for each interval, and one at the end.

1. At 5 s a commit begins, on a slow disk. The program reads on.
2. At 7 s the program closes the consumer. The committer waits for the commit under way, and then commits what is left.
3. The disk is full: the commit fails. The error is kept for the next `poll` or `close`; the old positions hold.
4. A program cancels its call of `commit`. The thread that writes the file goes on, and the next commit waits for this thread.
"""

import asyncio
from collections.abc import Callable

from clients.consumer.commits import Commits
from clients.consumer.positions import PositionStore
from clients.metadata_client import ClientClock

IDLE_MS = 60_000
"""How long the committer has nothing to do at most."""


class Committer:
    """The commits of one consumer."""

    def __init__(
        self,
        store: PositionStore | None,
        commits: Commits,
        interval_ms: int,
        clock: ClientClock,
        wake: Callable[[], None],
    ) -> None:
        """`wake`: is called after each commit."""
        self._store = store
        self._commits = commits
        self._interval_ms = interval_ms
        self._clock = clock
        self._wake = wake
        self._task: asyncio.Task[Exception | None] | None = None
        """The commit under way."""
        self._error: Exception | None = None

    def step(self, now_ms: int) -> int:
        """Begins a commit if one is due; returns the time of the next step."""
        due_ms = None if self._store is None else self._commits.due_ms(now_ms)
        if due_ms is None:
            return now_ms + IDLE_MS
        if now_ms < due_ms:
            return due_ms
        if self._task is None:
            self._begin().add_done_callback(self._keep_error)
        return now_ms + self._interval_ms

    def _begin(self) -> asyncio.Task[Exception | None]:
        assert self._task is None, "one commit at a time"
        self._task = asyncio.create_task(self._commit(), name="commit")
        self._task.add_done_callback(self._ended)
        return self._task

    def _ended(self, _: asyncio.Task[Exception | None]) -> None:
        self._task = None
        self._wake()

    def _keep_error(self, task: asyncio.Task[Exception | None]) -> None:
        """Nobody waits for this commit: the program hears of the error at its next call."""
        if not task.cancelled():
            self._error = task.result()

    async def commit(self) -> None:
        """Waits for the commit under way, and commits what is left. Raises what the store raises.

        A caller that is cancelled ends no commit: the store may be a thread, which nobody can stop.
        """
        if self._store is None:
            return
        while self._task is not None:
            await asyncio.wait((self._task,))
        error, self._error = await asyncio.shield(self._begin()), None
        if error is not None:
            raise error

    async def _commit(self) -> Exception | None:
        """Returns what the store raises. The positions are committed again later."""
        assert self._store is not None
        positions = self._commits.begin(self._clock.now_ms())
        if not positions:
            return None
        try:
            await self._store.save(positions)
        except Exception as e:  # the caller raises it
            return e
        self._commits.done(positions)
        return None

    def raise_error(self) -> None:
        """Raises the error of the last commit, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error
