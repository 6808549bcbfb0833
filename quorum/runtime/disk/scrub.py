"""The slow second look: what lies on the disk is read again, so that rot is found while the other controllers still have it.

Sealed segments by CRC and chain, snapshots by CRC. One slice at a time, as a job, so many that one pass over everything takes
about the configured time: a slice costs a millisecond, and an idle node makes one every few minutes.
"""

from metadata_log.store.log_view import LogView
from metadata_log.store.segments import Extent
from quorum.runtime.protocol.jobs import ScrubJob
from snapshots.store import SnapshotStore

SLICE_BYTES = 256 << 10
EMPTY_PASS_MS = 60_000
"""A log that has nothing sealed yet is looked at again after this."""


class Scrub:
    """Which slice is next, and when."""

    def __init__(self, log: LogView, store: SnapshotStore, interval_ms: int, now_ms: int) -> None:
        self._log = log
        self._store = store
        self._interval_ms = interval_ms
        self._extents: list[Extent] = []
        self._pause_ms = min(EMPTY_PASS_MS, interval_ms)
        self._due_ms = now_ms + self._pause_ms
        self._running = False
        self._generation = log.generation
        self.scrubbed_bytes = 0
        """Since this process started; what was intact."""

    def next_deadline_ms(self) -> int | None:
        return None if self._running or self._interval_ms == 0 else self._due_ms

    def next_job(self, now_ms: int) -> ScrubJob | None:
        """The next slice, if it is due."""
        due_ms = self.next_deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return None
        if not self._extents:
            self._begin_pass()
        self._due_ms = now_ms + self._pause_ms
        if not self._extents:
            return None
        self._running = True
        return ScrubJob(self._store.directory, self._extents.pop(0), SLICE_BYTES)

    def _begin_pass(self) -> None:
        """Everything that is there now. What is written later has the next pass."""
        self._generation = self._log.generation
        snapshots = [Extent(name, 0, size, None) for name, size in self._store.files()]
        self._extents = [*self._log.extents(), *snapshots]
        slices = sum(1 + (each.end_position - each.position) // SLICE_BYTES for each in self._extents)
        self._pause_ms = self._interval_ms // slices if slices else min(EMPTY_PASS_MS, self._interval_ms)

    def finished(self, job: ScrubJob) -> bool:
        """A slice is done. Without a rest, its file is, too: it was read to its end, or failed.

        False if the log was cut, replaced or mended since the pass began: what was read may have been right, and was
        compared with what stands there no more. Then the pass begins anew.
        """
        self._running = False
        if self._log.generation != self._generation:
            self._extents = []
            return False
        if job.rest is not None:
            self._extents.insert(0, job.rest)
        self.scrubbed_bytes += job.scrubbed_bytes
        return True
