"""Figures of the whole cluster for the metrics page: brokers by state, topics, partitions, partitions that lack something,
entities and sessions.

Counting takes up to 0.3 us a partition, which a controller's event loop does not have to spare. So a background task counts in
a thread, once a second and only when the image has changed; the page shows the last result. Every controller counts,
so that a new leader has figures at once. Only the active controller shows figures: a sum over all controllers is then right.
"""

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.contact import BrokerState, shown_state
from quorum.controller.partitions.listing.partition_counts import PartitionCounter, PartitionCounts
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import Refused

INTERVAL_S: Final = 1.0
READ_TIMEOUT_MS: Final = 1_000


class Figures(NamedTuple):
    """The figures of one image."""

    brokers: Counter[BrokerState]
    topics: int
    partitions: PartitionCounts
    entities: int = 0
    entity_bytes: int = 0
    sessions: int = 0
    """Open sessions of clients, and of entities with a TTL."""


class ClusterFigures:
    """The newest figures that a controller has counted."""

    def __init__(self) -> None:
        self.newest: Figures | None = None
        """None: the first count has not ended."""
        self._counted: MetadataImage | None = None
        self._counter = PartitionCounter()

    async def keep(self, node: ControllerNode, interval_s: float = INTERVAL_S) -> None:
        """Counts again whenever the image has changed, until it is cancelled."""
        while True:
            await self.look(node)
            await asyncio.sleep(interval_s)

    async def look(self, node: ControllerNode) -> None:
        """Counts the image that the node has applied, unless that image was counted already."""
        try:
            image = await node.read_local(lambda view: view.image, 0, READ_TIMEOUT_MS)
        except Refused:
            return  # the node has no image yet, or has stopped its replay: the old figures stay
        if image is not self._counted:
            partitions = await asyncio.to_thread(self._counter.count, image)
            brokers = Counter(map(shown_state, image.brokers.values()))
            counts = len(image.entities), image.entity_bytes, len(image.client_sessions)
            self._counted, self.newest = image, Figures(brokers, image.topic_count, partitions, *counts)
