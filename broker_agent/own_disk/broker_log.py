"""A broker's log: on its disk, and while the disk is full its end in memory.

A broker's copy of the metadata promises nothing, so a full disk must not keep the broker from the news. The log takes new batches
into memory when the disk has no room, and writes them when there is room again. Position, chain and voter set are those of the
whole log. Example:

    1. The disk of broker 101 is full at offset 500. The batch [500, 502) has no room. It stays in memory, and the broker
       applies it, fetches from 502, and serves on.
    2. The process is killed. The next process reads the log up to 500 and fetches [500, 502) again: nothing was promised.
    3. If room is made instead, the log writes [500, 502) within a second, and goes on as before.

The memory is bounded. If more than TAIL_BYTES_MAX wait, the oldest are dropped, and the log on disk cannot be continued. As soon
as there is room, the log begins anew at its end: the next process finds no snapshot below this end, and fetches everything,
unless a mark has brought a snapshot before.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from metadata_log.disk.failures import is_full
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.records import KRaftVersion, Voters
from metadata_log.store.log import Log

TAIL_BYTES_MAX: Final = 64 << 20
"""Maximum size of the batches that wait in memory for room on the disk."""


class BrokerLog:
    """One log. One thread owns it."""

    def __init__(self, disk: Log, tail_bytes_max: int = TAIL_BYTES_MAX) -> None:
        self.disk = disk
        """The part on disk. Append through this object only."""
        self.why_full = ""
        """The disk's error while the log has an end in memory; empty without one."""
        self._tail: deque[Batch] = deque()
        self._tail_bytes = 0
        self._tail_bytes_max = tail_bytes_max
        self._is_cut = False
        """True if the oldest batches in memory were dropped."""
        self._last: Batch | None = None
        """The last batch in memory."""
        self._controls: list[tuple[Offset, KRaftVersion | Voters]] = []
        """The records about voters in memory."""
        self._gone: list[tuple[Offset, KRaftVersion | Voters]] = []
        """The records about voters below the place where the log has begun anew."""

    @property
    def end(self) -> Offset:
        return self.disk.shape.end if self._last is None else self._last.end_offset

    @property
    def waiting(self) -> tuple[Batch, ...]:
        """The batches that wait in memory for room on the disk; nearly always none."""
        return tuple(self._tail)

    @property
    def last_epoch(self) -> Epoch:
        return self.disk.shape.last_epoch if self._last is None else self._last.epoch

    @property
    def chain(self) -> bytes:
        return self.disk.shape.chain if self._last is None else self._last.chain

    def control_records(self) -> Iterator[tuple[Offset, KRaftVersion | Voters]]:
        """Returns the records about voters, each with its offset, in order."""
        return chain(self._gone, self.disk.control_records(), self._controls)

    def append(self, batches: Sequence[Batch]) -> None:
        """Appends batches, on disk or in memory.

        Raises:
            LogFormatError: the batches do not continue this log; nothing was appended.
            OSError: the disk is broken.
        """
        if self._last is None:
            try:
                self.disk.append_batches(batches)
            except OSError as e:
                if not is_full(e):
                    raise
                self.why_full = str(e)
            else:
                return
        self._keep([batch for batch in batches if batch.base_offset >= self.end])

    def _keep(self, batches: Sequence[Batch]) -> None:
        end, previous = self.end, self.chain
        for batch in batches:
            if batch.base_offset != end or not verify_chain(batch, previous):
                raise LogFormatError(f"a batch at {batch.base_offset} does not continue the log, which ends at {end}")
            end, previous = batch.end_offset, batch.chain
        for batch in batches:
            self._tail.append(batch)
            self._tail_bytes += len(batch.data)
            self._last = batch
            if batch.is_control:
                records = enumerate(decode_batch(batch), batch.base_offset)
                self._controls += [(at, each) for at, each in records if isinstance(each, KRaftVersion | Voters)]
        while self._tail_bytes > self._tail_bytes_max:
            self._tail_bytes -= len(self._tail.popleft().data)
            self._is_cut = True

    def write_tail(self) -> bool:
        """Writes the end that is in memory. Returns True if the disk has everything now.

        Raises:
            OSError: the disk is broken.
        """
        last = self._last
        try:
            if last is not None and self._is_cut:
                known = [*self.control_records()]
                self.disk.reset_to(OffsetAndEpoch(last.end_offset, last.epoch), last.chain, last.last_timestamp_ms)
                self._gone = known
                self._tail.clear()
            while self._tail:
                self.disk.append_batches((self._tail[0],))
                self._tail_bytes -= len(self._tail.popleft().data)
        except OSError as e:
            if not is_full(e):
                raise
            self.why_full = str(e)
            return False
        self._forget_tail()
        return True

    def reset_to(self, start: OffsetAndEpoch, chain: bytes, timestamp_ms: int = 0) -> None:
        """Deletes everything, and begins the log at `start`, as `Log.reset_to`."""
        self._forget_tail()
        self._gone.clear()
        self.disk.reset_to(start, chain, timestamp_ms)

    def _forget_tail(self) -> None:
        self._tail.clear()
        self._controls.clear()
        self._tail_bytes, self._is_cut, self._last, self.why_full = 0, False, None, ""
