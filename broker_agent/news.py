"""News of a broker: the tasks beside the session wait for a change of its image, state or lease, or for a time."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from metadata_log.image.metadata_image import MetadataImage


class BrokerNews(Protocol):
    """The view of the agent that such a task needs."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def broker_epoch(self) -> int | None: ...

    async def changed(self) -> None:
        """Returns at the next change of state, lease or cache."""


async def wait_for_news(broker: BrokerNews, until_ms: int | None, now_ms: Callable[[], int]) -> None:
    """Returns at the next change of the broker, or at `until_ms`."""
    delay_s = None if until_ms is None else max(0, until_ms - now_ms()) / 1_000
    with suppress(TimeoutError):
        async with asyncio.timeout(delay_s):
            await broker.changed()
