"""Packs: one row has many records of one topic that a task has read, because a row for each record costs more than the fold.

    entity          offset   payload                        places
    ["topic","A"]       10   the bytes of three records     for each: size, offset, step, epoch and time of its batch

The records of a pack have the same principal and request. Example:
  1. a task reads ten changes of topic A, which brokers asked for: they are in one pack;
  2. the task reads the removal of A, which alice asked for: the pack of ten becomes a row, and a pack of alice begins;
  3. the task has read 4 MiB: each pack becomes a row, and the rows of A are in the order of the log.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Epoch, Offset, Uuid
from metadata_log.image.entity_key import topic_key
from snapshots.offline.rows import FROM_LOG, entity_text

PACKED_BYTES_MAX: Final = 4 << 20
"""About how many bytes of records and places a task collects before it gives them away as rows."""
_PLACE_NUMBERS: Final = 5
_PLACE_BYTES: Final = 8 * _PLACE_NUMBERS

By = tuple[str | None, str | None]
"""The principal and the id of the request that a batch belongs to."""


class EntityRow(NamedTuple):
    """One row of an entity: a record, or with `places` a pack of records."""

    entity: str
    generation: int
    offset: Offset
    step: Offset
    epoch: Epoch
    time_ms: int
    payload: bytes
    principal: str | None
    request_id: str | None
    places: bytes | None = None

    def records(self) -> Iterator["EntityRow"]:
        """Return the records of the row, each as a row of its own."""
        if self.places is None:
            return iter((self,))
        numbers = array("q", self.places)
        sizes, *places = (numbers[at::_PLACE_NUMBERS] for at in range(_PLACE_NUMBERS))
        same = (repeat(value) for value in (self.principal, self.request_id))
        return map(EntityRow, repeat(self.entity), repeat(self.generation), *places, _cut(self.payload, sizes), *same)


def _cut(payload: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    begin = 0
    for size in sizes:
        yield payload[begin : begin + size]
        begin += size


class _Pack(NamedTuple):
    by: By
    places: "array[int]"
    payload: bytearray


class TopicPacks:
    """The records of topics that a task has read and not given away."""

    def __init__(self) -> None:
        self._packs: dict[Uuid, _Pack] = {}
        self._rows: list[tuple[Any, ...]] = []
        """The packs that are closed, as rows."""
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the rows should be taken now."""
        return self._bytes >= PACKED_BYTES_MAX

    def add(self, topic_id: Uuid, offset: Offset, packed: bytes, batch: Batch, by: By) -> None:
        """Add a record of a batch."""
        pack = self._packs.get(topic_id)
        if pack is None or pack.by != by:
            if pack is not None:
                self._rows.append(_row(topic_id, pack))
            pack = self._packs[topic_id] = _Pack(by, array("q"), bytearray())
        pack.places.extend((len(packed), offset, batch.end_offset, batch.epoch, batch.last_timestamp_ms))
        pack.payload.extend(packed)
        self._bytes += len(packed) + _PLACE_BYTES

    def take(self) -> list[tuple[Any, ...]]:
        """Return everything as rows of the log."""
        rows = [*self._rows, *(_row(topic_id, pack) for topic_id, pack in self._packs.items())]
        self._packs.clear()
        self._rows.clear()
        self._bytes = 0
        return rows


def _row(topic_id: Uuid, pack: _Pack) -> tuple[Any, ...]:
    _, offset, step, epoch, time_ms = pack.places[:_PLACE_NUMBERS]
    place = (FROM_LOG, offset, step, epoch, time_ms, 0)
    return (entity_text(topic_key(topic_id)), *place, bytes(pack.payload), None, *pack.by, None, pack.places.tobytes())
