"""Chunks of a topic whose states are still packed, as a snapshot had them.

    PackedChunk    some following states of one packed run, and the states that have changed since
    ChunkEdit      the changes of one commit to such a chunk

Example: a broker loads a snapshot, and then broker 7 dies, which is in three partitions of each chunk. Each chunk keeps its
packed states, and gets a dictionary with three new states. To unpack all 64 states of each chunk would take twenty times as long.
A chunk with more than CHANGED_MAX changes becomes a plain tuple of states.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, overload

from metadata_log.format.ids import NodeId
from metadata_log.format.packed_states import PackedStates
from metadata_log.format.partition_state import REPLICAS, PartitionState

CHANGED_MAX: Final = 16
"""Maximum number of changed states beside the packed states."""
_UNCHANGED: Final[Mapping[int, PartitionState]] = MappingProxyType({})


class PackedChunk(Sequence[PartitionState]):
    """The states `start` to `stop` (exclusive) of a packed run, with changes. Immutable."""

    __slots__ = ("changed", "packed", "start", "stop")

    def __init__(
        self, packed: PackedStates, start: int, stop: int, changed: Mapping[int, PartitionState] = _UNCHANGED
    ) -> None:
        self.packed = packed
        self.start = start
        self.stop = stop
        self.changed = changed
        """Place in this chunk -> state."""

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, place: int) -> PartitionState: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[PartitionState]: ...

    def __getitem__(self, place: int | slice) -> PartitionState | Sequence[PartitionState]:
        if isinstance(place, slice):
            return [*self][place]
        state = self.changed.get(place)
        if state is not None:
            return state
        if not 0 <= place < self.stop - self.start:
            raise IndexError(place)
        return self.packed.state(self.start + place)

    def __iter__(self) -> Iterator[PartitionState]:
        states = self.packed.between(self.start, self.stop)
        for place, state in self.changed.items():
            states[place] = state
        return iter(states)

    def places_on(self, broker_id: NodeId) -> Iterator[int]:
        """Return the places of the states with a replica on the broker, ascending."""
        places = {*self.packed.places_on(broker_id, self.start, self.stop)}
        for place, state in self.changed.items():
            places.discard(place)
            if broker_id in state[REPLICAS]:
                places.add(place)
        return iter(sorted(places))


class ChunkEdit:
    """Changes to one packed chunk, collected until `finish`. Reads see the changes."""

    __slots__ = ("_base", "_changed")

    def __init__(self, base: PackedChunk) -> None:
        self._base = base
        self._changed = dict(base.changed)

    def __len__(self) -> int:
        return len(self._base)

    def __getitem__(self, place: int) -> PartitionState:
        state = self._changed.get(place)
        return self._base[place] if state is None else state

    def __setitem__(self, place: int, state: PartitionState) -> None:
        self._changed[place] = state

    def finish(self) -> PackedChunk | tuple[PartitionState, ...]:
        """Return the changed chunk."""
        base = self._base
        chunk = PackedChunk(base.packed, base.start, base.stop, self._changed)
        return chunk if len(self._changed) <= CHANGED_MAX else tuple(chunk)
