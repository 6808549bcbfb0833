"""Releases the memory of deleted partitions bit by bit, because Python frees an object at once when its last reference is gone.

Example:
    1. a client deletes topics with 2,000,000 partitions. The transaction ends, and the node adopts the image without them;
    2. if the node dropped its reference to the old image now, Python would free two million states in this one turn: 0.2 s;
    3. instead the old topics stay here, and each turn lets go of 10,000 partitions.
"""

from typing import Final

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import CHUNK_PARTITIONS, Chunk, TopicImage

KEPT_FROM: Final = 1_000
"""How many partitions an image has lost at least, before its topics are kept here."""
RELEASED_A_TURN: Final = 10_000
"""Maximum number of partitions that a turn lets go of: about 1 ms of work."""


class Leftovers:
    """The topics of images that a node has dropped."""

    def __init__(self) -> None:
        self._shards: list[list[TopicImage]] = []
        self._topics: list[TopicImage] = []
        self._chunks: list[Chunk] = []

    def __bool__(self) -> bool:
        return bool(self._shards or self._topics or self._chunks)

    def keep(self, dropped: MetadataImage, image: MetadataImage) -> None:
        """Keeps the topics of an image that is about to be dropped, if `image` has far fewer partitions."""
        if dropped.partition_count - image.partition_count >= KEPT_FROM:
            alive = {id(shard) for shard in image.topics_by_id.shards()}
            gone = [shard for shard in dropped.topics_by_id.shards() if id(shard) not in alive]
            self._shards += [list(shard.values()) for shard in gone]

    def release(self) -> None:
        """Lets go of some topics. Those that live on in another image cost nothing, and are counted all the same."""
        room = RELEASED_A_TURN
        while room > 0 and self:
            if self._chunks:
                count = -(-room // CHUNK_PARTITIONS)
                room -= CHUNK_PARTITIONS * min(count, len(self._chunks))
                del self._chunks[-count:]
            elif self._topics:
                topic = self._topics.pop()
                if topic.partition_count > RELEASED_A_TURN:
                    self._chunks = list(topic.chunks)
                else:
                    room -= 1 + topic.partition_count
            else:
                self._topics = self._shards.pop()
