"""Bugs of the log's files, of recovery and of snapshots."""

from collections.abc import Iterable

from metadata_log.ids import Offset, OffsetAndEpoch
from metadata_log.image import MetadataImage
from metadata_log.log import FlushTicket
from metadata_log.records import MetadataRecord
from metadata_log.recovery import Damage, Recovery
from metadata_log.segment import Segment
from quorum.core.standing import Standing
from quorum.runtime.applier import Applier
from quorum.runtime.jobs import LoadSnapshotJob
from quorum.runtime.state_machine import Mark, StateMachine
from snapshots import writer
from snapshots.format import SnapshotMeta
from snapshots.writer import SnapshotInfo
from tests.sim.disk import MemoryDirectory
from tests.sim.mutants.patching import Mutant, patched

_finish_load = Applier.finish_load
_pass_mark = StateMachine._pass_mark
_write_records = writer.write_records


def _sync_nothing(self: FlushTicket) -> None:
    pass


def _cut_without_flush(self: Segment) -> None:
    self.file.truncate(self.end_position)
    self._allocated = self.end_position


def _believe_the_page_cache(self: Segment, offset: Offset) -> None:
    pass


def _write_without_directory_flush(
    directory: MemoryDirectory, meta: SnapshotMeta, records: Iterable[MetadataRecord], digest: bytes | None = None
) -> SnapshotInfo:
    with patched(MemoryDirectory, "flush", lambda self: None):
        return _write_records(directory, meta, records, digest)


def _mark_what_is_proposed(self: StateMachine, end: OffsetAndEpoch, image: MetadataImage) -> Mark:
    mark = _pass_mark(self, end, image)
    return mark._replace(image=self.proposed) if self._proposing else mark


def _late_load_wins(self: Applier, job: LoadSnapshotJob, error: Exception | None, now_ms: int) -> None:
    if not job.install:
        self._load = job
    _finish_load(self, job, error, now_ms)


def _nothing_behind(self: Recovery, damage: Damage) -> None:
    return None


def _always(self: Standing) -> bool:
    return True


def _lost_nothing(self: Standing) -> bool:
    return self.lost is None


DISKS: dict[str, Mutant] = {
    "flush-skipped": Mutant(
        "an fsync that does nothing",
        lambda: patched(FlushTicket, "sync", _sync_nothing),
    ),
    "truncation-not-flushed": Mutant(
        "a log goes on behind a truncation that is not on the disk",
        lambda: patched(Segment, "cut_tail", _cut_without_flush),
    ),
    "failed-fsync-believed": Mutant(
        "after a failed fsync and a restart, what the page cache holds is taken for what the disk holds",
        lambda: patched(Segment, "write_again", _believe_the_page_cache),
    ),
    "snapshot-name-not-flushed": Mutant(
        "a snapshot counts, and the log before it goes, before its name is durable",
        lambda: patched(writer, "write_records", _write_without_directory_flush),
    ),
    "snapshot-of-what-is-proposed": Mutant(
        "a snapshot holds what was decided after its end",
        lambda: patched(StateMachine, "_pass_mark", _mark_what_is_proposed),
    ),
    "late-load-wins": Mutant(
        "the snapshot that a node began to load at its start replaces the newer one that it has installed meanwhile",
        lambda: patched(Applier, "finish_load", _late_load_wins),
    ),
    "damage-cut-instead-of-mended": Mutant(
        "a log with damage inside is cut there, as if nothing stood behind",
        lambda: patched(Recovery, "_resume_behind", _nothing_behind),
    ),
    "damaged-node-campaigns": Mutant(
        "a node with damage inside its log runs for leader",
        lambda: patched(Standing, "may_campaign", property(_lost_nothing)),
    ),
    "lost-tail-votes": Mutant(
        "a node that has lost the end of its log votes as if it had it",
        lambda: patched(Standing, "may_vote", property(_always)),
    ),
    "lost-tail-acknowledged": Mutant(
        "a node that has lost the end of its log fetches under its own name, and is counted",
        lambda: patched(Standing, "may_acknowledge", property(_always)),
    ),
}
