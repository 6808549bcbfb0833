"""The raise: after `quorum recover`, each epoch and each producer id is larger than any that was given before.

The recovered log may lack its last records. Then the image has epochs that fall behind what brokers and clients have seen, and
the same numbers would be given a second time. Example without the raise:

    1  Broker 101 leads orders-0 in epoch 7. A change to leader 102, epoch 8, is committed, and broker 102 appends records.
    2  All controllers with that change are lost. The recovered image says: leader 101, epoch 7.
    3  Broker 101 is fenced, and 103 leads in epoch 8. Two leaders have appended under epoch 8, and a follower that compares
       epochs takes the records of 102 for those of 103. Nobody notices that the two logs differ.

It is the same with producer ids: a lost block is allocated again, two producers have one id, and a broker takes the first batch
of the second producer for a repetition, and drops it.

So each generation has a range of its own, `STEP` numbers wide, and the *floor* is the range's beginning. The first active
controller of a generation adds the difference of the new floor and the old one to both epochs of each partition (leader epoch and
partition epoch), and goes on with producer ids from the new floor on. In the example, with generation 3, broker 101 leads in
epoch 2,000,000,007, and 103 in 2,000,000,008. A partition that is created later begins at the floor: a lost record may have
created a partition with the same topic id and number. `STEP` suffices: a partition that changes every second needs 30 years.

The floor follows from the generation, and not from the former floor, because the record of a raise may be lost too: a second
recovery, from a log without that record, would give the numbers of the first one again.

The raise is one transaction: it takes effect as a whole, before any other decision, or not at all, and the next active controller
begins again. A record raises up to `PARTITIONS_PER_RECORD` partitions. A snapshot has the raised partitions, and the `EpochFloor`
says for which generation the raise was done.

Broker epochs and topic ids need no raise. Each request of a broker names its generation, so no request with a broker epoch of the
lost history is accepted. Topic ids are random.
"""

from collections.abc import Iterator
from typing import Final

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import EpochFloor, EpochsRaised, ProducerIds
from metadata_log.format.records.levels import RECORD_LEVELS
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import FollowUpReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.epoch_commands import ContinueRaise, RaiseEpochs
from quorum.controller.protocol.feature_gate import has_level
from quorum.controller.protocol.happenings import PartitionEpochsRaised
from quorum.controller.protocol.pieces import Piece, next_slice

STEP: Final = 1_000_000_000
"""How many epochs and producer ids a generation has. The last of 2^31 generations ends far below 2^63."""
PARTITIONS_PER_RECORD: Final = 250
"""Maximum number of partitions that one record raises: a good millisecond of work for each node."""
FIRST_GENERATION: Final = 1
"""The generation of a cluster that was never recovered."""
_TRANSACTION: Final = "raise epochs"
_HEAD_COST: Final = 2
_TOPIC_COST: Final = 5
"""The cost of a topic, in partitions that are raised."""


def floor_of(generation: int) -> int:
    """The first epoch, and the first producer id, that the generation gives."""
    return (generation - FIRST_GENERATION) * STEP


def is_raise_due(image: MetadataImage, generation: int) -> bool:
    """True if the epochs were not raised for this generation, and all nodes of the cluster read the records of a raise."""
    done = FIRST_GENERATION if image.epoch_floor is None else image.epoch_floor.generation
    return generation > done and has_level(image, RECORD_LEVELS[EpochFloor])


def raise_epochs(image: MetadataImage, command: RaiseEpochs | ContinueRaise, config: ControllerConfig) -> Decision:
    """Raises all epochs, slice by slice. No other decision comes between the slices."""
    if isinstance(command, ContinueRaise):
        return _next(command, config)
    if not is_raise_due(image, command.generation):
        return Decision((), FollowUpReply())
    cost = _HEAD_COST + _TOPIC_COST * image.topic_count + image.partition_count
    is_large = cost >= config.transaction_slice_records
    rest = ContinueRaise(command.generation, image.partition_count, is_large, _pieces(image, command.generation))
    return _next(rest, config)


def _next(rest: ContinueRaise, config: ControllerConfig) -> Decision:
    records, has_more = next_slice(rest.pieces, config.transaction_slice_records)
    transaction = _TRANSACTION if rest.is_large else ""
    if has_more:
        return Decision(tuple(records), FollowUpReply(), rest, transaction=transaction)
    told = PartitionEpochsRaised(rest.generation, rest.partition_count)
    return Decision(tuple(records), FollowUpReply(), happenings=(told,), transaction=transaction)


def _pieces(image: MetadataImage, generation: int) -> Iterator[Piece]:
    floor = floor_of(generation)
    by = floor - image.first_epoch
    used = 0 if image.producer_ids is None else image.producer_ids.next_producer_id
    skipped = [ProducerIds(NO_LEADER, NO_LEADER, floor)] if used < floor else []
    yield Piece([EpochFloor(generation, floor), *skipped], _HEAD_COST)
    for topic in image.topics_by_id.unordered_values():
        for first in range(0, topic.partition_count, PARTITIONS_PER_RECORD):
            count = min(PARTITIONS_PER_RECORD, topic.partition_count - first)
            yield Piece([EpochsRaised(topic.topic_id, first, count, by)], _TOPIC_COST + count)
