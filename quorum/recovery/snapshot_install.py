"""Puts a snapshot file onto a stopped node, which then begins at the snapshot's end, as after a download from its leader.

    read_file      reads the file whole: checksums, chain, digest, an image of its records, SHA-256
    judge          decides by a survey of the directory if the file may replace the log there; changes nothing
    carry_out      writes; `confirmation` comes between the two

*The node must gain, and must not forget.* A voter has told its leader what is on its disk. The records that it drops must be
covered by the snapshot: all that was ever durable there ends at or below the snapshot's end, and its last epoch is not later.

    1. Voter 3 was stopped with records below 700 on its disk, all acknowledged. Voters 1 and 2 have a snapshot at 500.
    2. Records 600 to 699 are committed, because 1 and 3 have them; voter 2 has records below 600.
    3. If the snapshot replaced the log of 3, and 1 died, voters 2 and 3 would elect voter 2: the records would be lost.
    4. The file is refused, because 700 > 500. At 700 or above it would be accepted: a committed snapshot at 700 contains whatever
       was committed below 700, so what else the node had there was never committed.

*A crash leaves the old state or the new one.* The steps are those of a download that the leader offers (`LoadSnapshotJob`,
`Log.reset_to`), and each start completes them:

    1. the log is opened: a start would do the same. A controller that never ran gets its first vote state, as at its first start
    2. the file is copied to `.part`, and compared with what was read. After a crash the next start may take it for a download of
       its own that was broken off, and fetch the rest: the bytes are the same everywhere
    3. the copy is verified, flushed and renamed: from now on a start begins with this snapshot
    4. the log begins anew at its end. A start does this step if the log ends below its newest snapshot
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity, read_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import METADATA_VERSION, METADATA_VERSION_MAX
from metadata_log.image.metadata_image import Provenance
from metadata_log.image.replay import Loading
from metadata_log.store.log import LOG_BEGINNING, Log
from metadata_log.store.log_config import LogConfig
from quorum.core.protocol.voters import KRAFT_VERSION
from quorum.recovery.confirmation import Listed
from quorum.recovery.remains import place_of
from quorum.recovery.survey import Candidate, CannotRecover, survey
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, is_of_a_log
from snapshots.format import BOOTSTRAP_END, SnapshotMeta, parse_name, snapshot_name
from snapshots.reader import read_runs, read_snapshot
from snapshots.store import PART_BYTES_MAX, SnapshotStore, genesis

CHUNK_BYTES: Final = 1 << 20


class CannotInstall(Exception):
    """The file was refused, and nothing was changed. The message names the reason and the next step."""


class SnapshotFile(NamedTuple):
    """A snapshot file that was read as a whole."""

    directory: Directory
    meta: SnapshotMeta
    listed: Listed
    record_count: int
    metadata_version: int

    @property
    def path(self) -> str:
        return f"{self.directory.path_text}/{snapshot_name(self.meta.end)}"


class Standing(NamedTuple):
    """The directory before the installation."""

    identity: Identity
    candidate: Candidate | None
    """None: a broker's directory that was never used."""
    is_new: bool
    """True: no node has ever run in the directory."""
    has_it: bool
    """True: the directory has this snapshot. At most the begin of the log at its end is missing."""

    @property
    def end(self) -> Offset:
        return 0 if self.candidate is None else self.candidate.end

    @property
    def epoch(self) -> Epoch:
        return 0 if self.candidate is None else self.candidate.epoch


# --- reading the file ------------------------------------------------------------------------------------------------


def read_file(directory: Directory, name: str) -> SnapshotFile:
    """Reads a snapshot file whole, as a node would, and more: the digest is computed from the records.

    Raises:
        CannotInstall: this is no snapshot of a state, or this release cannot read it.
        LogFormatError: the file is damaged; the text names the place.
        OSError: the disk cannot read the file.
    """
    path = f"{directory.path_text}/{name}"
    parsed = parse_name(name)
    if parsed is None or parsed[1] or parsed[0] == BOOTSTRAP_END:
        raise CannotInstall(
            f"{path} does not have the name of a snapshot, such as {snapshot_name(LOG_BEGINNING._replace(offset=500, epoch=3))}. "
            "Nothing was changed. Give the file the name that the controllers gave it: the name says where its history ends"
        )
    end = parsed[0]
    contents = read_snapshot(directory, end)
    loading = Loading()
    for piece in read_runs(directory, end):
        loading.take(piece)
    image = loading.finish(Provenance(*end, contents.meta.timestamp_ms))
    level = image.features.get(METADATA_VERSION, 0)
    if level > METADATA_VERSION_MAX or contents.meta.kraft_version > KRAFT_VERSION:
        raise CannotInstall(
            f"{path} is of {METADATA_VERSION} {level} and kraft.version {contents.meta.kraft_version}; this release knows up to "
            f"{METADATA_VERSION_MAX} and {KRAFT_VERSION}. Nothing was changed. Install the cluster's release first"
        )
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(directory, name):
        digest.update(chunk)
        size += len(chunk)
    return SnapshotFile(directory, contents.meta, Listed(end, size, digest.digest()), contents.record_count, level)


