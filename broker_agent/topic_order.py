"""All topic names in order, from any name on, without sorting all of them in one piece.

Sorting a million names takes longer than a turn of the event loop may. A `ShardedMap` has its names in 128 shards; each shard is
sorted by itself, and what a page needs is merged from there. A shard in which no topic came or went is the same object in the
next image, and its order is kept: after one new topic one shard is sorted anew.
"""

import heapq
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from metadata_log.image.sharded_map import ShardedMap

_SORTED_PER_UNIT: Final = 16
"""So many names are sorted in the time that it takes to tell of one partition (0.4 us each, against 7)."""


class TopicOrder:
    """Keeps the order of the shards that it saw last."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Mapping[str, Any], list[str]], ...] = ()

    def names_from(self, topics: ShardedMap[str, Any], start: str) -> Generator[int, None, Iterator[str]]:
        """The names of `topics` that are `start` or later, ascending.

        A generator: each step sorts one shard, and yields how much work that was, in partitions.
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
