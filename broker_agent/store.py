"""The broker's own copy of the metadata: a log and snapshots in the controllers' formats, and the image made from them.

With this copy a restart begins from disk, even with a million partitions, and the broker fetches only new records. The store is a
copy, and three rules follow:

*Applied before durable.* A controller must not apply a record that its disk could still lose; a broker may. After a power cut the
broker fetches the lost tail again. The tail was committed, so the controllers deliver the same batches, and the chain of hashes
proves it. So the store fsyncs in groups, apart from applying.

*A full disk stops nothing.* New batches wait in memory for room (`own_disk.broker_log`), and so do the notes about this process.

*Broken means dropped.* The store repairs nothing: not damage on disk, nor a log that does not reach its snapshot, nor a history
that differs from the controllers'. The store is emptied, the log has one line with the reason, and everything is fetched anew.

*Snapshots at marks*, like the controllers': at a committed `SnapshotMark`, from the immutable image, with the log's chain and
time at the mark. So the file equals the controllers' file of the same name byte for byte. The log before a durable snapshot is
deleted.

    1. Broker 101 has applied everything below offset 120, and its disk has fsynced everything below 110. The power fails.
    2. At the next start the store reads the log up to 110, and the broker fetches from 110.
    3. The controllers deliver 110 to 120 again. The first batch continues the chain at 110, so the history is the same.

One thread owns a store. `SnapshotJob.run` is the exception: any thread may run it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_agent.own_disk.broker_log import BrokerLog
from broker_agent.own_disk.process_notes import ProcessNotes, read_incarnations
from broker_agent.session.lifecycle import EMPTY_POSITION, Position
from metadata_log.disk.failures import is_unreadable
from metadata_log.disk.files import Directory
from metadata_log.disk.identity import read_identity, write_identity
from metadata_log.format.batch import Batch, decode_all
from metadata_log.format.codec import decode_record
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch, Uuid
from metadata_log.format.records import KRaftVersion, SkippedBatch, Voters
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import Replay, ReplayResult
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from snapshots.format import SnapshotMeta
from snapshots.loader import load_packed
from snapshots.reader import unreadable_is_damaged
from snapshots.store import SnapshotStore

METADATA_DIRECTORY: Final = "@metadata"
ROOM_BYTES: Final = 4 << 20
"""How many bytes must be free before a disk that was full has room again."""
_REPLAY_BYTES: Final = 8 << 20
_LOG_CONFIG: Final = LogConfig(archive=False)
"""A broker keeps no archive: the controllers do."""


class WrongHistory(Exception):
    """The batches do not continue this store's log: the histories differ."""


@dataclass(slots=True)
class SnapshotJob:
    """Writes one snapshot. `run` touches nothing that the store's thread uses."""

    store: SnapshotStore
    meta: SnapshotMeta
    image: MetadataImage

    def run(self) -> None:
        """Writes the snapshot. Raises OSError or FlushFailed: the disk has failed."""
        self.store.write(self.meta, self.image)


class Recovered(NamedTuple):
    """The store after its start; `dropped` is the reason if the store had to begin empty."""

    position: Position
    image: MetadataImage
    previous_incarnations: tuple[Uuid, ...]
    voters: Voters | None
    dropped: str | None
    clean_broker_epoch: int | None = None
    """The epoch of the last process, if that process ended with a controlled shutdown."""


