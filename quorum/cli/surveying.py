"""What one data directory still holds, read as it lies there: by whom, from where to where, how far proven, where damaged.

Changes nothing. A log is read from its beginning to the first place that is not intact; what a start would make of that
(`metadata_log.recovery`) is not asked, for what comes behind it is of no use here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from metadata_log.batch import Batch, verify_chain
from metadata_log.errors import LogFormatError
from metadata_log.files import RealDirectory
from metadata_log.identity import Identity, read_identity
from metadata_log.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.log_notes import FLUSHED_NAME, Flushed, FlushedNote, LogStart, read_start
from metadata_log.recovery import segment_names
from metadata_log.segment import SEGMENT_HEADER_BYTES, BadBatch, Segment, base_offset_of, walk
from quorum.runtime import election_file
from quorum.runtime.opening import LOG_DIRECTORY
from snapshots.format import SnapshotMeta
from snapshots.store import SnapshotStore


class CannotRecover(Exception):
    """Nothing was changed. The message says what is in the way."""


class Candidate(NamedTuple):
    """One directory, as it lies there."""

    path: Path
    identity: Identity
    vote_epoch: Epoch | None
    """That of quorum-state; None where there is none that can be read."""
    start: Offset
    start_chain: bytes
    end: Offset
    """From `start` on all below is intact: by its log, or by its newest snapshot where that reaches further."""
    epoch: Epoch
    chain: bytes
    flushed_end: Offset | None
    """All below was durable once, as noted."""
    snapshot: SnapshotMeta | None
    damage: str | None

    @property
    def is_controller(self) -> bool:
        return self.identity.role == "controller"

    @property
    def rank(self) -> tuple[Epoch, Offset]:
        """Raft 5.4.1."""
        return (self.epoch, self.end)

    @property
    def committed_end(self) -> Offset:
        """All below was committed, as this directory proves."""
        if not self.is_controller:
            return self.end
        return 0 if self.snapshot is None else self.snapshot.end.offset

    @property
    def is_damaged(self) -> bool:
        """Whether something is broken that was durable once, as against a torn tail."""
        return self.damage is not None and (self.flushed_end is None or self.end < self.flushed_end)


def survey(path: Path) -> Candidate:
    """Reads a directory that nobody runs on; changes nothing.

    Raises:
        CannotRecover: it is nobody's, or too little of it can be read.
        OSError: it cannot be read.
    """
    try:
        directory = RealDirectory(path)
        identity = read_identity(directory)
        if identity is None:
            raise CannotRecover(f"{path} is not formatted: there is nothing to recover from")
        metadata = directory.subdirectory(LOG_DIRECTORY)
        note, log = _read_note(metadata), _read(metadata)
        snapshot = _newest_snapshot(metadata)
    except LogFormatError as e:
        raise CannotRecover(f"{path}: {e}") from e
    end, epoch, chain = log.end, log.epoch, log.chain
    if snapshot is not None and snapshot.end.offset > end:
        end, epoch, chain = snapshot.end.offset, snapshot.end.epoch, snapshot.chain
    flushed_end = None if note is None else note.end
    return Candidate(
        path,
        identity,
        _vote_epoch(directory),
        log.start,
        log.start_chain,
        end,
        epoch,
        chain,
        flushed_end,
        snapshot,
        log.damage,
    )


def _vote_epoch(directory: RealDirectory) -> Epoch | None:
    try:
        election = election_file.load(directory)
    except election_file.ForgottenVote:
        return None
    return None if election is None else election.epoch


class _Reading:
    """One pass over the segments of a log: `batches` in order, up to the first place that does not continue them."""

    def __init__(self, metadata: RealDirectory, start: LogStart | None) -> None:
        self._metadata = metadata
        names = segment_names(metadata)
        if start is not None and start.resetting:
            names = []  # a reset had begun: no segment counts
        place = start or LogStart(OffsetAndEpoch(0, 0), b"", 0)
        # Segments wholly below the log's start may still lie there: a crash kept them from being retired.
        below = sum(1 for name in names[1:] if (base_offset_of(name) or 0) <= place.start.offset)
        self._names = names[below:]
        self.start, self.start_chain = place.start.offset, place.chain
        self.end, self.epoch, self.chain = place.start.offset, place.start.epoch, place.chain
        self.damage: str | None = None

    def batches(self) -> Iterator[Batch]:
        """Each with its CRC and its place in the chain checked. Then the attributes say how far it went, and why no further."""
        for number, name in enumerate(self._names):
            try:
                segment = Segment.open(self._metadata, name)
            except LogFormatError as e:
                self.damage = f"{name}: {e}"
                return
            with closing(segment.file):
                header = segment.header
                if number == 0:
                    self.start, self.start_chain = header.start.offset, header.previous_chain
                    self.end, self.epoch, self.chain = header.start.offset, header.start.epoch, header.previous_chain
                elif (header.start.offset, header.previous_chain) != (self.end, self.chain):
                    self.damage = f"{name}: it does not continue the log, which ends at offset {self.end}"
                    return
                try:
                    for position, batch in walk(segment.file, SEGMENT_HEADER_BYTES, segment.file.size()):
                        if (
                            batch.base_offset != self.end
                            or batch.epoch < self.epoch
                            or not verify_chain(batch, self.chain)
                        ):
                            raise BadBatch(
                                position, f"what stands there does not continue the log at offset {self.end}"
                            )
                        self.end, self.epoch, self.chain = batch.end_offset, batch.epoch, batch.chain
                        yield batch
                except BadBatch as e:
                    self.damage = f"{name}, byte {e.position}: {e}"
                    return


def _read(metadata: RealDirectory) -> _Reading:
    """The whole log, read once."""
    reading = _Reading(metadata, read_start(metadata))
    for _ in reading.batches():
        pass
    return reading


def batches_of(candidate: Candidate) -> Iterator[Batch]:
    """Its intact batches in order."""
    metadata = RealDirectory(candidate.path).subdirectory(LOG_DIRECTORY)
    yield from _Reading(metadata, read_start(metadata)).batches()


def places_of(candidate: Candidate) -> Iterator[tuple[Offset, bytes]]:
    """The places in its history that it can prove, ascending: each offset with the chain there."""
    yield candidate.start, candidate.start_chain
    end = candidate.start
    for batch in batches_of(candidate):
        end = batch.end_offset
        yield end, batch.chain
    if candidate.snapshot is not None and candidate.snapshot.end.offset > end:
        yield candidate.snapshot.end.offset, candidate.snapshot.chain


def _read_note(metadata: RealDirectory) -> Flushed | None:
    if not metadata.exists(FLUSHED_NAME):
        return None
    note = FlushedNote(metadata)
    try:
        return note.read()
    finally:
        note.close()


def _newest_snapshot(metadata: RealDirectory) -> SnapshotMeta | None:
    store = SnapshotStore(metadata)
    newest = store.newest_valid()
    return None if newest is None else store.read_meta(newest.end)
