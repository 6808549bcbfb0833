"""The broker's own copy of the metadata: a log and snapshots, in the controllers' formats, and the image made of them.

It is kept so that a restart, with a million partitions too, begins from disk and asks only for what is new. It is a copy,
and that decides everything here:

*Applied before durable.* A controller may not apply what its disk could still lose; a broker may. After a power cut it
fetches the lost tail again: it was committed, so it comes back the same, and the chain proves it. So fsyncs are made
in groups, apart from the applying.

*Broken means dropped.* Damage on disk, a log that does not reach its snapshot, a history that is not the controllers':
nothing is repaired here. The store is emptied, one line in the log says why, and everything is fetched anew.

*Snapshots at marks*, as the controllers write them: at a committed `SnapshotMark`, from the immutable image, with the log's
own chain and time in them, so that the file equals the controllers' file of the same name byte for byte. Once it is
durable the log before it goes.

One thread owns a store. `SnapshotJob.run` is the exception: it may run on another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from broker_agent.session.lifecycle import EMPTY_POSITION, Position
from metadata_log.disk.bad_sectors import read_twice
from metadata_log.disk.files import Directory, FileTooLarge
from metadata_log.disk.identity import read_identity, write_identity
from metadata_log.format.batch import Batch, decode_all
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch, Uuid
from metadata_log.format.records import KRaftVersion, Voters
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Replay, ReplayResult
from metadata_log.store.log import Log, LogConfig
from snapshots.format import SnapshotMeta
from snapshots.reader import read_records, unreadable_is_damaged
from snapshots.store import SnapshotStore

METADATA_DIRECTORY: Final = "@metadata"
INCARNATIONS_NAME: Final = "incarnations"
INCARNATIONS_MAX: Final = 8
"""Processes in a row that died before they were registered; of more, the oldest are forgotten."""
_UUID_BYTES: Final = 16
_REPLAY_BYTES: Final = 1 << 20
_LOG_CONFIG: Final = LogConfig(archive=False)
"""A broker archives nothing: the controllers do."""


class WrongHistory(Exception):
    """The batches continue another log than the one that lies here."""


@dataclass(slots=True)
class SnapshotJob:
    """Writes one snapshot; `run` touches nothing that the store's thread does."""

    store: SnapshotStore
    meta: SnapshotMeta
    image: MetadataImage

    def run(self) -> None:
        """Raises OSError or FlushFailed: the disk's."""
        self.store.write(self.meta, self.image)


class Recovered(NamedTuple):
    """What the store began with; `dropped` says why it had to begin empty, if it had to."""

    position: Position
    image: MetadataImage
    previous_incarnations: tuple[Uuid, ...]
    voters: Voters | None
    dropped: str | None