class BrokerStore:
    """One broker's log, snapshots and image. Call `recover` first."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._metadata = directory.subdirectory(METADATA_DIRECTORY)
        self._snapshots = SnapshotStore(self._metadata)
        self._log: BrokerLog | None = None
        self._replay = Replay()
        self._base_voters: Voters | None = None
        """The voter set at the log's start, from the snapshot there; None without a snapshot."""
        self._due: SnapshotJob | None = None
        self._notes = ProcessNotes(directory)
        self._why_no_snapshot = ""
        """The disk's error at the last download, until there is room."""
        self._room_bytes = ROOM_BYTES
        """How many bytes must be free now. A download needs more than those which it has had."""

    # --- contents ----------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._replay.image

    @property
    def position(self) -> Position:
        """The position to fetch from. It has the image's digest if the image is at this position."""
        log = self._open_log
        if log.end == 0:
            return EMPTY_POSITION
        image = self._replay.image
        digest = image.digest_bytes if image.offset == log.end else b""
        return Position(log.end, log.last_epoch, log.chain, digest)

    @property
    def log(self) -> BrokerLog | None:
        """The log, to be read; None before `recover` and after `close`."""
        return self._log

    @property
    def voters(self) -> Voters | None:
        """The newest voter set in the log; None if the log has none yet."""
        return self._quorum_at(self._open_log.end)[0]

    @property
    def _open_log(self) -> BrokerLog:
        assert self._log is not None, "recover comes first"
        return self._log

    # --- at start ----------------------------------------------------------------------------------------------------

    def recover(self) -> Recovered:
        """Reads the disk into an image. A store is dropped if its parts contradict each other, or if the disk cannot read a part:
        the controllers have all of it.

        Raises:
            OSError, FlushFailed: the disk has failed.
        """
        dropped = None
        try:
            self._recover()
        except (LogFormatError, OSError) as e:
            if isinstance(e, OSError) and not is_unreadable(e):
                raise
            dropped = str(e)
            self.reset()
        clean_broker_epoch = self._notes.take_clean_shutdown()
        return Recovered(
            self.position, self.image, read_incarnations(self._directory), self.voters, dropped, clean_broker_epoch
        )

    def _recover(self) -> None:
        self._snapshots.discard_parts()
        meta = self._load_newest()
        log = Log.open(self._metadata, config=_LOG_CONFIG)
        self._log = BrokerLog(log)
        if meta is not None and meta.end.offset > log.shape.end:
            # The process was killed after the download's last rename and before the log's reset.
            log.reset_to(meta.end, meta.chain, meta.timestamp_ms)
        loaded = self._replay.offset
        if log.shape.start.offset > loaded:
            raise CorruptLog(f"the log starts at {log.shape.start.offset}, and no whole snapshot reaches that far")
        if meta is not None:
            if log.chain_at(loaded) != meta.chain:
                raise CorruptLog(f"at offset {loaded} the chains of the log and of the snapshot differ")
            log.note_snapshot(meta.end)
        self._replay.learn(skip for _, skip in log.skipped())
        while self._replay.offset < log.shape.end:
            self._follow(log.read(self._replay.offset, _REPLAY_BYTES))
        self._due = None  # a snapshot that was due before the restart is skipped: another mark follows

    def _load_newest(self) -> SnapshotMeta | None:
        """Loads the newest snapshot that can be read and verified; damaged ones stay on disk."""
        for info in reversed(self._snapshots.list()):
            try:
                with unreadable_is_damaged():
                    return self._load(info.end)
            except LogFormatError:
                continue
        return None

    def _load(self, end: OffsetAndEpoch) -> SnapshotMeta:
        """Replaces the image by that of a snapshot, which is verified."""
        meta, image = load_packed(self._metadata, end)
        self._replay.install(image)
        self._base_voters = meta.voters
        return meta

    def reset(self) -> None:
        """Deletes everything. A crash in between leaves a store with contradictions, which is dropped again at the start."""
        if self._log is not None:
            self._log.disk.close()
            self._log = None
        self._snapshots.discard_parts()
        for name in self._metadata.names():
            self._metadata.remove(name)
        self._metadata.flush()
        self._snapshots = SnapshotStore(self._metadata)
        self._replay = Replay()
        self._base_voters = None
        self._due = None
        self._log = BrokerLog(Log.open(self._metadata, config=_LOG_CONFIG))

    def join_generation(self, generation: int) -> None:
        """Deletes everything and notes in `meta.properties` that this broker belongs to `generation`. If the process is killed in
        between, the controllers report the generation again."""
        self.reset()
        identity = read_identity(self._directory)
        assert identity is not None and identity.generation < generation, (identity, generation)
        write_identity(self._directory, identity._replace(generation=generation))

    # --- applying ----------------------------------------------------------------------------------------------------

    def apply(self, data: bytes, previous_chain: bytes, skips: Iterable[bytes] = ()) -> ReplayResult:
        """Appends and replays fetched batches; `previous_chain` is the sender's chain below the first batch, and `skips` are the
        records that drop some of the batches.

        Raises:
            LogFormatError: the batches are damaged; nothing was appended. WrongHistory: the batches continue another log;
                nothing was appended. ReplayStopped: a committed record does not fit the image, or needs a newer release. The
                log has it, the image does not. AppliedSkipped: the image has the effect of a batch that is skipped now.
            OSError: the disk has failed.
        """
        batches = tuple(decode_all(data))
        self._replay.learn(skip for skip in map(decode_record, skips) if isinstance(skip, SkippedBatch))
        log = self._open_log
        if log.end == 0 and previous_chain != log.chain:
            log.reset_to(OffsetAndEpoch(0, 0), previous_chain)
        elif previous_chain != log.chain:
            ours, theirs = log.chain.hex()[:16], previous_chain.hex()[:16]
            raise WrongHistory(f"at offset {log.end} the chain is {ours} here and {theirs} at the controllers")
        log.append(batches)
        return self._follow(batches)

    def _follow(self, batches: tuple[Batch, ...]) -> ReplayResult:
        result = self._replay.apply(batches)  # if replay stops, the process or the store ends, and needs no snapshot
        if result.marks:
            marked = result.marks[-1]
            self._due = self._job_at(marked.end, marked.image)
        return result

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _job_at(self, end: OffsetAndEpoch, image: MetadataImage) -> SnapshotJob | None:
        log = self._open_log.disk
        chain = log.chain_at(end.offset)  # None above the part on disk, too: a full disk has no room for a snapshot
        voters, kraft_version = self._quorum_at(end.offset)
        if chain is None or voters is None or any(info.end == end for info in self._snapshots.list()):
            return None
        meta = SnapshotMeta(end, image.provenance.timestamp_ms, chain, voters, kraft_version)
        return SnapshotJob(self._snapshots, meta, image)

    def _quorum_at(self, offset: Offset) -> tuple[Voters | None, int]:
        """The voter set and the kraft.version in force at `offset`."""
        voters, kraft_version = self._base_voters, 1
        for at, record in self._open_log.control_records():
            if at >= offset:
                break
            if isinstance(record, Voters):
                voters = record
            elif isinstance(record, KRaftVersion):
                kraft_version = record.level
        return voters, kraft_version

    def take_snapshot_job(self) -> SnapshotJob | None:
        """Returns the snapshot that is due, once; None without one. An older snapshot that was never taken is skipped.

        A download that broke off at or below the snapshot's end is deleted: an unfinished snapshot has the same file name.
        """
        job, self._due = self._due, None
        if job is not None:
            self._snapshots.drop_part(job.meta.end.offset)
        return job

    def snapshot_written(self, job: SnapshotJob) -> list[str]:
        """Deletes the log and the snapshots before the snapshot of `job`; returns the names of the deleted files."""
        log = self._open_log.disk
        end = job.meta.end
        if log.shape.start == end:
            return []  # a download has installed the same snapshot meanwhile
        if log.shape.start.offset > end.offset or log.chain_at(end.offset) != job.meta.chain:
            return self._snapshots.drop(
                [end]
            )  # the store was dropped meanwhile, so the snapshot does not belong to its log
        log.flush()
        log.note_snapshot(end)
        self._base_voters = job.meta.voters
        retired = log.drop_prefix(end)
        return [*retired, *self._drop_snapshots(but=end)]

    def snapshot_has_no_room(self, end: OffsetAndEpoch, reason: str) -> None:
        """Deletes what there is of a download that did not fit on the disk, and remembers why."""
        self._room_bytes = ROOM_BYTES + self._snapshots.part_bytes(end)
        self._why_no_snapshot = reason
        self.drop_part(end)

    def drop_part(self, end: OffsetAndEpoch) -> None:
        """Deletes what there is of a snapshot that did not fit on the disk: a download, or a snapshot of its own."""
        self._snapshots.drop_part(end.offset)
        self._snapshots.drop_unfinished(end)

    def write_part(self, end: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Writes one piece of a download; position 0 starts the download anew."""
        self._snapshots.write_part(end, position, data)

    def install(self, end: OffsetAndEpoch) -> None:
        """Makes a complete download durable: `image` becomes the snapshot's image, and the log begins at the snapshot's end.

        Raises:
            LogFormatError: the snapshot is damaged. The file is deleted; log and image are unchanged.
            OSError, FlushFailed: the disk has failed.
        """
        meta = self._snapshots.complete_part(end)
        present, self._replay = self._replay, Replay()
        try:
            self._load(end)
        except LogFormatError:
            self._replay = present
            self._snapshots.drop([end])
            raise
        self._open_log.reset_to(meta.end, meta.chain, meta.timestamp_ms)
        self._due = None
        self._drop_snapshots(but=end)

    def _drop_snapshots(self, *, but: OffsetAndEpoch) -> list[str]:
        """Deletes all snapshots but one. The order does not matter, because the newest one stays."""
        return self._snapshots.drop([info.end for info in self._snapshots.list() if info.end != but])

    # --- durability --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes the log on disk durable. Raises FlushFailed: the process has to end."""
        self._open_log.disk.flush()

    def close(self) -> None:
        """Flushes and closes the log. The end that had no room on the disk is lost, and fetched again."""
        if self._log is not None:
            self._log.write_tail()
            self._log.disk.flush()
            self._log.disk.close()
            self._log = None

    # --- a full disk -------------------------------------------------------------------------------------------------

    @property
    def why_full(self) -> str:
        """The disk's error while something waits for room; empty if nothing does."""
        return self._notes.why_full or self._why_no_snapshot or ("" if self._log is None else self._log.why_full)

    def look_for_room(self) -> None:
        """Writes what waits for room, if there is room for more besides: else the next batch would find the disk full again.

        Raises:
            OSError: the disk is broken.
        """
        if self._directory.free_bytes() >= self._room_bytes and self._open_log.write_tail():
            self._notes.write()
            self._why_no_snapshot, self._room_bytes = "", ROOM_BYTES

    # --- notes about processes ---------------------------------------------------------------------------------------

    def note_attempt(self, incarnation: Uuid) -> None:
        """Notes this process before it registers, because the process may be registered and then die before it could note
        that."""
        self._notes.note_attempt(incarnation)

    def note_registered(self, incarnation: Uuid) -> None:
        """Notes that this process is registered, so that earlier processes are superseded."""
        self._notes.note_registered(incarnation)

    def note_clean_shutdown(self, broker_epoch: int) -> None:
        """Leaves the proof that the process with this epoch ended with a controlled shutdown (Kafka's `.kafka_cleanshutdown`).

        Raises:
            OSError, FlushFailed: the disk has failed, or has no room for the proof: the next process counts as one that was
                killed.
        """
        self._notes.note_clean_shutdown(broker_epoch)
