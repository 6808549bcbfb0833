"""Opens a controller's data directory: reads its files, and checks them against each other, before the node sends any message.

A node needs `quorum-state`, the log's shape and the voter set in order to vote, so these are read here. The image may be large,
so a job loads the image later, while the node already votes and replicates. Example: node 1 starts with a snapshot at 100 and a
log [80, 140).
    1. `open_directory` reads the identity, the bootstrap checkpoint, the vote, the metadata of the snapshot, and the log;
    2. the log's chain at 100 must be the chain of the snapshot: otherwise the start fails with CorruptLog;
    3. the node starts, votes and fetches from 140; `Opened.load` is the job that loads the image at 100 meanwhile.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from metadata_log.disk.ballast import Ballast
from metadata_log.disk.failures import is_full
from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import Voters
from metadata_log.store.archive import Archive
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
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
    """The voter set at the formatting of the cluster; never changes."""
    has_ballast: bool
    """True if the disk had room for the ballast (`metadata_log.disk.ballast`)."""
    load: LoadSnapshotJob | None
    """The job that loads the newest snapshot, before the first apply. None: the image starts empty at offset 0."""
    part: Download | None = None
    """A snapshot download that the last process did not finish."""
    disk_trust: DiskTrust = FULL
    """The trust in the node's disk, less than FULL if the log has lost its durable end."""


def open_directory(
    directory: Directory, identity: Identity, config: NodeConfig, new_directory_id: NewDirectoryId | None = None
) -> Opened:
    """Reads the directory of a formatted controller.

    If the log has lost its durable end, it is opened without the end, and `disk_trust` is reduced: the node does not vote until
    it has the end again. If the vote is lost, `new_directory_id` gives a new id (see `lost_vote`), and `identity` in the result
    has the new id. A tool that must not change the directory gives no `new_directory_id`, and gets CorruptLog in both cases.

    Raises:
        UnfinishedRecovery: an operator's recovery of the directory is not finished; the text names the command that finishes it.
        CorruptLog: the data cannot be trusted; the text names the file and the remedy.
        OSError: the disk cannot read a necessary file. The next start may be able to.
    """
    # The removal of a finished plan may become durable only by `_write_again` below, but before the node sends a message.
    refuse_unfinished(directory)
    metadata = directory.subdirectory(LOG_DIRECTORY)
    snapshotter = Snapshotter(metadata, config.marks, config.retention)
    bootstrap = read_origin(directory, identity, snapshotter.store)
    genesis_chain = genesis(identity.cluster_id, bootstrap.voters)
    start = read_start(metadata)
    load = _newest_load(snapshotter, start)
    election, forgotten = _election(directory, is_new=_is_new(metadata))
    _write_again(directory, metadata, election, start)
    known = bootstrap if load is None else load.store.read_meta(load.end)
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
            log.forget_loss()  # the replica with the new id has promised nothing
    disk_trust = FULL if log.lost is None else DiskTrust(lost=Lost(log.lost.end, election.epoch))
    found = snapshotter.store.resume_part(log.shape.end)
    part = None if found is None else Download(*found)
    room = Ballast(directory).take()
    return Opened(
        directory, identity, election, log, history, snapshotter, bootstrap.voters, room, load, part, disk_trust
    )


def _newest_load(snapshotter: Snapshotter, start: LogStart | None) -> LoadSnapshotJob | None:
    """The job that loads the newest whole snapshot. Newer snapshots are damaged, and are logged."""
    load = snapshotter.newest_load_job(start.start.offset if start else 0)
    for info in snapshotter.store.list():
        if load is None or info.end > load.end:
            where = f"{snapshotter.store.directory.path_text}/{snapshot_name(info.end)}"
            logger.error("%s is damaged: this node starts from an older snapshot, or from the log", where)
    return load


def _may_lose(known: SnapshotMeta, node_id: NodeId, left: Sequence[tuple[Offset, QuorumRecord]]) -> bool:
    """True if the node may start without the lost end of its log, because other voters may have the end.

    A lone voter cannot get the end from another voter, so an operator must decide first.
    """
    voters = _history(known, left).latest
    return len(voters) != 1 or voters.key_of(node_id) is None


def _never(_: Sequence[tuple[Offset, QuorumRecord]]) -> bool:
    """Accepts no loss: for a tool that must not change the directory."""
    return False


