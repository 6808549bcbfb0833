"""What one client has seen of each topic's leader epochs, and of which topic: the memory that no older answer turns back.

A topic is its id; a name may pass from one topic to another. Epochs are therefore kept with the id that they are of, and bind
answers about that id only:

    1. `orders` has id A, and partition 0 the leader epoch 5.
    2. A broker that lags behind knows no `orders`. The client's view loses the topic; this memory does not.
    3. Epoch 4 of id A is refused: it is older than what was seen. Epoch 0 of id B is taken: `orders` was created anew.

Which of two ids is the later one, the ids themselves do not tell. Each answer says as of which generation and offset it is:
an answer about id A that is older than one that had id B speaks of the deleted topic, and is refused. That is all that can be
known. An answer that does not say what it is as of is believed, and so is any answer about a topic that is not remembered here,
because interest in it had ended.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from metadata_log.format.ids import Epoch, Offset, Uuid


class ViewVersion(NamedTuple):
    """What an answer is as of. The later generation is the newer one, whatever the offsets: `quorum recover` may cut the log."""

    generation: int
    offset: Offset


@dataclass(slots=True)
class _Seen:
    """One topic. `as_of` is the newest answer that gave it this id."""

    topic_id: Uuid | None
    as_of: ViewVersion | None
    epochs: dict[int, Epoch] = field(default_factory=dict)


class SeenTopics:
    """Topic -> its id and its partitions' leader epochs, as far as this client has seen them."""

    def __init__(self) -> None:
        self._topics: dict[str, _Seen] = {}

    def keep_only(self, topics: frozenset[str]) -> None:
        """Forgets all topics but these."""
        for topic in self._topics.keys() - topics:
            del self._topics[topic]

    def is_outdated(self, topic: str, topic_id: Uuid | None, as_of: ViewVersion | None) -> bool:
        """Whether an answer that gives the topic this id speaks of a topic that has gone."""
        seen = self._topics.get(topic)
        if seen is None or None in (topic_id, seen.topic_id) or seen.topic_id == topic_id:
            return False
        return as_of is not None and seen.as_of is not None and as_of < seen.as_of

    def see_topic(self, topic: str, topic_id: Uuid | None, as_of: ViewVersion | None) -> None:
        """The topic has this id; with another id than before its epochs begin anew. None: the answer gives no id."""
        seen = self._topics.get(topic)
        if seen is None or (topic_id is not None and seen.topic_id not in (None, topic_id)):
            self._topics[topic] = _Seen(topic_id, as_of)
            return
        seen.topic_id = seen.topic_id if topic_id is None else topic_id
        if seen.as_of is None or (as_of is not None and as_of > seen.as_of):
            seen.as_of = as_of

    def see_epoch(self, topic: str, partition: int, epoch: Epoch | None) -> bool:
        """Takes an answer's leader epoch; False if a later one was seen. None: the answer cannot say, and is believed."""
        epochs = self._topics[topic].epochs
        if epoch is None:
            epochs.pop(partition, None)
            return True
        if epoch < epochs.get(partition, epoch):
            return False
        epochs[partition] = epoch
        return True

    def epoch_of(self, topic: str, partition: int) -> Epoch | None:
        """The latest leader epoch that was seen; None if none was."""
        seen = self._topics.get(topic)
        return None if seen is None else seen.epochs.get(partition)

    def raise_epoch(self, topic: str, partition: int, epoch: Epoch, topic_id: Uuid | None) -> bool:
        """Another response than one of metadata has shown this epoch. True if it is later than the one that was seen.

        `topic_id` is whose epoch it is; None where the response does not say, and then it is taken for the known topic's.
        """
        seen = self._topics.get(topic)
        last = None if seen is None else seen.epochs.get(partition)
        if seen is None or last is None or epoch <= last:
            return False
        if None not in (topic_id, seen.topic_id) and topic_id != seen.topic_id:
            return False
        seen.epochs[partition] = epoch
        return True
