"""Releases the memory of deleted partitions and entities bit by bit: Python frees an object at once with its last reference.

Example:
    1. a client deletes topics with 2,000,000 partitions. The transaction ends, and the node adopts the image without them;
    2. if the node dropped its reference to the old image now, Python would free two million states in this one turn: 0.2 s;
    3. instead the old topics stay here, and each turn lets go of 10,000 partitions.

The entities and sessions of embedders stay here likewise: an image of the past with 1,000,000 entities would take a quarter of a
second to free.
"""

from typing import Final, TypeAlias

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import CHUNK_PARTITIONS, Chunk, TopicImage

KEPT_FROM: Final = 1_000
"""How many partitions an image has lost at least, before its topics are kept here."""
RELEASED_A_TURN: Final = 10_000
"""Maximum number of partitions that a turn lets go of: about 1 ms of work."""


_Part: TypeAlias = tuple[int, object]
"""A part of a map, with the number of its entries."""


class Leftovers:
    """The topics, entities and sessions of images that a node has dropped."""

    def __init__(self) -> None:
        self._shards: list[list[TopicImage]] = []
        self._topics: list[TopicImage] = []
        self._chunks: list[Chunk] = []
        self._embedded: list[_Part] = []

    def __bool__(self) -> bool:
        return bool(self._shards or self._topics or self._chunks or self._embedded)

    def keep(self, dropped: MetadataImage, image: MetadataImage) -> None:
        """Keeps the topics of an image that is about to be dropped, if `image` has far fewer partitions; and so its entities and
        sessions.
        """
        if dropped.partition_count - image.partition_count >= KEPT_FROM:
            alive = {id(shard) for shard in image.topics_by_id.shards()}
            gone = [shard for shard in dropped.topics_by_id.shards() if id(shard) not in alive]
            self._shards += [list(shard.values()) for shard in gone]
        if _embedded_count(dropped) - _embedded_count(image) >= KEPT_FROM:
            alive = {id(part) for _, part in _embedded_parts(image)}
            self._embedded += [each for each in _embedded_parts(dropped) if id(each[1]) not in alive]

    def release(self) -> None:
        """Lets go of some topics. Those that live on in another image cost nothing, and are counted all the same."""
        room = RELEASED_A_TURN
        while room > 0 and self:
            if self._embedded:
                room -= 1 + self._embedded.pop()[0]
            elif self._chunks:
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


def _embedded_count(image: MetadataImage) -> int:
    return len(image.entities) + len(image.client_sessions)


def _embedded_parts(image: MetadataImage) -> list[_Part]:
    """Return the parts of the maps of entities, sessions and owners. An unchanged part is the same object in the next image."""
    parts: list[_Part] = [(len(chunk.keys), chunk) for chunk in image.entities.chunks()]
    for shards in (image.client_sessions.shards(), image.owned.shards()):
        parts += [(len(shard), shard) for shard in shards]
    return parts
