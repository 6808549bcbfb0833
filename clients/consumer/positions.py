"""Places in a partition, as values: where a consumer reads next, and what a store keeps.

The epoch of a position is the leader epoch of the record below, so that a new leader can tell if it has this record (KIP-320):

    1. A consumer has read record 9, which has leader epoch 5. Its position is offset 10, epoch 5.
    2. Broker 2 leads epoch 6. Its log has epoch 5 up to offset 8: records 8 and 9 were lost.
    3. Offset 10 alone would tell nothing. The consumer would miss the new records 8 and 9.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from clients.metadata.cluster import ClusterNode, TopicPartition
from metadata_log.format.ids import Epoch, Offset, Uuid


class Position(NamedTuple):
    """The next record that the program gets. `epoch` is that of the record below; None: not known."""

    offset: Offset
    epoch: Epoch | None = None


class StoredPosition(NamedTuple):
    """A committed position. It counts only for the topic with this id; None: for any topic of the name."""

    offset: Offset
    epoch: Epoch | None = None
    topic_id: Uuid | None = None


class Leader(NamedTuple):
    """The leader of a partition, and its epoch; None: the metadata has no epoch."""

    node: ClusterNode
    epoch: Epoch | None


class PositionStore(Protocol):
    """Keeps the positions of one consumer."""

    async def load(self) -> Mapping[TopicPartition, StoredPosition]:
        """Returns all positions. Raises PositionsUnusable."""

    async def save(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Adds or replaces these positions, durably; all others stay. Raises PositionsUnusable: the old ones hold."""
