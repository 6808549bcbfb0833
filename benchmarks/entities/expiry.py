"""The exactness of a session's end: many clients stop at known times, and a watcher sees the keys vanish.

The lateness of a session is the time from the end of its timeout, counted from when its client *sent* the last keep-alive, until
the watcher sees that the key has vanished. A server that ends no session early shows no lateness below zero. Example with a
timeout of 3 s: a client sends its last keep-alive at 10.0 s, and the key vanishes at 13.4 s. The lateness is 0.4 s.
"""

import asyncio
import random
import time

from benchmarks.entities.sides import EntitySide

TIMEOUT_S = 3
SPREAD_S = 1.5
"""The time over which the last keep-alives are scattered, so that no tick of a server decides the figures."""
AT_ONCE = 20
WAIT_S = 15.0


async def lateness(side: EntitySide, count: int, dice: random.Random) -> list[float]:
    """The lateness of `count` sessions in seconds, sorted."""
    async with side.sessions(TIMEOUT_S) as sessions:
        for start in range(0, count, AT_ONCE):
            await asyncio.gather(*map(sessions.open, range(start, min(start + AT_ONCE, count))))
        began = time.perf_counter()
        stops = sorted((dice.uniform(0, SPREAD_S), number) for number in range(count))
        sent: dict[int, float] = {}
        seen: dict[int, float] = {}

        async def watch() -> None:
            async for number in sessions.vanished():
                seen[number] = time.perf_counter()
                if len(seen) == count:
                    return

        watching = asyncio.create_task(watch())
        for after, number in stops:
            await asyncio.sleep(max(0.0, began + after - time.perf_counter()))
            sent[number] = time.perf_counter()
            await sessions.keep_alive(number)
        try:
            async with asyncio.timeout(WAIT_S):
                await watching
        except TimeoutError:
            raise TimeoutError(f"{count - len(seen)} of {count} sessions did not end within {WAIT_S:g} s") from None
    return sorted(seen[number] - sent[number] - TIMEOUT_S for number in sent)
