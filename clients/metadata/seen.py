"""The topic ids and leader epochs that one client has seen, so that an older answer is recognized.

A topic is its id; a topic name may pass from one topic to another. So leader epochs are kept together with the topic id, and
count only for answers about the same id:

    1. `orders` has id A, and partition 0 has leader epoch 5.
    2. A broker that lags behind answers that there is no `orders`. The client's view loses the topic; this memory keeps it.
    3. Epoch 4 of id A is refused, because it is older than epoch 5. Epoch 0 of id B is accepted: `orders` was created anew.

Topic ids have no order, so two ids do not show which topic is newer. But each answer carries its generation and offset. An answer
about id A that is older than an answer about id B describes the deleted topic, and is refused. A recovery (`quorum recover`) may
lose leader changes, and then epochs go back although the id is the same: an answer of a later generation starts with no epochs,
and an answer of an earlier generation is refused. An answer without generation and offset is believed. So is any answer about a
topic that is not in this memory, because the client had lost interest in it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from metadata_log.format.ids import Epoch, Offset, Uuid


class ViewVersion(NamedTuple):
    """The version of an answer. A later generation is newer at any offset, because `quorum recover` may cut the log."""

    generation: int
    offset: Offset


@dataclass(slots=True)
class _Seen:
    """One topic. `as_of` is the version of the newest answer with this id."""

    topic_id: Uuid | None
    as_of: ViewVersion | None
    epochs: dict[int, Epoch] = field(default_factory=dict)


class SeenTopics:
    """For each topic its id and its partitions' leader epochs, as far as this client has seen them."""

    def __init__(self) -> None:
        self._topics: dict[str, _Seen] = {}

    def keep_only(self, topics: frozenset[str]) -> None:
        """Forgets all other topics."""
        for topic in self._topics.keys() - topics:
            del self._topics[topic]

    def is_outdated(self, topic: str, topic_id: Uuid | None, as_of: ViewVersion | None) -> bool:
        """Tells whether an answer with this topic id describes a deleted topic, or the time before a recovery."""
        seen = self._topics.get(topic)
        if seen is None or seen.as_of is None or as_of is None:
            return False
        is_another = None not in (topic_id, seen.topic_id) and seen.topic_id != topic_id
        return as_of.generation < seen.as_of.generation or (is_another and as_of < seen.as_of)

    def see_topic(self, topic: str, topic_id: Uuid | None, as_of: ViewVersion | None) -> None:
        """Notes the topic's id; a new id and a new generation start with no epochs. None: the answer has no id."""
        seen = self._topics.get(topic)
        if (
            seen is None
            or (topic_id is not None and seen.topic_id not in (None, topic_id))
            or (as_of is not None and seen.as_of is not None and as_of.generation > seen.as_of.generation)
        ):
            self._topics[topic] = _Seen(topic_id, as_of)
            return
        seen.topic_id = seen.topic_id if topic_id is None else topic_id
        if seen.as_of is None or (as_of is not None and as_of > seen.as_of):
            seen.as_of = as_of

    def see_epoch(self, topic: str, partition: int, epoch: Epoch | None) -> bool:
        """Notes the leader epoch of an answer; False if a later epoch was seen. None: the answer has no epoch, and is
        believed."""
        epochs = self._topics[topic].epochs
        if epoch is None:
            epochs.pop(partition, None)
            return True
        if epoch < epochs.get(partition, epoch):
            return False
        epochs[partition] = epoch
        return True

    def epoch_of(self, topic: str, partition: int) -> Epoch | None:
        """The latest leader epoch seen; None if none was seen."""
        seen = self._topics.get(topic)
        return None if seen is None else seen.epochs.get(partition)

    def is_later(self, topic: str, partition: int, epoch: Epoch, topic_id: Uuid | None) -> bool:
        """Tells whether a leader epoch from a response that is not metadata is later than the last one seen in metadata.

        `topic_id` is the id of the epoch's topic; None if the response has no id, and then the known topic is meant. The epoch
        is not noted, because the response has no generation:

            1. A client knows epoch 5. `quorum recover` loses two leader changes, and metadata of the new generation says epoch 3.
            2. A response of a broker that has not heard of the recovery arrives late, with epoch 5.
            3. Were epoch 5 noted, the client would refuse epoch 4 of the new generation, which has the real leader.
        """
        seen = self._topics.get(topic)
        last = None if seen is None else seen.epochs.get(partition)
        if seen is None or last is None:
            return False
        is_another = None not in (topic_id, seen.topic_id) and topic_id != seen.topic_id
        return epoch > last and not is_another
