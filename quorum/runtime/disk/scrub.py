"""Reads the sealed files of the disk again, slice by slice, to find damage while the other controllers still have the data.

Sealed segments are checked by CRC and chain, snapshots by CRC. A slice is a job of about a millisecond. The slices are spread so
that one pass over all files takes about `scrub_interval_ms`. Example with an interval of 24 hours:
    1. a pass begins with three segments and a snapshot, together 288 slices: a slice is read every 5 minutes;
    2. a slice of the second segment has a wrong CRC: the node notes the damage, and its repair begins;
    3. the pass ends; the next pass includes all files written meanwhile.
"""

from metadata_log.store.log_view import LogView
from metadata_log.store.segments import Extent
from quorum.runtime.protocol.jobs import ScrubJob
from snapshots.store import SnapshotStore

SLICE_BYTES = 256 << 10
"""How many bytes one job reads."""
EMPTY_PASS_MS = 60_000
"""How long the scrub waits while no file is sealed."""


class Scrub:
    """Chooses the next slice and its time."""

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
        """How many bytes were found intact since the process started."""

    def next_deadline_ms(self) -> int | None:
        return None if self._running or self._interval_ms == 0 else self._due_ms

    def next_job(self, now_ms: int) -> ScrubJob | None:
        """The job of the next slice, if due."""
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
        """Takes all files of this moment. Files written later belong to the next pass."""
        self._generation = self._log.generation
        snapshots = [Extent(name, 0, size, None) for name, size in self._store.files()]
        self._extents = [*self._log.extents(), *snapshots]
        slices = sum(1 + (each.end_position - each.position) // SLICE_BYTES for each in self._extents)
        self._pause_ms = self._interval_ms // slices if slices else min(EMPTY_PASS_MS, self._interval_ms)

    def finished(self, job: ScrubJob) -> bool:
        """Takes a finished slice. A slice without a rest was the last slice of its file, or has failed.

        False if the log was cut, replaced or repaired since the pass began: the slice was compared with an old state of the log,
        so a difference proves no damage. Then a new pass begins.
        """
        self._running = False
        if self._log.generation != self._generation:
            self._extents = []
            return False
        if job.rest is not None:
            self._extents.insert(0, job.rest)
        self.scrubbed_bytes += job.scrubbed_bytes
        return True
