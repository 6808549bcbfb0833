"""Work that is too slow for a turn: an fsync, writing a snapshot, loading one.

A job holds everything for its work: immutable values, and files that no other code touches meanwhile. So a job runs on any
thread. Its result comes back to the node as the event `JobDone`; a job never calls the node.
"""

from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.disk.files import Directory
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Replay
from metadata_log.store.segments import Extent, check
from snapshots.format import SnapshotMeta
from snapshots.reader import read_records, unreadable_is_damaged
from snapshots.store import SnapshotInfo, SnapshotStore


@dataclass(slots=True)
class FlushJob:
    """Makes durable everything that was appended before the ticket was drawn."""

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


@dataclass(slots=True)
class LoadSnapshotJob:
    """Reads the snapshot at `end` into an image.

    With `install`, the snapshot is a finished download, which the job makes durable first. With `mends`, the snapshot repairs a
    damaged log and need not be the leader's: the job refuses a snapshot whose chain is not `chain`, the log's chain at its end.
    """

    store: SnapshotStore
    end: OffsetAndEpoch
    install: bool
    mends: bool = False
    chain: bytes | None = None
    meta: SnapshotMeta | None = None
    image: MetadataImage | None = None

    def run(self) -> None:
        meta = self.store.complete_part(self.end, self.chain) if self.install else self.store.read_meta(self.end)
        provenance = Provenance(meta.end.offset, meta.end.epoch, meta.timestamp_ms)
        try:
            with unreadable_is_damaged():
                self.image = Replay().load_snapshot(read_records(self.store.directory, self.end), provenance)
        except LogFormatError:
            if self.install:
                # The file is whole, but its records do not fit an image. If it stayed, the next start would load it.
                self.store.drop([self.end])
            raise
        self.meta = meta


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
