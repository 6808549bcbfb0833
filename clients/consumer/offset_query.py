"""A program's question for offsets: the start, the end, or the first record of a time, of partitions that need not be assigned.

1. A program asks for the ends of orders-0 and orders-1, which brokers 1 and 2 lead. Two requests are sent.
2. Broker 2 leads no more: its question has a pause, and goes to the next leader in the metadata.
3. Both answers are there: `is_over`.
"""

from collections.abc import Mapping

from clients.consumer.assigned import Asker
from clients.consumer.errors import ConsumerError
from clients.metadata.cluster import TopicPartition
from clients.partition_values import WantedOffset
from metadata_log.format.ids import Offset


class AskedOffset(Asker):
    """One partition of a query."""

    def __init__(self, query: "OffsetQuery", key: TopicPartition, wanted: WantedOffset) -> None:
        super().__init__(key)
        self.query = query
        self.wanted = wanted
        self.is_found = False
        self.offset: Offset | None = None


class OffsetQuery:
    """One query of the program."""

    def __init__(self, wanted: Mapping[TopicPartition, WantedOffset]) -> None:
        self.asked = [AskedOffset(self, key, place) for key, place in wanted.items()]
        self.error: ConsumerError | None = None

    @property
    def is_over(self) -> bool:
        return self.error is not None or all(each.is_found for each in self.asked)

    def offsets(self) -> dict[TopicPartition, Offset | None]:
        """Return the offsets; None: no record is as young as the wanted time."""
        return {each.key: each.offset for each in self.asked}