def _chunks(directory: Directory, name: str) -> Iterator[bytes]:
    file = directory.open(name)
    try:
        size, position = file.size(), 0
        if size > PART_BYTES_MAX:
            raise CannotInstall(
                f"{directory.path_text}/{name} has {size} bytes; the maximum is {PART_BYTES_MAX}. Nothing was changed"
            )
        while position < size:
            chunk = file.read_at(position, min(CHUNK_BYTES, size - position))
            if not chunk:
                break  # the file was cut meanwhile: its hash is another one
            yield chunk
            position += len(chunk)
    finally:
        file.close()


# --- judging ---------------------------------------------------------------------------------------------------------


def judge(directory: Directory, file: SnapshotFile) -> Standing:
    """Decides if `file` may replace the log of this directory, which no process uses. Changes nothing.

    Raises:
        CannotInstall: the file may not, or the directory is not in order.
    """
    path, end = directory.path_text, file.meta.end
    try:
        identity = read_identity(directory)
        if identity is None:
            raise CannotInstall(
                f"{path} is not formatted. Nothing was changed. `quorumctl storage format --from HOST:PORT` makes it a node's"
            )
        if not directory.exists(LOG_DIRECTORY) and identity.role == "broker":
            return Standing(identity, None, is_new=True, has_it=False)
        candidate = survey(directory)
    except (CannotRecover, LogFormatError) as e:
        raise CannotInstall(
            f"{e}. No snapshot was installed. Start the node: it repairs its directory, or says what it needs"
        ) from e
    is_new = not any(map(is_of_a_log, directory.subdirectory(LOG_DIRECTORY).names()))
    has_it = candidate.snapshot is not None and (candidate.snapshot.end, candidate.snapshot.chain) == (
        end,
        file.meta.chain,
    )
    _check_sound(candidate, is_new=is_new)
    if not has_it:
        _check_gain(candidate, file.meta)
    return Standing(identity, candidate, is_new, has_it)


def _check_sound(candidate: Candidate, *, is_new: bool) -> None:
    """Refuses a directory whose node has something to settle first: a start does that, or an operator."""
    path, problem = candidate.path, None
    if candidate.unfinished is not None:
        problem = "a recovery was begun there and is not finished: repeat `quorumctl quorum recover` first"
    elif not candidate.is_whole or not candidate.is_startable:
        problem = f"{candidate.damage}. Start the node: it repairs its log from the other nodes, or says what it needs"
    elif candidate.is_controller and candidate.vote_epoch is None and not is_new:
        problem = "its vote is lost. Start the node: it goes on under a new directory id"
    if problem is not None:
        raise CannotInstall(f"{path} is not in order, and was not changed: {problem}")


def _check_gain(candidate: Candidate, meta: SnapshotMeta) -> None:
    path, held = candidate.path, max(candidate.end, candidate.durable.end)
    if held >= meta.end.offset:
        raise CannotInstall(
            f"{path} has records up to offset {held}, and the snapshot ends at {meta.end.offset}: the node would lose what "
            "it has acknowledged. Nothing was changed. Start the node, and it fetches what it lacks; or take one that ends "
            "higher"
        )
    if candidate.epoch > meta.end.epoch:
        raise CannotInstall(
            f"{path} has records of epoch {candidate.epoch}, and the snapshot ends with epoch {meta.end.epoch}: in elections the "
            "node would count for less than it has promised. Nothing was changed. Start the node: its leader knows which of its "
            "records stay; or take a snapshot of a later epoch"
        )


# --- writing ---------------------------------------------------------------------------------------------------------


def carry_out(directory: Directory, file: SnapshotFile, standing: Standing) -> None:
    """Installs `file` in a directory that `judge` has accepted, in the order of the head of this file.

    Raises:
        CannotInstall: the file has changed since it was read. The directory has its old state.
        LogFormatError: the log cannot be opened, or the copy is damaged. The directory has its old state.
        OSError, FlushFailed: the disk failed. The directory has the old state or the new one.
    """
    is_controller = standing.identity.role == "controller"
    if is_controller and standing.is_new and election_file.load(directory) is None:
        election_file.save(directory, election_file.FIRST_STATE)
    store = SnapshotStore(directory.subdirectory(LOG_DIRECTORY))
    log = _opened(store, standing)
    try:
        if not standing.has_it:
            _copy(store, file)
        if log.shape.end < file.meta.end.offset:
            log.reset_to(file.meta.end, file.meta.chain, file.meta.timestamp_ms)
    finally:
        log.close()


def _opened(store: SnapshotStore, standing: Standing) -> Log:
    candidate = standing.candidate
    first_voters = None if candidate is None else candidate.first_voters
    return Log.open(
        store.directory,
        start=LOG_BEGINNING,
        chain=None if first_voters is None else genesis(standing.identity.cluster_id, first_voters),
        config=LogConfig(archive=standing.identity.role == "controller"),
        snapshot=None if candidate is None else place_of(candidate.snapshot),
    )


def _copy(store: SnapshotStore, file: SnapshotFile) -> None:
    end, digest, position = file.meta.end, hashlib.sha256(), 0
    try:
        for chunk in _chunks(file.directory, snapshot_name(end)):
            store.write_part(end, position, chunk)
            digest.update(chunk)
            position += len(chunk)
        if digest.digest() != file.listed.sha256:
            raise CannotInstall(f"{file.path} has changed while it was read. Nothing was installed. Run this again")
        store.complete_part(end, file.meta.chain)
    except (CannotInstall, OSError):
        store.discard_parts()
        raise
