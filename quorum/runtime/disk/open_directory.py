"""Opening a controller's data directory: what is found there, checked against each other, before anything speaks.

What a node needs in order to vote (quorum-state, the log's shape, the voter set) is read here. The image is not: it may
be large, and a node that is still loading it can already vote and replicate.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from metadata_log.disk.bad_sectors import read_twice
from metadata_log.disk.ballast import Ballast
from metadata_log.disk.files import Directory, is_full
from metadata_log.disk.identity import Identity
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import Voters
from metadata_log.store.archive import Archive
from metadata_log.store.log import Log, LogConfig
from metadata_log.store.log_history import QuorumRecord
from metadata_log.store.log_notes import FLUSHED_NAME, LOST_NAME, START_NAME, Flushed, LogStart, read_start, write_start
from metadata_log.store.log_opening import MayLose
from metadata_log.store.segment import base_offset_of
from quorum.core.protocol.disk_trust import FULL, DiskTrust, Lost
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.voters import VoterHistory
from quorum.runtime.disk import election_file
from quorum.runtime.disk.lost_vote import NewDirectoryId, begin_as_another
from quorum.runtime.disk.recovery_plan import refuse_unfinished
from quorum.runtime.image.snapshotter import Snapshotter
from quorum.runtime.protocol.jobs import LoadSnapshotJob
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import BOOTSTRAP_END, SnapshotMeta, parse_name, snapshot_name
from snapshots.store import SnapshotStore, genesis

LOG_DIRECTORY = "@metadata"

logger = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A data directory, ready for a `Node`."""

    directory: Directory
    identity: Identity
    election: ElectionState
    log: Log
    voters: VoterHistory
    snapshotter: Snapshotter
    bootstrap: Voters
    """The voter set that the cluster was formatted with; never changes."""
    has_ballast: bool
    """Whether there was room for it (`metadata_log.disk.ballast`)."""
    load: LoadSnapshotJob | None
    """To be run before the first apply: the newest snapshot. None: the image starts empty at offset 0."""
    part: Download | None = None
    """A download that the last process did not finish."""
    disk_trust: DiskTrust = FULL
    """What is left of the node's standing, given what its log has lost."""


def open_directory(
    directory: Directory, identity: Identity, config: NodeConfig, new_directory_id: NewDirectoryId | None = None
) -> Opened:
    """Reads the directory of a formatted controller.

    A log that has lost its durable end is opened without it, and `standing` says so: the node may not count before it is
    there again. One that has forgotten its vote goes on under the id that `new_directory_id` gives (see `lost_vote`); then
    `identity` in the result is another than the one given. A tool that only looks gives no source of ids, and is told the
    truth instead.

    Raises:
        UnfinishedRecovery: if an operator has begun to make something of it; the text names the command that finishes that.
        CorruptLog: if what is there cannot be trusted; the text names the file and what to do.
        OSError: the disk cannot read, asked twice, what cannot be done without. It may the next time.
    """
    # (Its removal may be durable only since `_write_again` below, which is before anybody speaks.)
    refuse_unfinished(directory)
    metadata = directory.subdirectory(LOG_DIRECTORY)
    snapshotter = Snapshotter(metadata, config.marks, config.retention)
    bootstrap = read_origin(directory, identity, snapshotter.store)
    genesis_chain = genesis(identity.cluster_id, bootstrap.voters)
    start = read_start(metadata)
    load = _newest_load(snapshotter, start)
    election, forgotten = _election(directory, is_new=_is_new(metadata))
    _write_again(directory, metadata, election, start)
    known = bootstrap if load is None else read_twice(partial(load.store.read_meta, load.end))
    may_lose = partial(_may_lose, known, identity.node_id) if new_directory_id is not None else _never
    log = _open_log(metadata, config.log, genesis_chain, None if load is None else known, may_lose)
    history = _history(known, log.control_records())
    if election is None:
        identity, election = begin_as_another(
            directory,
            identity,
            why=forgotten,
            last_epoch=log.shape.last_epoch,
            voters=history.latest,
            new_directory_id=new_directory_id,
        )
        if log.lost is not None:
            log.forget_loss()  # as this replica it has promised nothing
    disk_trust = FULL if log.lost is None else DiskTrust(lost=Lost(log.lost.end, election.epoch))
    found = snapshotter.store.resume_part(log.shape.end)
    part = None if found is None else Download(*found)
    room = Ballast(directory).take()
    return Opened(
        directory, identity, election, log, history, snapshotter, bootstrap.voters, room, load, part, disk_trust
    )