class BrokerStore:
    """See the file's head. `recover` comes first."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._metadata = directory.subdirectory(METADATA_DIRECTORY)
        self._snapshots = SnapshotStore(self._metadata)
        self._log: Log | None = None
        self._replay = Replay()
        self._base_voters: Voters | None = None
        """The voter set at the log's start, as the snapshot there tells; None where nothing told yet."""
        self._due: SnapshotJob | None = None

    # --- what it holds -----------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._replay.image

    @property
    def position(self) -> Position:
        """Where the next fetch goes on. The digest is that of the image, where the image is at the position."""
        shape = self._open_log.shape
        if shape.end == 0:
            return EMPTY_POSITION
        image = self._replay.image
        digest = image.digest_bytes if image.offset == shape.end else b""
        return Position(shape.end, shape.last_epoch, shape.chain, digest)

    @property
    def voters(self) -> Voters | None:
        """The newest voter set that the log tells of; None where it tells of none yet."""
        return self._quorum_at(self._open_log.shape.end)[0]

    @property
    def _open_log(self) -> Log:
        assert self._log is not None, "recover comes first"
        return self._log

    # --- at start ----------------------------------------------------------------------------------------------------

    def recover(self) -> Recovered:
        """Reads what is on disk into an image. What does not hold together is dropped.

        Raises:
            OSError, FlushFailed: the disk's.
        """
        dropped = None
        try:
            self._recover()
        except LogFormatError as e:
            dropped = str(e)
            self.reset()
        return Recovered(self.position, self.image, self._read_incarnations(), self.voters, dropped)

    def _recover(self) -> None:
        self._snapshots.discard_parts()
        meta = self._load_newest()
        log = Log.open(self._metadata, config=_LOG_CONFIG)
        self._log = log
        if meta is not None and meta.end.offset > log.shape.end:
            # A crash between the download's last rename and the log's reset.
            log.reset_to(meta.end, meta.chain, meta.timestamp_ms)
        loaded = self._replay.offset
        if log.shape.start.offset > loaded:
            raise CorruptLog(f"the log starts at {log.shape.start.offset}, and no whole snapshot reaches that far")
        if meta is not None:
            if log.chain_at(loaded) != meta.chain:
                raise CorruptLog(f"the log's chain at {loaded} is not that of the snapshot there")
            log.note_snapshot(meta.end)
        while self._replay.offset < log.shape.end:
            self._follow(log.read(self._replay.offset, _REPLAY_BYTES))
        self._due = None  # what is due at a restart was due long ago; the next mark comes

    def _load_newest(self) -> SnapshotMeta | None:
        """The newest snapshot that the disk gives, asked twice, and that verifies; the others are left where they are."""
        for info in reversed(self._snapshots.list()):
            try:
                with unreadable_is_damaged():
                    return read_twice(partial(self._load_at, info.end))
            except LogFormatError:
                continue
        return None

    def _load_at(self, end: OffsetAndEpoch) -> SnapshotMeta:
        return self._load(self._snapshots.read_meta(end))

    def _load(self, meta: SnapshotMeta) -> SnapshotMeta:
        """Replaces the image by that of a snapshot that was found whole."""
        provenance = Provenance(meta.end.offset, meta.end.epoch, meta.timestamp_ms)
        self._replay.load_snapshot(read_records(self._metadata, meta.end), provenance)
        self._base_voters = meta.voters
        return meta

    def reset(self) -> None:
        """Drops everything. A crash in between leaves a store that does not hold together, and is dropped again."""
        if self._log is not None:
            self._log.close()
            self._log = None
        self._snapshots.discard_parts()
        for name in self._metadata.names():
            self._metadata.remove(name)
        self._metadata.flush()
        self._snapshots = SnapshotStore(self._metadata)
        self._replay = Replay()
        self._base_voters = None
        self._due = None
        self._log = Log.open(self._metadata, config=_LOG_CONFIG)

    def join_generation(self, generation: int) -> None:
        """Drops everything, and notes in `meta.properties` that this broker is of `generation`. Killed in between, it is told
        again."""
        self.reset()
        identity = read_identity(self._directory)
        assert identity is not None and identity.generation < generation, (identity, generation)
        write_identity(self._directory, identity._replace(generation=generation))

    # --- following ---------------------------------------------------------------------------------------------------

    def apply(self, data: bytes, previous_chain: bytes) -> ReplayResult:
        """Appends and replays batches as they came; `previous_chain` is the chain below the first, as the sender has it.

        Raises:
            LogFormatError: the batches are damaged; nothing was taken.
            WrongHistory: they continue another log than this one.
            ReplayStopped: a committed record does not fit or is from the future. The log has it, the image does not.
            OSError: the disk's.
        """
        batches = tuple(decode_all(data))
        log = self._open_log
        if log.shape.end == 0 and previous_chain != log.shape.chain:
            log.reset_to(OffsetAndEpoch(0, 0), previous_chain)
        elif previous_chain != log.shape.chain:
            ours, theirs = log.shape.chain.hex()[:16], previous_chain.hex()[:16]
            raise WrongHistory(f"at offset {log.shape.end} the chain is {ours} here and {theirs} at the controllers")
        log.append_batches(batches)
        return self._follow(batches)

    def _follow(self, batches: tuple[Batch, ...]) -> ReplayResult:
        result = self._replay.apply(batches)
        if result.marks:
            marked = result.marks[-1]
            self._due = self._job_at(marked.end, marked.image)
        return result

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _job_at(self, end: OffsetAndEpoch, image: MetadataImage) -> SnapshotJob | None:
        log = self._open_log
        chain = log.chain_at(end.offset)
        voters, kraft_version = self._quorum_at(end.offset)
        if chain is None or voters is None or any(info.end == end for info in self._snapshots.list()):
            return None
        meta = SnapshotMeta(end, image.provenance.timestamp_ms, chain, voters, kraft_version)
        return SnapshotJob(self._snapshots, meta, image)

    def _quorum_at(self, offset: Offset) -> tuple[Voters | None, int]:
        """The voter set and kraft.version in force at `offset`."""
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
        """The snapshot that is due, once; None where none is. An older one that was never taken is skipped."""
        job, self._due = self._due, None
        return job

    def snapshot_written(self, job: SnapshotJob) -> list[str]:
        """`job` has run: the log before it goes, and so do older snapshots. Returns what was retired, by name."""
        log = self._open_log
        end = job.meta.end
        if log.shape.start == end:
            return []  # downloaded and installed meanwhile: the same file
        if log.shape.start.offset > end.offset or log.chain_at(end.offset) != job.meta.chain:
            return self._snapshots.drop([end])  # the store began anew meanwhile
        log.flush()
        log.note_snapshot(end)
        self._base_voters = job.meta.voters
        retired = log.drop_prefix(end)
        return [*retired, *self._drop_snapshots(but=end)]

    def write_part(self, end: OffsetAndEpoch, position: int, data: bytes) -> None:
        """One chunk of a download; position 0 begins it anew."""
        self._snapshots.write_part(end, position, data)

    def install(self, end: OffsetAndEpoch) -> None:
        """The download of the snapshot at `end` is whole: it becomes durable, `image` is its image, the log begins at its end.

        Raises:
            LogFormatError: it does not verify. The file is gone; log and image are as they were.
            OSError, FlushFailed: the disk's.
        """
        meta = self._snapshots.complete_part(end)
        present, self._replay = self._replay, Replay()
        try:
            self._load(meta)
        except LogFormatError:
            self._replay = present
            self._snapshots.drop([end])
            raise
        self._open_log.reset_to(meta.end, meta.chain, meta.timestamp_ms)
        self._due = None
        self._drop_snapshots(but=end)

    def _drop_snapshots(self, *, but: OffsetAndEpoch) -> list[str]:
        """All snapshots but one; the newest stands, so what goes first does not matter."""
        return self._snapshots.drop([info.end for info in self._snapshots.list() if info.end != but])

    # --- durability --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes the log durable. Raises FlushFailed: stop the process."""
        self._open_log.flush()

    def close(self) -> None:
        """Flushes and closes what is open."""
        if self._log is not None:
            self._log.flush()
            self._log.close()
            self._log = None

    # --- incarnations ------------------------------------------------------------------------------------------------

    def note_attempt(self, incarnation: Uuid) -> None:
        """This process is about to register. Before it does, not after: it may die in between, registered."""
        known = self._read_incarnations()
        if incarnation not in known:
            self._write_incarnations([incarnation, *known][:INCARNATIONS_MAX])

    def note_registered(self, incarnation: Uuid) -> None:
        """This process is registered: whoever was before it is superseded."""
        self._write_incarnations([incarnation])

    def _read_incarnations(self) -> tuple[Uuid, ...]:
        try:
            data = self._directory.read(INCARNATIONS_NAME, INCARNATIONS_MAX * _UUID_BYTES)
        except (FileNotFoundError, FileTooLarge):
            return ()  # (Too large: not what was written here. Without a name the predecessor is superseded a session later.)
        whole = len(data) - len(data) % _UUID_BYTES
        return tuple(data[at : at + _UUID_BYTES] for at in range(0, whole, _UUID_BYTES))

    def _write_incarnations(self, incarnations: Iterable[Uuid]) -> None:
        self._directory.write_atomic(INCARNATIONS_NAME, b"".join(incarnations))
