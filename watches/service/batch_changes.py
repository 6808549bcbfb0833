"""The changes of a batch, decoded once and encoded once, whatever the number of watches.

The newest batches are kept, because watches that come behind each other read the same ones. Example with 1,000 watches of the
kind `lock`, whose node dies:
    1. all of them go on at node 2, from positions that differ by a few batches;
    2. the first decodes the batches [40, 60), and encodes the events of the kind `lock`;
    3. the other 999 find decoded batches and encoded events. Nobody has encoded the events about topics.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import Record
from service_kit.process.tallies import Counter
from watches.core.changes import Change, TopicName, changes_of
from watches.core.filters import Filter
from watches.core.log_plan import LogPlan
from watches.service.messages import event_part

KEPT_BYTES: Final = 2 << 20
"""Maximum size of the batches whose changes are kept. Decoded and encoded, they take some ten times as much."""

STATES_MAX: Final = 8
"""Maximum number of states that are kept, each of 1 MiB at most."""


class BatchChanges:
    """The changes of one batch, with their encoded events."""

    __slots__ = ("_parts", "changes")

    def __init__(self, changes: tuple[Change, ...]) -> None:
        self.changes = changes
        self._parts: list[bytes | None] = [None] * len(changes)

    def part(self, index: int) -> bytes:
        """Return the encoded event of the change with this index. Two threads may encode the same event, to the same bytes."""
        part = self._parts[index]
        if part is None:
            part = self._parts[index] = event_part(self.changes[index])
        return part


class ChangesKept:
    """The changes of the newest batches that a node's watches have used. Any thread may ask."""

    def __init__(self, decoded: Counter, kept_bytes: int = KEPT_BYTES) -> None:
        """`decoded` counts the batches that were decoded."""
        self._decoded = decoded
        self._bytes_left = kept_bytes
        self._kept: OrderedDict[bytes, tuple[int, BatchChanges]] = OrderedDict()
        """Size and changes of each batch, by its chain, which names the batch and all history before it."""
        self._lock = threading.Lock()

    def of(self, batch: Batch, plan: LogPlan, name_of: TopicName) -> BatchChanges:
        """Return the changes of a data batch of the log; `plan` is that of the batches around it.

        Raises:
            LogFormatError: the batch cannot be decoded.
        """
        with self._lock:
            found = self._kept.get(batch.chain)
            if found is not None:
                self._kept.move_to_end(batch.chain)
                return found[1]
        return self.made_of(batch, decode_batch(batch), plan, name_of)

    def made_of(
        self, batch: Batch, records: Sequence[Record | UnknownRecord], plan: LogPlan, name_of: TopicName
    ) -> BatchChanges:
        """Return the changes of a batch that was just decoded, and keep them."""
        made = BatchChanges(tuple(changes_of(records, batch.base_offset, name_of, plan.hides)))
        with self._lock:
            self._decoded.add()
            before = self._kept.pop(batch.chain, None)
            self._bytes_left += before[0] if before is not None else 0
            self._kept[batch.chain] = len(batch.data), made
            self._bytes_left -= len(batch.data)
            while self._bytes_left < 0 and len(self._kept) > 1:
                _, (size, _) = self._kept.popitem(last=False)
                self._bytes_left += size
        return made


StateKey: TypeAlias = tuple[Filter, Offset, bytes]
"""A filter, and the offset and chain of an image."""


class StatesKept:
    """Small states that were encoded for watches, the newest few."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while a state is encoded to be kept."""
        self._kept: OrderedDict[StateKey, list[bytes] | None] = OrderedDict()

    def __contains__(self, key: StateKey) -> bool:
        return key in self._kept

    def __getitem__(self, key: StateKey) -> list[bytes] | None:
        """The encoded events of a state; None if it is too large to be kept."""
        return self._kept[key]

    def keep(self, key: StateKey, parts: list[bytes] | None) -> None:
        """Keep the events of a state. The caller has bounded their size."""
        self._kept[key] = parts
        while len(self._kept) > STATES_MAX:
            self._kept.popitem(last=False)
