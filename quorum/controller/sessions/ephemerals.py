"""The end of a session takes its entities along, in the same batch.

Replay refuses a record that ends a session which still owns entities, so no node ever sees an ephemeral entity without its
owner. The removals come first in the batch. Example: broker 7 of epoch 30 owns ("shard", "4"), and is silent for a session.
The last batch of its fencing has RemoveEntity("shard", "4"), and then the fence.

An owner has at most 1,000 entities with names of 512 bytes, so the removals have 600 KiB at most. `CHANGES_BESIDE_MAX` other
records leave the batch below its limit of 1 MiB.
"""

from typing import Final

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Owner, RemoveEntity
from metadata_log.image.metadata_image import MetadataImage

CHANGES_BESIDE_MAX: Final = 600
"""Maximum number of changes of partitions in a batch that also removes the entities of a broker."""


def removals(image: MetadataImage, owner: Owner) -> tuple[RemoveEntity, ...]:
    """The removals of all entities of a session, in the order of their names."""
    return tuple([RemoveEntity(*name) for name in sorted(image.owned.get(owner, ()))])


def of_broker(broker_id: NodeId, broker_epoch: int) -> Owner:
    """The owner that stands for a registration of a broker."""
    return Owner(None, broker_id, broker_epoch)
