"""A truce: for a moment no client of entities works, and no entity is left.

`metadata.version` can fall below 3 only while there are no entities and no sessions of clients. An example:

    1. Operator 2 wants the features down, and asks for a truce. Register client 1 ends its call, and rests.
    2. Lock client 3 waits for a lock. It gives up, and closes its session.
    3. Nobody is at work any more. The janitor deletes what is left, and operator 2 lowers the level.
    4. Operator 2 raises the level, and ends the truce. The clients go on.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

LOOK_S: Final = 0.05
WAITS_S: Final = 8.0
"""How long a truce waits for clients whose calls are not answered. Then the level does not fall."""


class Truce:
    """Shared by all clients of entities and all operators."""

    def __init__(self) -> None:
        self._asked = 0
        self._at_work = 0

    @property
    def is_wanted(self) -> bool:
        """True: end what you do, and rest."""
        return self._asked > 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """A client is at work."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Waits until nobody is at work. Nobody begins in the block."""
        self._asked += 1
        try:
            for _ in range(round(WAITS_S / LOOK_S)):
                if not self._at_work:
                    break
                await asyncio.sleep(LOOK_S)
            yield
        finally:
            self._asked -= 1
