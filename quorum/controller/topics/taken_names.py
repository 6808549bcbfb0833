"""The names that a new topic may not have: those of other topics, and those that differ only in '.' and '_'.

Metrics cannot tell '.' from '_', so `a.b` and `a_b` collide. A name with two separators has four variants, which are looked up
one by one. A name with twelve separators has 4,096 variants. For such names the image's topics are searched once for the whole
request, in pieces. Example:
    1. a request creates 5,000 topics with names of twelve separators; the cluster has 20,000 topics;
    2. at the first of them the search looks at 20,000 names, 1,000 in each piece, and keeps those with many separators;
    3. for each of the 5,000 one look into what was kept is enough.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.pieces import Piece
from quorum.controller.protocol.topic_rules import Rejected, check_name, collision_key

VARIANTS_MAX: Final = 8
"""Maximum number of separators in a name whose variants are looked up one by one: 2 ** 8 look-ups."""
_LOOKUPS_A_RECORD: Final = 4
"""How many look-ups cost as much as a record."""
_NAMES_A_PIECE: Final = 1_000
"""Maximum number of names that a piece of the search looks at."""
_NAMES_A_RECORD: Final = 8
"""How many names in the search cost as much as a record."""


def lookups_cost(name: str) -> int:
    """The cost of the look-ups for a new name, in records. The search for names with many separators is not counted."""
    return (1 << min(collision_key(name).count("_"), VARIANTS_MAX)) // _LOOKUPS_A_RECORD


class TakenNames:
    """The names that are taken while a request creates topics."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._of_request: dict[str, str] = {}
        """Collision key -> name, for the topics of this request that have no error."""
        self._found: dict[str, str] | None = None
        """Collision key -> name, for the topics of the image with many separators; None before the search."""

    def take(self, name: str) -> None:
        """Notes a topic that the request creates."""
        self._of_request[collision_key(name)] = name

    def check(self, name: str) -> Iterator[Piece]:
        """Checks a new name, in pieces without records. Raises Rejected."""
        check_name(name)
        if name in self._image.topic_ids:
            raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        key = collision_key(name)
        other = self._of_request.get(key)
        if other is None and key.count("_") > VARIANTS_MAX:
            if self._found is None:
                self._found = {}
                yield from self._search(self._found)
            other = self._found.get(key)
        elif other is None:
            yield Piece([], lookups_cost(name))
            other = next((each for each in _variants(key) if each in self._image.topic_ids), None)
        if other is not None:
            raise Rejected(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic name {name!r} collides with {other!r}: metrics can't tell '.' from '_'",
            )

    def _search(self, found: dict[str, str]) -> Iterator[Piece]:
        for count, topic in enumerate(self._image.topics_by_id.unordered_values(), 1):
            name = topic.name
            if name.count("_") + name.count(".") > VARIANTS_MAX:
                key = collision_key(name)
                found[key] = min(name, found.get(key, name))
            if count % _NAMES_A_PIECE == 0:
                yield Piece([], _NAMES_A_PIECE // _NAMES_A_RECORD)


def _variants(key: str) -> Iterator[str]:
    """All names with this collision key; none for a name without separators, which differs from no other."""
    parts = key.split("_")
    if len(parts) > 1:
        for choice in product("._", repeat=len(parts) - 1):
            yield "".join(part + separator for part, separator in zip(parts, (*choice, ""), strict=True))
