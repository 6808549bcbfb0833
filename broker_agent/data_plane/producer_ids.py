"""Producer ids: numbers that no other producer of the cluster has ever had.

1. The broker 101 asks for a block, and gets the ids 4,000 to 4,999. The log has the record of it.
2. The broker hands out 4,000, 4,001 and so on, without asking anybody.
3. The process is restarted. The next process gets another block; the rest of the old one is never used.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker_agent.client import CallFailed


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The ids from `first` to `first + count - 1` belong to this broker, in this generation of the cluster."""

    first: int
    count: int
    generation: int


class ProducerIds:
    """Hands out producer ids one by one. Any number of tasks may ask at the same time."""

    def __init__(
        self,
        allocate: Callable[[], Awaitable[ProducerIdBlock]],
        generation: Callable[[], int],
        error: Callable[[str], Exception] = CallFailed,
    ) -> None:
        """`allocate` asks the controller for a block, and raises CallFailed. `error` makes the error of `next` from its text."""
        self._allocate = allocate
        self._generation = generation
        self._error = error
        self._block = ProducerIdBlock(0, 0, 0)
        self._used = 0
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """Returns an id that was never used. Asks the controller only when a block is used up.

        Raises:
            Exception: there is no block: NotAnswered in an embedding process, CallFailed in `brokerd`. At most a block of ids is
                lost; ask again.
        """
        async with self._turn:
            # The recovered history of a later generation may not have the block, and may give it to another broker.
            while self._used == self._block.count or self._block.generation != self._generation():
                try:
                    self._block, self._used = await self._allocate(), 0
                except CallFailed as e:
                    raise self._error(f"no producer ids: {e}. At most a block of ids is lost; ask again") from e
            self._used += 1
            return self._block.first + self._used - 1
