"""An immutable map in the order of its keys, with cheap small changes and cheap ranges.

The entries are in sorted chunks of at most 512. A change copies one chunk, and the tuple of chunks. A lookup is two binary
searches: for the chunk, and inside the chunk. A range begins with such a search, and then walks. Example, 100,000 entities:
  1. the map has about 300 chunks; a put copies one chunk and the 300 references;
  2. the old map keeps the old chunk, so a reader of the old map sees nothing of the put;
  3. a page of 1,000 entities walks over 3 or 4 chunks, wherever the page begins.

The content of a map decides what every reader sees. The division into chunks depends on the history of the map, and no reader
sees it: two nodes may have different chunks, and have the same entries in the same order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

CHUNK_MAX: Final = 512
"""Maximum number of entries in a chunk."""
_JOIN_MAX: Final = CHUNK_MAX // 2
"""A chunk that shrinks is joined with its neighbour if both together have at most this many entries."""


class Chunk(Generic[K, V]):
    """Sorted keys with their values. Never changed once its map is finished."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: list[K], values: list[V]) -> None:
        self.keys = keys
        self.values = values


class OrderedMap(Mapping[K, V], Generic[K, V]):
    """A frozen mapping, iterated in key order."""

    __slots__ = ("_chunks", "_firsts", "_size")

    def __init__(self) -> None:
        """Make an empty map. `OrderedEditor` makes all others."""
        self._chunks: tuple[Chunk[K, V], ...] = ()
        self._firsts: tuple[K, ...] = ()
        """The first key of each chunk."""
        self._size = 0

    def edit(self) -> "OrderedEditor[K, V]":
        """Return an editor for changes to this map."""
        return OrderedEditor(self)

    def __getitem__(self, key: K) -> V:
        found = _find(self._chunks, self._firsts, key)
        if found is None:
            raise KeyError(key)
        value: V = found[0].values[found[1]]
        return value

    def get(self, key: K, default: Any = None) -> Any:
        found = _find(self._chunks, self._firsts, key)
        return default if found is None else found[0].values[found[1]]

    def __contains__(self, key: Any) -> bool:
        return _find(self._chunks, self._firsts, key) is not None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(chunk.keys for chunk in self._chunks)

    def items_from(self, first: K, before: K | None = None) -> Iterator[tuple[K, V]]:
        """Return the entries from key `first` on, and below `before`, in order. O(log n), and then O(1) for each entry."""
        index, place = self._place(first)
        last_index, last_place = (len(self._chunks), 0) if before is None else self._place(before)
        for number in range(index, min(last_index + 1, len(self._chunks))):
            chunk = self._chunks[number]
            end = last_place if number == last_index else None
            yield from islice(zip(chunk.keys, chunk.values, strict=True), place, end)
            place = 0

    def count(self, first: K, before: K | None = None) -> int:
        """Return the number of keys from `first` on, and below `before`. O(number of chunks between)."""
        index, place = self._place(first)
        last_index, last_place = (len(self._chunks), 0) if before is None else self._place(before)
        if (last_index, last_place) <= (index, place):
            return 0  # also for a range that ends before it begins
        return sum([len(chunk.keys) for chunk in self._chunks[index:last_index]]) - place + last_place

    def chunks(self) -> tuple[Chunk[K, V], ...]:
        """Return the chunks in order. An unchanged chunk is the same object in the next map."""
        return self._chunks

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def _place(self, key: K) -> tuple[int, int]:
        """Return the chunk, and the place in the chunk, of the first key that is not below `key`."""
        index = max(0, _chunk_of(self._firsts, key))
        if not self._chunks:
            return 0, 0
        keys: Any = self._chunks[index].keys
        return index, bisect_left(keys, key)

    def __repr__(self) -> str:
        return f"OrderedMap({self._size} entries in {len(self._chunks)} chunks)"


class _Items(ItemsView[K, V]):
    """The entries of an OrderedMap, without a search for each of them."""

    _mapping: OrderedMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for chunk in self._mapping.chunks():
            yield from zip(chunk.keys, chunk.values, strict=True)


class _Values(ValuesView[V]):
    """The values of an OrderedMap in the order of the keys, without a search for each of them."""

    _mapping: OrderedMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(chunk.values for chunk in self._mapping.chunks())


