"""What one data directory still holds, read as it lies there: by whom, from where to where, how far proven, where damaged.

Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity, read_identity
from metadata_log.format.batch import Batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import Voters
from metadata_log.store.log_notes import FLUSHED_NAME, Flushed, FlushedNote, read_lost
from metadata_log.store.recovery import continued
from quorum.recovery.remains import Remains
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, read_origin
from quorum.runtime.disk.recovery_plan import RecoveryPlan
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
    intact_from: Offset
    """From here on all below `end` is: `start`, or the newest snapshot's end, where the log is damaged or ends below that."""
    end: Offset
    epoch: Epoch
    chain: bytes
    proven: Flushed | None
    """What is to be noted as durable for whoever reads the log: where that is what the snapshot proves, it leads over damage."""
    durable: Flushed
    """All below was durable once, as noted, or as what is intact behind damage tells."""
    is_back: bool
    """Whether nothing is noted as `lost`, or the very history that was is there again."""
    snapshot: SnapshotMeta | None
    is_startable: bool
    """Whether its log begins at 0, or a whole snapshot of that history reaches up to its beginning. On no other a node starts."""
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
        return self.start <= offset <= self.log_end or offset >= self.intact_from


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


class _Reading(NamedTuple):
    """A log that was read to its end."""

    log: Remains
    is_back: bool
    durable: list[Flushed]
    """How far it had been, as a start would judge that."""


def _read(metadata: Directory, note: Flushed | None, first_chain: bytes, snapshot: SnapshotMeta | None) -> _Reading:
    """Read as far as the note leads, or, if that is further, as what goes on at the snapshot."""
    lost = read_lost(metadata)
    log = Remains(metadata, note, first_chain, snapshot)
    is_back = _holds(log, lost)
    durable = [each for each in (note, lost, log.lost()) if each is not None]
    if snapshot is not None and log.is_broken:
        # Behind damage above an older note, as a power cut brings it back, or without a note, nothing is looked for.
        proven = continued(metadata, Flushed(snapshot.end.offset, snapshot.chain))
        if proven.end > snapshot.end.offset:
            again = Remains(metadata, proven, first_chain, snapshot)
            is_back_again = _holds(again, lost)
            if again.last().end.offset > log.last().end.offset:
                log, is_back = again, is_back_again
    if log.is_replaced:  # what stood there was never committed
        durable = [each for each in (lost,) if each is not None]
    else:
        durable += [Flushed(each.end.offset, each.end.chain) for each in log.runs[1:]]
    return _Reading(log, is_back, durable)


def _survey(directory: Directory, identity: Identity) -> Candidate:
    metadata = directory.subdirectory(LOG_DIRECTORY)
    note = _read_note(metadata)
    first_voters, first_chain, damages = _origin(directory, identity, metadata)
    snapshot = _newest_snapshot(metadata)
    log, is_back, durable = _read(metadata, note, first_chain, snapshot)
    furthest = max(durable, default=Flushed(0, b""))
    if log.is_replaced:
        damages.append("its newest snapshot has replaced its log")
    first, last = log.first(), log.last()
    if first_chain and first.start.offset == 0 and first.start.chain != first_chain:
        damages.append("its log is another cluster's")
    damages += log.damages
    is_covered = log.log_start == 0 or (snapshot is not None and snapshot.end.offset >= log.log_start)
    if not is_covered:
        damages.append(f"its log begins at {log.log_start}, and no whole snapshot there reaches that far")
    if log.is_contradicted:
        damages.append("its newest snapshot is not of its log's history")
    if not is_back or furthest.end > last.end.offset:
        damages.append(f"lost what was durable up to {furthest.end}")
    return Candidate(
        directory=directory,
        identity=identity,
        vote_epoch=_vote_epoch(directory),
        first_voters=first_voters,
        start=first.start.offset,
        start_chain=first.start.chain,
        log_end=first.end.offset,
        intact_from=last.start.offset,
        end=last.end.offset,
        epoch=last.end.epoch,
        chain=last.end.chain,
        proven=log.proven,
        durable=furthest,
        is_back=is_back,
        snapshot=snapshot,
        is_startable=is_covered and not log.is_contradicted,
        damage="; ".join([*damages, *([] if log.stop is None else [log.stop])]) or None,
        is_whole=not damages and (log.stop is None or note is not None),
        unfinished=recovery_plan.load(directory),
    )


def _holds(log: Remains, lost: Flushed | None) -> bool:
    """Whether what was lost once is there again. Reads all of `log`."""
    is_there = lost is None
    for batch in log.batches():
        is_there = is_there or lost == (batch.end_offset, batch.chain)
    return is_there


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


def batches_of(candidate: Candidate) -> Iterator[Batch]:
    """Its intact batches in order: of its log from the beginning up to `log_end`, and from `intact_from` up to `end`."""
    metadata = candidate.directory.subdirectory(LOG_DIRECTORY)
    for batch in Remains(metadata, candidate.proven, candidate.start_chain, candidate.snapshot).batches():
        is_of_use = batch.end_offset <= candidate.log_end or batch.base_offset >= candidate.intact_from
        if is_of_use and candidate.start <= batch.base_offset and batch.end_offset <= candidate.end:
            yield batch


def places_of(candidate: Candidate) -> Iterator[tuple[Offset, bytes]]:
    """The places in its history that it can prove, ascending: each offset with the chain there."""
    yield candidate.start, candidate.start_chain
    ahead = None
    if candidate.snapshot is not None and candidate.intact_from > candidate.start:
        ahead = (candidate.snapshot.end.offset, candidate.snapshot.chain)
    for batch in batches_of(candidate):
        if ahead is not None and batch.base_offset >= ahead[0]:
            yield ahead
            ahead = None
        yield batch.end_offset, batch.chain
    if ahead is not None:
        yield ahead


def _read_note(metadata: Directory) -> Flushed | None:
    if not metadata.exists(FLUSHED_NAME):
        return None
    note = FlushedNote(metadata)
    try:
        durable = note.read()
    finally:
        note.close()
    if note.unread is not None:
        raise note.unread  # it may say more than the bytes, and what it says could be left out of the account
    return durable


def _newest_snapshot(metadata: Directory) -> SnapshotMeta | None:
    store = SnapshotStore(metadata)
    newest = store.newest_valid()
    return None if newest is None else store.read_meta(newest.end)
