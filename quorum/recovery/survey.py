"""Surveys one data directory for a recovery: identity, vote, readable log, newest snapshot, damage. Changes nothing.

Example: the directory of controller 2, after a crash with a broken disk.

    1. meta.properties says controller 2, generation 1. quorum-state says epoch 7.
    2. The log has records 0 to 99 of epochs 1 to 7, and the `flushed` note says 100. Records 40 to 49 cannot be read.
    3. The newest snapshot ends at 60. So the candidate has log_start 0, start 60, end 100 (`remains`).
    4. `is_whole` is False, because records 40 to 49 were durable. `is_startable` is True: the log begins at 0.
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
from quorum.recovery.remains import Remains
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, read_origin
from quorum.runtime.disk.recovery_plan import RecoveryPlan
from snapshots.format import SnapshotMeta
from snapshots.store import SnapshotStore, genesis


class CannotRecover(Exception):
    """The recovery was refused and changed nothing. The message names the reason."""


class Candidate(NamedTuple):
    """The survey of one directory."""

    directory: Directory
    identity: Identity
    vote_epoch: Epoch | None
    """Epoch in quorum-state; None if there is no readable quorum-state."""
    first_voters: Voters | None
    """Voters that the cluster was formatted with; None for a broker, and if the bootstrap checkpoint cannot be read."""
    note: Flushed | None
    """The note `flushed`; None if there is none."""
    log_start: Offset
    start: Offset
    """Every record in [start, end) is intact. `start` is the log's start, or the newest snapshot's end if the log has a gap below
    it."""
    start_chain: bytes
    end: Offset
    epoch: Epoch
    chain: bytes
    durable: Flushed
    """Every record below was durable once: the `flushed` or `lost` note says so, or an intact batch behind damage."""
    is_back: bool
    """True if there is no note `lost`, or if the log has the lost history again."""
    snapshot: SnapshotMeta | None
    is_startable: bool
    """True if a node can start: the log begins at 0, or a whole snapshot of the same history reaches the log's start."""
    damage: str | None
    is_whole: bool
    """True if every record that was durable here can be read. (A torn tail never was durable.)"""
    unfinished: RecoveryPlan | None
    """Plan of a recovery that was begun in this directory and not finished."""

    @property
    def path(self) -> str:
        return self.directory.path_text

    @property
    def is_controller(self) -> bool:
        return self.identity.role == "controller"

    @property
    def rank(self) -> tuple[Epoch, Offset]:
        """Last epoch and length of the log: the order of logs in Raft's votes (section 5.4.1)."""
        return (self.epoch, self.end)

    @property
    def committed(self) -> tuple[Offset, bytes]:
        """Offset below which every record was committed, as this directory proves, and the chain at that offset.

        A broker receives only committed records, and a snapshot has only committed records.
        """
        if not self.is_controller:
            return self.end, self.chain
        return (0, b"") if self.snapshot is None else (self.snapshot.end.offset, self.snapshot.chain)

    def can_tell(self, offset: Offset) -> bool:
        """True if `places_of` would name `offset` if it were a place of this history. False below `start`: unknown."""
        return offset >= self.start


def survey(directory: Directory) -> Candidate:
    """Reads a directory that no process uses, and changes nothing.

    Raises:
        CannotRecover: the directory is not formatted, or too little of it can be read.
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
            f"{path} cannot be read: {e}. Nothing was changed. If its disk is broken, copy the readable files, and name the copy"
        ) from e


def _survey(directory: Directory, identity: Identity) -> Candidate:
    metadata = directory.subdirectory(LOG_DIRECTORY)
    note = _read_note(metadata)
    first_voters, first_chain, damages = _origin(directory, identity, metadata)
    snapshot = _newest_snapshot(metadata)
    lost = read_lost(metadata)
    log = Remains(metadata, note, first_chain, snapshot)
    is_back = _holds(log, lost)
    lost_now = None if log.is_replaced else log.lost()
    # Replaced records were never committed.
    durable = [lost] if log.is_replaced else [note, lost, lost_now, log.left_out]
    furthest = max((each for each in durable if each is not None), default=Flushed(0, b""))
    if log.is_replaced:
        damages.append("its newest snapshot has replaced its log")
    start, end = log.start, log.end
    if first_chain and start.offset == 0 and start.chain != first_chain:
        damages.append("its log is the log of another cluster")
    damages += log.damages
    is_covered = log.log_start == 0 or (snapshot is not None and snapshot.end.offset >= log.log_start)
    if not is_covered:
        damages.append(f"its log begins at {log.log_start}, and no whole snapshot there reaches that far")
    if log.is_contradicted:
        damages.append("its newest snapshot is not of its log's history")
    # A log that ends at 3, with a note of 6 and a snapshot at 6, is not whole either, although the snapshot covers the lost end.
    if not is_back or lost_now is not None or furthest.end > end.offset:
        damages.append(f"lost durable records below {furthest.end}")
    return Candidate(
        directory=directory,
        identity=identity,
        vote_epoch=_vote_epoch(directory),
        first_voters=first_voters,
        note=note,
        log_start=log.log_start,
        start=start.offset,
        start_chain=start.chain,
        end=end.offset,
        epoch=end.epoch,
        chain=end.chain,
        durable=furthest,
        is_back=is_back,
        snapshot=snapshot,
        is_startable=is_covered and not log.is_contradicted,
        damage="; ".join([*damages, *([] if log.stop is None else [log.stop])]) or None,
        is_whole=not damages and (log.stop is None or note is not None),
        unfinished=recovery_plan.load(directory),
    )


def _holds(log: Remains, lost: Flushed | None) -> bool:
    """Reads all of `log`. Returns True if the log has the lost history again, or nothing was lost."""
    is_there = lost is None
    for batch in log.batches():
        is_there = is_there or lost == (batch.end_offset, batch.chain)
    return is_there


def _origin(directory: Directory, identity: Identity, metadata: Directory) -> tuple[Voters | None, bytes, list[str]]:
    """Returns the voters that the cluster was formatted with, the first chain of its history, and problems with both."""
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
    """Yields the candidate's intact batches in [start, end), in order."""
    metadata = candidate.directory.subdirectory(LOG_DIRECTORY)
    for batch in Remains(metadata, candidate.note, candidate.start_chain, candidate.snapshot).batches():
        if candidate.start <= batch.base_offset and batch.end_offset <= candidate.end:
            yield batch


def places_of(candidate: Candidate) -> Iterator[tuple[Offset, bytes]]:
    """Yields the proven places of the candidate's history, ascending: each offset with its chain."""
    yield candidate.start, candidate.start_chain
    for batch in batches_of(candidate):
        yield batch.end_offset, batch.chain


def held(candidate: Candidate, places: set[tuple[Offset, bytes]]) -> set[tuple[Offset, bytes]]:
    """Returns the places that are in the candidate's history."""
    return {place for place in places_of(candidate) if place in places}


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
