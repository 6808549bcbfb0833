"""Bugs of the log's files, of recovery and of snapshots."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import SnapshotFooter
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.store.log_notes import Flushed
from metadata_log.store.recovery import Recovery
from metadata_log.store.resume import DamagedPlace
from metadata_log.store.segment_file import Segment
from quorum.core import download, fetch_service
from quorum.core.protocol.disk_trust import DiskTrust
from quorum.core.protocol.divergence import UseSnapshot, Valid, Verdict, judge_fetch
from quorum.core.protocol.download import Download
from quorum.core.protocol.inputs import SnapshotInstalled, SnapshotInstallFailed
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Follower
from quorum.runtime.applier import Applier
from quorum.runtime.image.state_machine import Mark, StateMachine
from quorum.runtime.node import Node
from quorum.runtime.protocol.jobs import FlushJob, Job, LoadSnapshotJob
from snapshots import loader, reader, writer
from snapshots.format import SnapshotMeta
from snapshots.writer import SnapshotInfo, SnapshotWriter
from tests.sim.mutants.patching import Mutant, patched
from tests.sim.world.disk import MemoryDirectory

_finish, _finish_load = Node._finish, Applier.finish_load
_settle = Recovery.settle
_pass_mark = StateMachine._pass_mark
_image_writer = writer.image_writer


def _sync_nothing(self: FlushTicket) -> None:
    pass


def _cut_without_flush(self: Segment) -> None:
    self.file.truncate(self.end_position)
    self._allocated = self.end_position


def _believe_the_page_cache(self: Segment, offset: Offset) -> None:
    pass


def _flush_again(self: Node, job: Job, error: Exception | None) -> None:
    if isinstance(job, FlushJob) and error is not None:
        self._writer._flushing = False
        return
    _finish(self, job, error)


def _nothing_may_be_torn(self: Recovery, *, may_lose: Callable[[], bool]) -> Flushed | None:
    if self._damage is not None:
        raise self._where()
    return _settle(self, may_lose=may_lose)


class _NameNotFlushed(SnapshotWriter):
    def finish(self) -> SnapshotInfo:
        with patched(MemoryDirectory, "flush", lambda self: None):
            return super().finish()


def _write_without_directory_flush(
    directory: MemoryDirectory, meta: SnapshotMeta, image: MetadataImage
) -> SnapshotWriter:
    return _NameNotFlushed(directory, meta, image.canonical_pieces(), image.digest_bytes)


def _write_all_but_the_last(directory: MemoryDirectory, meta: SnapshotMeta, image: MetadataImage) -> SnapshotWriter:
    return SnapshotWriter(directory, meta, list(image.canonical_pieces())[:-1])


def _write_all_but_the_last_in_its_name(
    directory: MemoryDirectory, meta: SnapshotMeta, image: MetadataImage
) -> SnapshotWriter:
    return SnapshotWriter(directory, meta, list(image.canonical_pieces())[:-1], image.digest_bytes)


def _write_with_the_own_time(directory: MemoryDirectory, meta: SnapshotMeta, image: MetadataImage) -> SnapshotWriter:
    own = meta._replace(timestamp_ms=meta.timestamp_ms + directory.used_bytes % 1_000)  # no two disks are alike
    return _image_writer(directory, own, image)


def _check_nothing(footer: SnapshotFooter, count: int, digest: bytes, path: str, position: int) -> None:
    pass


@contextmanager
def _verify_no_digest() -> Iterator[None]:
    with patched(reader, "check_sums", _check_nothing), patched(loader, "check_sums", _check_nothing):
        yield


def _mark_what_is_proposed(self: StateMachine, end: OffsetAndEpoch, image: MetadataImage) -> Mark:
    mark = _pass_mark(self, end, image)
    return mark._replace(image=self.proposed) if self._proposing else mark


def _late_load_wins(
    self: Applier, job: LoadSnapshotJob, error: Exception | None, now_ms: int
) -> SnapshotInstalled | SnapshotInstallFailed | None:
    if not job.install:
        self._load = job
    return _finish_load(self, job, error, now_ms)


def _offer_snapshot_to_whoever_lags(
    shape: LogShape, *, fetch_offset: Offset, last_fetched_epoch: Epoch, chain: bytes, chain_at_offset: bytes | None
) -> Verdict:
    verdict = judge_fetch(
        shape,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        chain=chain,
        chain_at_offset=chain_at_offset,
    )
    lags = isinstance(verdict, Valid) and fetch_offset < shape.end
    return UseSnapshot(shape.snapshot) if lags and shape.snapshot else verdict


def _install_what_is_offered(state: QuorumState, role: Follower, snapshot: OffsetAndEpoch) -> None:
    state.update_role(replace(role, download=Download(snapshot)))


@contextmanager
def _install_the_past() -> Iterator[None]:
    with (
        patched(fetch_service, "judge_fetch", _offer_snapshot_to_whoever_lags),
        patched(download, "begin", _install_what_is_offered),
    ):
        yield


def _nothing_behind(self: Recovery, damage: DamagedPlace) -> None:
    return None


def _always(self: DiskTrust) -> bool:
    return True


def _lost_nothing(self: DiskTrust) -> bool:
    return self.lost is None


def _bounded_by_the_note(self: DiskTrust, leader_end: Offset) -> DiskTrust:
    return self if self.lost is None else self._replace(lost=self.lost._replace(is_bounded=True))


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
        "after a failed fsync and a restart, the content of the page cache is taken for the content of the disk",
        lambda: patched(Segment, "write_again", _believe_the_page_cache),
    ),
    "failed-fsync-tried-again": Mutant(
        "a node whose fsync has failed lives on, and flushes again",
        lambda: patched(Node, "_finish", _flush_again),
    ),
    "torn-tail-called-damage": Mutant(
        "the rest of an unfinished write after a power cut is taken for damage",
        lambda: patched(Recovery, "settle", _nothing_may_be_torn),
    ),
    "snapshot-name-not-flushed": Mutant(
        "a snapshot counts, and the log before it goes, before its name is durable",
        lambda: patched(writer, "image_writer", _write_without_directory_flush),
    ),
    "snapshot-of-what-is-proposed": Mutant(
        "a snapshot holds what was decided after its end",
        lambda: patched(StateMachine, "_pass_mark", _mark_what_is_proposed),
    ),
    "snapshot-without-its-last-record": Mutant(
        "a snapshot is whole in itself, and lacks a record",
        lambda: patched(writer, "image_writer", _write_all_but_the_last),
    ),
    "snapshot-not-of-its-digest": Mutant(
        "a snapshot lacks a record, and bears the digest of the image that has it",
        lambda: patched(writer, "image_writer", _write_all_but_the_last_in_its_name),
    ),
    "snapshot-digest-not-verified": Mutant(
        "a snapshot whose CRCs and chain are right is believed, whatever its digest says",
        _verify_no_digest,
    ),
    "snapshot-of-its-writers-time": Mutant(
        "each node's snapshot bears that node's own time",
        lambda: patched(writer, "image_writer", _write_with_the_own_time),
    ),
    "old-snapshot-installed": Mutant(
        "every follower that lags is sent to the snapshot, and installs it although it knows more",
        _install_the_past,
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
        lambda: patched(DiskTrust, "may_campaign", property(_lost_nothing)),
    ),
    "lost-tail-votes": Mutant(
        "a node that has lost the end of its log votes as if it had it",
        lambda: patched(DiskTrust, "may_vote", property(_always)),
    ),
    "lost-tail-acknowledged": Mutant(
        "a node that has lost the end of its log fetches under its own name, and is counted",
        lambda: patched(DiskTrust, "may_acknowledge", property(_always)),
    ),
    "old-note-believed": Mutant(
        "a node that has lost the end of its log takes an old note for all that it had, whatever its leader says",
        lambda: patched(DiskTrust, "bounded_by", _bounded_by_the_note),
    ),
}
