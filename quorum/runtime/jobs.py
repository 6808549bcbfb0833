"""Work that is too slow for a turn: an fsync, writing a snapshot, loading one.

A job holds what it needs (immutable values and files that nobody else touches meanwhile), runs anywhere, and brings its
result back as the event `JobDone`. It never touches the node.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from metadata_log.ids import OffsetAndEpoch
from metadata_log.image import MetadataImage, Provenance
from metadata_log.log import FlushTicket
from metadata_log.replay import Replay
from snapshots.format import SnapshotMeta
from snapshots.reader import read_snapshot
from snapshots.store import SnapshotInfo, SnapshotStore


@dataclass(slots=True)
class FlushJob:
    """Make everything durable that was appended before the ticket was drawn."""

    ticket: FlushTicket

    def run(self) -> None:
        self.ticket.sync()


@dataclass(slots=True)
class WriteSnapshotJob:
    """Write `image` as the snapshot at `meta.end`."""

    store: SnapshotStore
    meta: SnapshotMeta
    image: MetadataImage
    written: SnapshotInfo | None = None

    def run(self) -> None:
        self.written = self.store.write(self.meta, self.image)


@dataclass(slots=True)
class LoadSnapshotJob:
    """Read the snapshot at `end` into an image. With `install`, it is a finished download that becomes durable first."""

    store: SnapshotStore
    end: OffsetAndEpoch
    install: bool
    meta: SnapshotMeta | None = None
    image: MetadataImage | None = None
    progress: Callable[[int], None] | None = field(default=None, repr=False)

    def run(self) -> None:
        if self.install:
            self.store.complete_part(self.end)
        contents = read_snapshot(self.store.directory, self.end)
        meta = contents.meta
        provenance = Provenance(meta.end.offset, meta.end.epoch, meta.timestamp_ms)
        self.image = Replay().load_snapshot(contents.records, provenance)
        self.meta = meta


Job: TypeAlias = FlushJob | WriteSnapshotJob | LoadSnapshotJob
