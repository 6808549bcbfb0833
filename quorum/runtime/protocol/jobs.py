"""Jobs: work that is too slow for a turn, such as an fsync, or writing or loading a snapshot.

A job holds immutable values, and files without another user meanwhile, so a job may run on any thread. A job never calls the
node; its result comes back as the event `JobDone`. Example: the flush of a leader.
    1. a turn appends a batch and gives a `FlushJob` to the world;
    2. a thread runs the job; further turns append further batches meanwhile;
    3. the job ends, and the next turn takes `JobDone(job)` and tells the core `Flushed`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from metadata_log.disk.files import Directory
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Loading
from metadata_log.store.segments import Extent, check
from snapshots.format import SnapshotCorrupt, SnapshotMeta
from snapshots.reader import read_runs, unreadable_is_damaged
from snapshots.store import SnapshotInfo, SnapshotStore
from snapshots.writer import SnapshotWriter, image_writer


@dataclass(slots=True)
class FlushJob:
    """Makes every record durable that was appended before the ticket was drawn."""

    ticket: FlushTicket

    def run(self) -> None:
        self.ticket.sync()


@dataclass(slots=True)
class WriteSnapshotJob:
    """Writes `image` as the snapshot at `meta.end`."""

    store: SnapshotStore
    meta: SnapshotMeta
    image: MetadataImage
    written: SnapshotInfo | None = None

    def run(self) -> None:
        self.written = self.store.write(self.meta, self.image)

    def writer(self) -> SnapshotWriter:
        """Returns the steps of `run`, for an event loop."""
        return image_writer(self.store.directory, self.meta, self.image)


@dataclass(slots=True)
class LoadSnapshotJob:
    """Reads the snapshot at `end` into an image, in three steps, so that the second can be done in slices between turns.

    begin     verifies the file if it is a download, and opens it
    slices    reads records, some at a time; each slice takes a few milliseconds at most
    finish    makes the image

    install   the snapshot is a finished download, and the job makes the file durable first
    repairs   the snapshot repairs a damaged log; it is the node's own, or a download from any voter
    chain     the log's chain at `end`, if known; the job refuses a snapshot with another chain
    """

    store: SnapshotStore
    end: OffsetAndEpoch
    install: bool
    repairs: bool = False
    chain: bytes | None = None
    meta: SnapshotMeta | None = None
    image: MetadataImage | None = None
    _verified: SnapshotMeta | None = None
    _loading: Loading = field(default_factory=Loading)

    def run(self) -> None:
        self.begin()
        for _ in self.slices():
            pass
        self.finish()

    def begin(self) -> None:
        self._verified = self.store.complete_part(self.end, self.chain) if self.install else self._own_meta()

    def slices(self) -> Iterator[None]:
        try:
            with unreadable_is_damaged():
                for record in read_runs(self.store.directory, self.end):
                    self._loading.take(record)
                    yield
        except LogFormatError:
            if self.install:
                # The file is whole, but its records do not fit an image. If it stayed, the next start would load it.
                self.store.drop([self.end])
            raise

    def finish(self) -> None:
        meta = self._verified
        assert meta is not None, "finish comes after begin"
        self.image = self._loading.finish(Provenance(meta.end.offset, meta.end.epoch, meta.timestamp_ms))
        self.meta = meta

    def _own_meta(self) -> SnapshotMeta:
        if not self.repairs:
            return self.store.read_meta(self.end)
        with unreadable_is_damaged():
            meta = self.store.read_meta(self.end)
        if self.chain not in (None, meta.chain):
            raise SnapshotCorrupt(f"snapshot {self.end} has another chain than this log at its end; it is not used")
        return meta


@dataclass(slots=True)
class ScrubJob:
    """Reads the first `max_bytes` of `extent` again, and checks them."""

    directory: Directory
    extent: Extent
    max_bytes: int
    rest: Extent | None = None
    scrubbed_bytes: int = 0

    def run(self) -> None:
        self.rest = check(self.directory, self.extent, self.max_bytes)
        self.scrubbed_bytes = (self.rest.position if self.rest else self.extent.end_position) - self.extent.position


Job: TypeAlias = FlushJob | WriteSnapshotJob | LoadSnapshotJob | ScrubJob