def _open_log(
    metadata: Directory, config: LogConfig, genesis_chain: bytes, newest: SnapshotMeta | None, may_lose: MayLose
) -> Log:
    """Opens the log, and checks its history: it continues the `newest` snapshot, or begins with the cluster.

    Raises:
        CorruptLog: the log has another history, or a gap after the snapshot.
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
    """Reads the bootstrap checkpoint: the voter set at the formatting of the cluster, where the history begins.

    Raises:
        CorruptLog: the checkpoint is missing, or belongs to another cluster.
    """
    metadata = store.directory
    bootstrap = store.bootstrap()
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
    """True if no log has ever been in the directory: neither segments nor the notes beside them are left.

    Counter-example, if a directory with notes but without segments counted as new:
        1. node 1 votes for 2 in epoch 5; then its segments and its vote are deleted, but the notes are left;
        2. node 1 would start with an unused vote, fetch a record from the leader, and be fully trusted again;
        3. node 1 could vote for 3 in epoch 5: a second vote.
    """
    return not any(map(is_of_a_log, metadata.names()))


def is_of_a_log(name: str) -> bool:
    """True if a file of this name in `@metadata` shows that a node has run in the directory."""
    snapshot = parse_name(name)
    if snapshot is not None:
        return snapshot[0] != BOOTSTRAP_END
    return base_offset_of(name) is not None or name in (FLUSHED_NAME, START_NAME, LOST_NAME)


def _election(directory: Directory, *, is_new: bool) -> tuple[ElectionState | None, str]:
    """Reads epoch and vote; returns None and the reason if the vote is lost.

    A new directory gets its first state before its log. From then on a missing file is a lost vote, even with an empty log: the
    node may have voted in the first election.
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
    """Writes the vote and the log's start again, because only the page cache may have the files just read.

    A failed flush of a directory leaves the new file name in the page cache, marked clean; a later flush succeeds without writing
    the name. Counter-example without the second write:
        1. node 1 saves its vote for 2; the flush of the directory fails, and the process stops;
        2. node 1 restarts and reads the vote from the page cache; candidate 2 asks again, and node 1 says yes without a write;
        3. the power fails, the vote is lost, and node 1 could vote for 3 in the same epoch.
    The note of the log's start needs the same care, because without the note no segment counts. The two writes also make both
    directories durable, with the names of all snapshots and segments.
    """
    if election is not None:
        _with_room(directory, metadata, lambda: election_file.save(directory, election))
    if start is not None:
        _with_room(directory, metadata, lambda: write_start(metadata, start))


def _with_room(directory: Directory, metadata: Directory, write: Callable[[], None]) -> None:
    """Runs `write`. On a full disk, archived segments and then the ballast make room.

    A killed start may have left the directory without a ballast.
    """
    while True:
        try:
            return write()
        except OSError as e:
            if not is_full(e) or not (Archive(metadata).drop_oldest() or Ballast(directory).release()):
                raise


def _check_origin(metadata: Directory, what: str, expected: bytes, found: bytes | None) -> None:
    """Checks that the history begins with this cluster's format. A log copied from another cluster is intact, but foreign.

    With a foreign log the node would send epochs that this cluster never had, and depose its leader.
    """
    if found != expected:
        raise CorruptLog(
            f"{metadata.path_text}: {what} is of another cluster than meta.properties: put the directory's own files back, or "
            "give this node a new directory and let it fetch from the others"
        )


def _history(known: SnapshotMeta, records: Sequence[tuple[Offset, QuorumRecord]]) -> VoterHistory:
    """The voter sets: of the newest snapshot, or of the bootstrap checkpoint, and of the log above."""
    entries = ((offset, record) for offset, record in records if isinstance(record, Voters))
    return VoterHistory.from_snapshot(known.voters, known.end.offset, entries)


def _stand_on_snapshot(log: Log, meta: SnapshotMeta) -> None:
    """Lets the log start anew at the newest snapshot (`meta`), if the snapshot ends beyond the log's end.

    A crash between the rename of a download and the reset of the log leaves such a directory behind.

    Raises:
        CorruptLog: the log and the snapshot have different chains at the snapshot's end.
    """
    end, shape = meta.end, log.shape
    is_within = shape.start.offset <= end.offset <= shape.end and not log.is_within_damage(end.offset)
    # With another epoch at this offset, the leader has replaced the log by the snapshot. With the same epoch, both must be equal.
    if end.offset > shape.end or (is_within and shape.epoch_below(end.offset) != end.epoch):
        log.reset_to(end, meta.chain, meta.timestamp_ms)
    elif is_within and log.chain_at(end.offset) != meta.chain:
        raise CorruptLog(
            f"{log} and the snapshot {snapshot_name(end)} are of different histories: at offset {end.offset} the snapshot's "
            f"chain is {meta.chain.hex()[:16]}, the log's is not; restore both from the same copy, or give this "
            "node a new directory and let it fetch from the others"
        )
    log.note_snapshot(end)