def _newest_load(snapshotter: Snapshotter, start: LogStart | None) -> LoadSnapshotJob | None:
    """The newest snapshot that is whole; what is newer is damaged, which is said."""
    load = snapshotter.newest_load_job(start.start.offset if start else 0)
    for info in snapshotter.store.list():
        if load is None or info.end > load.end:
            where = f"{snapshotter.store.directory.path_text}/{snapshot_name(info.end)}"
            logger.error("%s is damaged: this node starts from what is older", where)
    return load


def _may_lose(known: SnapshotMeta, node_id: NodeId, left: Sequence[tuple[Offset, QuorumRecord]]) -> bool:
    """A lone voter that goes on without what it had promised has nobody to get it back from: a person has to look first."""
    voters = _history(known, left).latest
    return len(voters) != 1 or voters.key_of(node_id) is None


def _never(_: Sequence[tuple[Offset, QuorumRecord]]) -> bool:
    """A tool that only looks loses nothing."""
    return False


def _open_log(
    metadata: Directory, config: LogConfig, genesis_chain: bytes, newest: SnapshotMeta | None, may_lose: MayLose
) -> Log:
    """The log, of this cluster's history, which goes on from the `newest` snapshot or from the beginning.

    Raises:
        CorruptLog: it does not, or not without a gap.
    """
    log = Log.open(
        metadata,
        start=OffsetAndEpoch(0, 0),
        chain=genesis_chain,
        config=config,
        accept_loss=may_lose,
        snapshot=None if newest is None else Flushed(newest.end.offset, newest.chain),
    )
    if log.shape.start.offset == 0:
        _check_origin(metadata, "the log", genesis_chain, log.chain_at(0))
    if newest is not None:
        _stand_on_snapshot(log, newest)
    start = log.shape.start.offset
    if start > 0 and (newest is None or newest.end.offset < start):
        raise CorruptLog(
            f"{metadata.path_text}: the log starts at {start}, and no whole snapshot reaches that far; "
            "restore the missing checkpoint, or give this node a new directory and let it fetch from the others"
        )
    return log


def read_origin(directory: Directory, identity: Identity, store: SnapshotStore) -> SnapshotMeta:
    """The bootstrap checkpoint: the voters that the cluster was formatted with, from whom its history begins.

    Raises:
        CorruptLog: it is gone, or another cluster's.
    """
    metadata = store.directory
    bootstrap = read_twice(store.bootstrap)
    if bootstrap is None:
        if directory.exists(election_file.FILE_NAME):
            raise CorruptLog(
                f"{metadata.path_text}: the bootstrap checkpoint is gone, and this node has voted here: do not format "
                "it. If only the checkpoint is missing, copy that file from another controller: it is the same on all of "
                "them. If more is missing, give the node a new directory and let it fetch from the others; never an old copy"
            )
        raise CorruptLog(
            f"{metadata.path_text}: no bootstrap checkpoint; format the directory (quorumctl storage format)"
        )
    chain = genesis(identity.cluster_id, bootstrap.voters)
    _check_origin(metadata, "the bootstrap checkpoint", identity.genesis_chain or chain, chain)
    return bootstrap


def _is_new(metadata: Directory) -> bool:
    """Whether no log has ever been here: nothing is left of one, neither segments nor what is kept beside them.

    Where only the segments and the vote are gone this node knows that it has lost something, but not since which epoch; any
    record of the leader's would give it back its full standing, with a vote to give that it has given already.
    """
    return not any(map(is_of_a_log, metadata.names()))


