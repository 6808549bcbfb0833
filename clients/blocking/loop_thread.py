"""One event loop on a thread of its own, for callers that block.

1. A script calls `client.put(...)`. The call runs on the loop's thread, and the script's thread waits for the result.
2. Meanwhile the loop keeps the script's session alive, also while the script computes for a minute.
3. The user presses Ctrl-C. The call is cancelled on the loop, and the script gets KeyboardInterrupt.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

R = TypeVar("R")


class LoopThread:
    """An event loop that runs until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metaquorum client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """Returns the result of `work`, or raises its error. After `timeout_s` the work is cancelled.

        Raises:
            TimeoutError: the time is over.
        """
        assert threading.current_thread() is not self._thread, "a call that blocks, on the loop's own thread"
        future = asyncio.run_coroutine_threadsafe(_limited(work, timeout_s), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[R]) -> Iterator[R]:
        """Yields the items, each asked for when the caller wants it."""
        try:
            while (item := self.run(_next(items))) is not None:
                yield item[0]
        finally:
            self.run(_close(items))

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Ends the loop. Calls that still run are cancelled. May be called twice."""
        if self.is_closed:
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _limited(work: Coroutine[Any, Any, R], timeout_s: float | None) -> R:
    async with asyncio.timeout(timeout_s):
        return await work


async def _next(items: AsyncIterator[R]) -> tuple[R] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _close(items: Any) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        # A call that Ctrl-C has cancelled may not have ended yet, and Python closes no generator that runs.
        while getattr(items, "ag_running", False):
            await asyncio.sleep(0)
        await close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
