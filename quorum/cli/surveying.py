"""What one data directory still holds, read as it lies there: by whom, from where to where, how far proven, where damaged.

Changes nothing. A log is read from its beginning to the first place that is not intact; what a start would make of that
(`metadata_log.recovery`) is not asked, for what comes behind it is of no use here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from metadata_log.batch import Batch, verify_chain
from metadata_log.errors import LogFormatError
from metadata_log.files import Directory
from metadata_log.identity import Identity, read_identity
from metadata_log.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.log_notes import FLUSHED_NAME, Flushed, FlushedNote, LogStart, read_lost, read_start
from metadata_log.records import Voters
from metadata_log.recovery import segment_names
from metadata_log.segment import SEGMENT_HEADER_BYTES, BadBatch, Segment, base_offset_of, walk
from quorum.runtime import election_file, recovery_plan
from quorum.runtime.opening import LOG_DIRECTORY, read_origin
from quorum.runtime.recovery_plan import RecoveryPlan
from snapshots.format import SnapshotMeta
from snapshots.store import SnapshotStore, genesis


class CannotRecover(Exception):
    """Nothing was changed. The message says what is in the way."""


class Candidate(NamedTuple):
    """One directory, as it lies there."""

    directory: Directory
    identity: Identity
    vote_epoch: Epoch | None
    """That of quorum-state; None where there is none that can be read."""
    first_voters: Voters | None
    """Those that the cluster was formatted with; None of a broker, and where nothing says so any more."""
    start: Offset
    start_chain: bytes
    log_end: Offset
    """From `start` on all below is intact in the log."""
    end: Offset
    """The same, or the end of the newest snapshot where that reaches further."""
    epoch: Epoch
    chain: bytes
    durable: Flushed
    """All below was durable once, as noted."""
    is_back: bool
    """Whether nothing is noted as `lost`, or the very history that was is there again."""
    snapshot: SnapshotMeta | None
    damage: str | None
    is_whole: bool
    """Whether all that was durable here is still here. A torn tail never was."""
    unfinished: RecoveryPlan | None
    """What this directory was being made into when that was broken off."""

    @property
    def path(self) -> str:
        return self.directory.path_text

    @property
    def is_controller(self) -> bool:
        return self.identity.role == "controller"

    @property
    def rank(self) -> tuple[Epoch, Offset]:
        """Raft 5.4.1."""
        return (self.epoch, self.end)

    @property
    def committed(self) -> tuple[Offset, bytes]:
        """All below was committed, as this directory proves; and the chain there."""
        if not self.is_controller:
            return self.end, self.chain
        return (0, b"") if self.snapshot is None else (self.snapshot.end.offset, self.snapshot.chain)

    def can_tell(self, offset: Offset) -> bool:
        """Whether a place of its history at `offset` would be among its `places_of`."""
        return self.start <= offset <= self.log_end or offset >= self.end


def survey(directory: Directory) -> Candidate:
    """Reads a directory that nobody runs on; changes nothing.

    Raises:
        CannotRecover: it is nobody's, or too little of it can be read.
    """
    path = directory.path_text
    try:
        identity = read_identity(directory)
        if identity is None:
            raise CannotRecover(f"{path} is not formatted: there is nothing to recover from")
        if not directory.exists(LOG_DIRECTORY):
            raise CannotRecover(f"{path} has no {LOG_DIRECTORY}: there is nothing to recover from. Leave it out")
        return _survey(directory, identity)
    except LogFormatError as e:
        raise CannotRecover(f"{path}: {e}") from e
    except OSError as e:
        raise CannotRecover(
            f"{path} cannot be read: {e}. If its disk is broken, copy what can be read of it, and name the copy"
        ) from e


def _survey(directory: Directory, identity: Identity) -> Candidate:
    metadata = directory.subdirectory(LOG_DIRECTORY)
    note, lost = _read_note(metadata), read_lost(metadata)
    first_voters, first_chain, damages = _origin(directory, identity, metadata)
    log = _Reading(metadata, read_start(metadata), first_chain)
    is_back = lost is None
    for batch in log.batches():
        is_back = is_back or lost == (batch.end_offset, batch.chain)
    if first_chain and log.start == 0 and log.start_chain != first_chain:
        damages.append("its log is another cluster's")
    snapshot = _newest_snapshot(metadata)
    end, epoch, chain = log.end, log.epoch, log.chain
    if snapshot is not None and snapshot.end.offset > end:
        end, epoch, chain = snapshot.end.offset, snapshot.end.epoch, snapshot.chain
    durable = max(note or Flushed(0, b""), lost or Flushed(0, b""))
    damages += [each for each in (log.missing,) if each is not None]
    if not is_back or durable.end > end:
        damages.append(f"lost what was durable up to {durable.end}")
    is_whole = not damages and (log.damage is None or note is not None)
    return Candidate(
        directory=directory,
        identity=identity,
        vote_epoch=_vote_epoch(directory),
        first_voters=first_voters,
        start=log.start,
        start_chain=log.start_chain,
        log_end=log.end,
        end=end,
        epoch=epoch,
        chain=chain,
        durable=durable,
        is_back=is_back,
        snapshot=snapshot,
        damage="; ".join([*damages, *([] if log.damage is None else [log.damage])]) or None,
        is_whole=is_whole,
        unfinished=recovery_plan.load(directory),
    )


def _origin(directory: Directory, identity: Identity, metadata: Directory) -> tuple[Voters | None, bytes, list[str]]:
    """The voters that the cluster was formatted with, the chain that its history begins with, and what is wrong with them."""
    if identity.role != "controller":
        return None, b"", []
    try:
        voters = read_origin(directory, identity, SnapshotStore(metadata)).voters
    except LogFormatError as e:
        return None, identity.genesis_chain, [str(e)]
    return voters, genesis(identity.cluster_id, voters), []


def _vote_epoch(directory: Directory) -> Epoch | None:
    try:
        election = election_file.load(directory)
    except election_file.ForgottenVote:
        return None
    return None if election is None else election.epoch


class _Reading:
    """One pass over the segments of a log: `batches` in order, up to the first place that does not continue them."""

    def __init__(self, metadata: Directory, start: LogStart | None, first_chain: bytes) -> None:
        self._metadata = metadata
        names = segment_names(metadata)
        if start is not None and start.resetting:
            names = []  # a reset had begun: no segment counts
        place = start or LogStart(OffsetAndEpoch(0, 0), first_chain, 0)
        # Segments wholly below the log's start may still lie there: a crash kept them from being retired.
        below = sum(1 for name in names[1:] if (base_offset_of(name) or 0) <= place.start.offset)
        self._names = names[below:]
        self.start, self.start_chain = place.start.offset, place.chain
        self.end, self.epoch, self.chain = place.start.offset, place.start.epoch, place.chain
        self.missing: str | None = None
        """What the log should have begun with."""
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
                    if header.start.offset > self.end:
                        self.missing = f"{name}: the log should start at {self.end}, and what stands before is missing"
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
                        segment.extend(batch, self.chain)
                        self.end, self.epoch, self.chain = batch.end_offset, batch.epoch, batch.chain
                        yield batch
                    if not segment.tail_is_zero():
                        raise BadBatch(segment.end_position, "something other than zeros after the last batch")
                except BadBatch as e:
                    self.damage = f"{name}, byte {e.position}: {e}"
                    return


def batches_of(candidate: Candidate) -> Iterator[Batch]:
    """Its intact batches in order."""
    metadata = candidate.directory.subdirectory(LOG_DIRECTORY)
    yield from _Reading(metadata, read_start(metadata), candidate.start_chain).batches()


def places_of(candidate: Candidate) -> Iterator[tuple[Offset, bytes]]:
    """The places in its history that it can prove, ascending: each offset with the chain there."""
    yield candidate.start, candidate.start_chain
    for batch in batches_of(candidate):
        yield batch.end_offset, batch.chain
    if candidate.snapshot is not None and candidate.end > candidate.log_end:
        yield candidate.snapshot.end.offset, candidate.snapshot.chain


def _read_note(metadata: Directory) -> Flushed | None:
    if not metadata.exists(FLUSHED_NAME):
        return None
    note = FlushedNote(metadata)
    try:
        return note.read()
    finally:
        note.close()


def _newest_snapshot(metadata: Directory) -> SnapshotMeta | None:
    store = SnapshotStore(metadata)
    newest = store.newest_valid()
    return None if newest is None else store.read_meta(newest.end)