class OrderedEditor(Generic[K, V]):
    """Changes to one `OrderedMap`, collected until `finish`. Reads see the changes."""

    __slots__ = ("_base", "_chunks", "_firsts", "_owned", "_size")

    def __init__(self, base: OrderedMap[K, V]) -> None:
        self._base = base
        self._chunks: list[Chunk[K, V]] | None = None
        self._firsts: list[K] = []
        self._owned: set[Chunk[K, V]] = set()
        """Chunks that this editor has made: no map has them."""
        self._size = base._size

    def get(self, key: K) -> V | None:
        if self._chunks is None:
            found = _find(self._base._chunks, self._base._firsts, key)
        else:
            found = _find(self._chunks, self._firsts, key)
        return None if found is None else found[0].values[found[1]]

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self._size

    def __setitem__(self, key: K, value: V) -> None:
        chunks = self._open()
        if not chunks:
            self._insert(0, [key], [value])
            self._size += 1
            return
        index = max(0, _chunk_of(self._firsts, key))
        chunk = self._own(index)
        keys: Any = chunk.keys
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            chunk.values[place] = value
            return
        self._size += 1
        if place == len(keys) == CHUNK_MAX and index == len(chunks) - 1:
            self._insert(index + 1, [key], [value])  # keys that come in order fill every chunk: so a snapshot loads
            return
        keys.insert(place, key)
        chunk.values.insert(place, value)
        if len(keys) > CHUNK_MAX:
            half = len(keys) // 2
            self._insert(index + 1, keys[half:], chunk.values[half:])
            del keys[half:], chunk.values[half:]
        self._firsts[index] = keys[0]

    def __delitem__(self, key: K) -> None:
        """Remove the key.

        Raises:
            KeyError: the map does not have the key.
        """
        chunks = self._open()
        index = _chunk_of(self._firsts, key)
        keys: Any = chunks[index].keys if index >= 0 else ()
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            raise KeyError(key)
        chunk = self._own(index)
        del chunk.keys[place], chunk.values[place]
        self._size -= 1
        if not chunk.keys:
            self._remove(index)
            return
        self._firsts[index] = chunk.keys[0]
        self._join(index)

    def _open(self) -> list[Chunk[K, V]]:
        if self._chunks is None:
            self._chunks = list(self._base._chunks)
            self._firsts = list(self._base._firsts)
        return self._chunks

    def _own(self, index: int) -> Chunk[K, V]:
        """Return the chunk; copy it unless this editor has made it."""
        chunks = self._open()
        chunk = chunks[index]
        if chunk not in self._owned:
            chunk = chunks[index] = Chunk(chunk.keys.copy(), chunk.values.copy())
            self._owned.add(chunk)
        return chunk

    def _insert(self, index: int, keys: list[K], values: list[V]) -> None:
        chunk = Chunk(keys, values)
        self._owned.add(chunk)
        self._open().insert(index, chunk)
        self._firsts.insert(index, keys[0])

    def _remove(self, index: int) -> None:
        self._owned.discard(self._open().pop(index))
        del self._firsts[index]

    def _join(self, index: int) -> None:
        """Join a chunk that shrank with a neighbour, so that a map that shrinks has few chunks."""
        chunks = self._open()
        for left in (index, index - 1):
            if 0 <= left < len(chunks) - 1 and len(chunks[left].keys) + len(chunks[left + 1].keys) <= _JOIN_MAX:
                into, other = self._own(left), chunks[left + 1]
                into.keys.extend(other.keys)
                into.values.extend(other.values)
                self._remove(left + 1)
                return

    def finish(self) -> OrderedMap[K, V]:
        """Return the changed map, or the same object if nothing was changed. The editor is not usable afterwards."""
        if self._chunks is None:
            return self._base
        result: OrderedMap[K, V] = OrderedMap()
        result._chunks = tuple(self._chunks)
        result._firsts = tuple(self._firsts)
        result._size = self._size
        self._owned = set()
        return result


def _chunk_of(firsts: Any, key: Any) -> int:
    """Return the number of the last chunk whose first key is not above `key`; -1 if there is none."""
    return bisect_right(firsts, key) - 1


def _find(chunks: Any, firsts: Any, key: Any) -> tuple[Chunk[Any, Any], int] | None:
    """Return the chunk that has the key, and the place in the chunk; None if no chunk has it."""
    index = bisect_right(firsts, key) - 1
    if index < 0:
        return None
    chunk = chunks[index]
    keys = chunk.keys
    place = bisect_left(keys, key)
    return (chunk, place) if place < len(keys) and keys[place] == key else None
