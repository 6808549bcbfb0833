"""A broker's log for its watches: its own copy of the metadata log, and the image of its cache.

A watch shows what clients of this broker see in the cache, and ends when the broker may not serve any more. Example with broker
101:
    1. The store applies [40, 45) on its thread, and the cache swaps to the image at 45. The watches read [40, 45) and show it.
    2. The network between broker 101 and the controllers fails, and the lease lapses. The watches end with BROKER_NOT_AVAILABLE,
       and their clients go on at another node, from 45.
    3. Broker 101 drops its store after damage. The cache keeps its image, and the watches wait until the store has come so far
       again. Then they go on, or begin with the state if the new log begins above their positions.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from broker_agent.cache import MetadataCache
from broker_agent.own_disk.broker_log import BrokerLog
from broker_agent.watching.log_reading import place_in, read_from
from broker_agent.wire import ServingBroker, describe
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from watches.core.position import Place, Position
from watches.core.watched_log import Stretch, Unavailable

T = TypeVar("T")


class WatchedBroker(ServingBroker, Protocol):
    """The view of the broker that its watches need."""

    @property
    def cache(self) -> MetadataCache: ...

    async def changed(self) -> None:
        """Returns at the next change of state, lease or cache."""

    async def in_log(self, work: Callable[[BrokerLog], T]) -> T:
        """Returns the result of `work` on the broker's log, done on the store's thread.

        Raises:
            LogUnreadable: the disk has lost a part of the log, or the broker stops.
        """


class BrokerWatchedLog:
    """Implements `WatchedLog` over one broker."""

    def __init__(self, broker: WatchedBroker) -> None:
        self._broker = broker

    @property
    def cluster_id(self) -> str:
        return self._broker.cluster_id

    @property
    def generation(self) -> int:
        return self._broker.generation

    @property
    def image(self) -> MetadataImage:
        return self._broker.cache.current.image

    def problem(self) -> Unavailable | None:
        broker = self._broker
        if broker.may_serve():
            return None
        return Unavailable("BROKER_NOT_AVAILABLE", f"broker {broker.broker_id} {describe(broker)}; ask another node")

    async def changed(self) -> None:
        await self._broker.changed()

    async def place_of(self, offset: Offset) -> Place:
        image = self.image
        return await self._broker.in_log(lambda log: place_in(log, offset, image))

    async def read(self, position: Position, max_bytes: int, until: Offset) -> Stretch:
        end = min(until, self.image.offset)
        return await self._broker.in_log(lambda log: read_from(log, position, max_bytes, end))
