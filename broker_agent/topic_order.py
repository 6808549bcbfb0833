"""All topic names in order, from any name on, without sorting all names in one piece.

Sorting a million names takes longer than a turn of the event loop may take. A `ShardedMap` keeps its names in 128 shards. Each
shard is sorted by itself, and a page merges the sorted shards. A shard without new or deleted topics is the same object in the
next image, so its order is kept:

    1. A cluster has 1,000,000 topics. The first page sorts 128 shards of 8,000 names, one at a time.
    2. Topic orders is created. The next page sorts the one shard with orders, and reuses the order of 127 shards.
"""

import heapq
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from metadata_log.image.sharded_map import ShardedMap

_SORTED_PER_UNIT: Final = 16
"""How many names are sorted in the time that one partition of an answer takes (0.4 us each, against 7 us)."""


class TopicOrder:
    """Keeps the order of the shards of the last call."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Mapping[str, Any], list[str]], ...] = ()

    def names_from(self, topics: ShardedMap[str, Any], start: str) -> Generator[int, None, Iterator[str]]:
        """Returns the names of `topics` from `start` on, ascending.

        A generator: each step sorts one shard, and yields the amount of work, counted in partitions.
        """
        before, found = self._known, []
        for index, shard in enumerate(topics.shards()):
            if index < len(before) and before[index][0] is shard:
                found.append(before[index])
            else:
                found.append((shard, sorted(shard)))
                yield 1 + len(shard) // _SORTED_PER_UNIT
        self._known = tuple(found)
        return heapq.merge(*[_from(names, start) for _, names in found])


def _from(names: list[str], start: str) -> Iterator[str]:
    for index in range(bisect_left(names, start), len(names)):
        yield names[index]