def is_of_a_log(name: str) -> bool:
    """Whether such a file in `@metadata` says that a node has run there."""
    snapshot = parse_name(name)
    if snapshot is not None:
        return snapshot[0] != BOOTSTRAP_END
    return base_offset_of(name) is not None or name in (FLUSHED_NAME, START_NAME, LOST_NAME)


def _election(directory: Directory, *, is_new: bool) -> tuple[ElectionState | None, str]:
    """What this node must not forget; None and why, if it has.

    A new directory is given its first state before it is given a log. From then on a missing file is a lost one, also where
    the log is still empty: the node may have voted in the very first election.
    """
    where = f"{directory.path_text}/{election_file.FILE_NAME}"
    try:
        election = election_file.load(directory)
    except election_file.ForgottenVote as e:
        return None, str(e)
    if election is None and is_new:
        election_file.save(directory, election_file.FIRST_STATE)
        return election_file.FIRST_STATE, ""
    return election, "" if election is not None else f"{where} is missing although this directory was in use"


def _write_again(
    directory: Directory, metadata: Directory, election: ElectionState | None, start: LogStart | None
) -> None:
    """Makes durable what was read, which only the page cache may have.

    The flush of a directory that fails leaves the new name there, marked clean; a later flush succeeds and proves nothing. Asked
    again by the candidate that has its vote, the node would save nothing and say yes; after a power cut it would vote again.
    And a log that has begun may, on the disk, be one that is still beginning, in which no segment counts. With these two their
    directories are written, and so the names of snapshots and segments.
    """
    if election is not None:
        _with_room(directory, metadata, lambda: election_file.save(directory, election))
    if start is not None:
        _with_room(directory, metadata, lambda: write_start(metadata, start))


def _with_room(directory: Directory, metadata: Directory, write: Callable[[], None]) -> None:
    """`write`, with the room of the archive and the ballast if need be. (A start that was killed may have left no ballast.)"""
    while True:
        try:
            return write()
        except OSError as e:
            if not is_full(e) or not (Archive(metadata).drop_oldest() or Ballast(directory).release()):
                raise


def _check_origin(metadata: Directory, what: str, expected: bytes, found: bytes | None) -> None:
    """A log that was copied here from another cluster is a stranger's, although every byte of it is intact.

    With it the node would speak of epochs that this cluster never had, and depose its leader.
    """
    if found != expected:
        raise CorruptLog(
            f"{metadata.path_text}: {what} is of another cluster than meta.properties: put the directory's own files back, or "
            "give this node a new directory and let it fetch from the others"
        )


def _history(known: SnapshotMeta, records: Sequence[tuple[Offset, QuorumRecord]]) -> VoterHistory:
    """Who votes: what the newest snapshot says, or the bootstrap one, and what the log says above it."""
    entries = ((offset, record) for offset, record in records if isinstance(record, Voters))
    return VoterHistory.from_snapshot(known.voters, known.end.offset, entries)


def _stand_on_snapshot(log: Log, meta: SnapshotMeta) -> None:
    """The log starts over at the newest snapshot, which `meta` is of, if that lies beyond its end.

    That is what a crash between the download's rename and the log's reset leaves behind.
    """
    end, shape = meta.end, log.shape
    is_within = shape.start.offset <= end.offset <= shape.end and not log.is_within_damage(end.offset)
    # Of another epoch there, the log is what the leader has replaced by this snapshot; of the same, it must be the same.
    if end.offset > shape.end or (is_within and shape.epoch_below(end.offset) != end.epoch):
        log.reset_to(end, meta.chain, meta.timestamp_ms)
    elif is_within and log.chain_at(end.offset) != meta.chain:
        raise CorruptLog(
            f"{log} and the snapshot {snapshot_name(end)} are of different histories: at offset {end.offset} the snapshot's "
            f"chain is {meta.chain.hex()[:16]}, the log's is not; put back what belongs together from a copy, or give this "
            "node a new directory and let it fetch from the others"
        )
    log.note_snapshot(end)
