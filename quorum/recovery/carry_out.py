"""Carries out a recovery plan: makes the survivor of a lost majority a quorum of one.

A cluster without a majority cannot help itself: even a change of the voter set needs a majority of the voters (KIP-853).

*A new generation.* The lost nodes may come back, with an old majority, as a second quorum. So every request carries the
generation, and nodes refuse requests of another generation.

    1. Voters 1, 2 and 3: the machines of 2 and 3 burn. The operator recovers controller 1, which gets generation 500,000.
    2. The disks of 2 and 3 turn out to be readable, and somebody starts both. They elect a leader in generation 1.
    3. Brokers of generation 500,000 and controller 1 refuse both. No broker ever mixes records of the two quorums.

The order of the writes:

    0. recovery-plan                       from here on this node does not start, and a repeated command does the rest
    1. meta.properties, the generation     from here on all other nodes and this node refuse each other
    2. quorum-state, an epoch far ahead    above every epoch that the lost nodes can have reached (R4: epoch before log)
    3. the missing records, if any, then the voter set: this node alone
    4. recovery-plan is deleted

Every step can be repeated. After a crash the command repeats all steps in the same order, and first cuts the log back to the
start of the source's records. So a recovery with a crash ends with the same bytes as a recovery without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from metadata_log.disk.copy import copy_file
from metadata_log.disk.files import Directory
from metadata_log.disk.identity import write_identity
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import LeaderChange, Voters
from metadata_log.store.log import LOG_BEGINNING, Log
from metadata_log.store.recovery import DAMAGED_SUFFIX
from metadata_log.store.segment import base_offset_of, segment_names
from quorum.core.protocol.effects import ElectionState
from quorum.recovery.plan import format_a_new_one
from quorum.recovery.plan_values import Plan
from quorum.recovery.point_in_time import newest_kept
from quorum.recovery.remains import place_of
from quorum.recovery.survey import Candidate, CannotRecover, batches_of
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from snapshots.format import snapshot_name
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore, genesis

CHUNK_BYTES: Final = 1 << 20
UNDONE_SUFFIX: Final = ".undone"
"""Suffix of the files that a restore to a point in time keeps aside, followed by the generation that the restore has begun."""


def carry_out(plan: Plan) -> Offset:
    """Makes the survivor a quorum of one, in the order of the file's head. Returns the new end of its log.

    Raises:
        CannotRecover: the survivor's log has changed since the survey. Bytes that the opening has cut are noted as lost, and
            kept in a file with the suffix `.damaged`.
        LogFormatError: the source's log or snapshot has changed since the survey.
        OSError, FlushFailed: the disk failed. If the plan was written, repair the disk and repeat the command.
    """
    directory, steps = plan.survivor.directory, plan.steps
    store = SnapshotStore(directory.subdirectory(LOG_DIRECTORY))
    log = _opened(plan, store)
    try:
        recovery_plan.save(directory, steps)
        write_identity(directory, plan.survivor.identity._replace(generation=steps.generation))
        voter = plan.voter
        election_file.save(
            directory, ElectionState(steps.epoch, ReplicaKey(voter.node_id, voter.directory_id), leader_id=None)
        )
        _take_over(log, store, plan)
        # An epoch begins with its LeaderChange (the audit checks that). One batch: a crash keeps both records or none.
        opening = LeaderChange(voter.node_id, (voter.node_id,), (voter.node_id,))
        log.append([opening, Voters((voter,))], steps.epoch, steps.wall_ms)
        log.flush()
        log.forget_loss()
        end = log.end
    finally:
        log.close()
    recovery_plan.remove(directory)
    return end


def _opened(plan: Plan, store: SnapshotStore) -> Log:
    """Opens the survivor's log, and checks it against the plan before the first write of the plan."""
    survivor, steps = plan.survivor, plan.steps
    assert survivor.first_voters is not None, "planned without a bootstrap checkpoint"
    chain = genesis(survivor.identity.cluster_id, survivor.first_voters)
    try:
        log = Log.open(
            store.directory,
            start=LOG_BEGINNING,
            chain=chain,
            accept_loss=steps.accepts_loss,
            snapshot=place_of(survivor.snapshot),
        )
    except LogFormatError as e:
        raise CannotRecover(f"{e}. {format_a_new_one(survivor.first_voters)}") from e
    try:
        _check_as_planned(log, plan)
    except BaseException:
        log.close()
        raise
    return log


def _check_as_planned(log: Log, plan: Plan) -> None:
    survivor, steps = plan.survivor, plan.steps
    if plan.is_resumed and log.shape.last_epoch > steps.epoch:
        raise CannotRecover(
            f"{survivor.path} has been in use since its recovery was begun, so the recovery cannot be finished: restore the copy "
            "that was made before"
        )
    lowest = 0 if plan.own_snapshot is None else plan.own_snapshot.end.offset
    if steps.snapshot is not None or lowest == steps.base > 0:
        return  # the whole log is dropped
    # Damage at the start of the survivor's history is repaired with its own records: the snapshot's chain proves them.
    if any(lowest <= damaged.start < steps.base and damaged.start != survivor.start for damaged in log.damage):
        raise CannotRecover(
            f"{survivor.path} has damage inside its log: {log.damage[0]}. Nothing was recovered. Run this again"
        )
    try:
        fits = log.chain_at(steps.base) == steps.base_chain
    except LogFormatError as e:
        raise CannotRecover(str(e)) from e
    if not plan.is_resumed and not steps.accepts_loss:
        fits = fits and log.end == survivor.end
    if not fits:
        raise CannotRecover(
            f"{survivor.path}: its log ends at {log.end} now, and has changed since it was read. Nothing was recovered. Does "
            "another process write there?"
        )


def _take_over(log: Log, store: SnapshotStore, plan: Plan) -> None:
    """Gives the survivor's `log` the source's records.

    The log is cut at `base`, and continued with the source's batches. It begins anew at the source's snapshot if the plan names
    one. A survivor that keeps its own snapshot drops the damaged log below that snapshot.
    """
    steps, source, own = plan.steps, plan.source, plan.own_snapshot
    if steps.snapshot is not None:
        assert source is not None
        _copy_snapshot(store, source, steps.snapshot)
        meta = store.read_meta(steps.snapshot)
        log.reset_to(steps.snapshot, meta.chain, meta.timestamp_ms)
    elif own is not None:
        log.start_at_snapshot(own.end, own.chain, own.timestamp_ms)
    for damaged in [each for each in log.damage if each.end <= steps.base]:  # see `_check_as_planned`
        log.repair(
            damaged, [each for each in batches_of(plan.survivor) if damaged.start <= each.base_offset < damaged.end]
        )
    if log.damage:
        _keep_aside(store.directory, steps.base, DAMAGED_SUFFIX)
    if steps.undone_end:
        _keep_undone(log, store, plan)
    log.truncate(steps.base)
    for batch in () if source is None else batches_of(source):
        if steps.base <= batch.base_offset and batch.end_offset <= steps.end.offset:
            log.append_batches([batch])
    if (log.end, log.shape.chain) != (steps.end.offset, steps.end_chain):
        assert source is not None, f"{log} after {steps}"
        raise CorruptLog(
            f"{source.path} gives its log up to {log.end} only, and gave it up to {steps.end.offset} before: its disk is "
            "failing. The recovery is not finished. Copy the readable files, and name the copy"
        )


def _keep_undone(log: Log, store: SnapshotStore, plan: Plan) -> None:
    """Keeps the undone part of a restore aside: copies of the segments that are shortened or deleted, and later snapshots.

    The snapshots go before the log is cut. A log that ends below a snapshot is a log that has lost its end, and a start would put
    the snapshot in its place: the undone records would be back.
    """
    steps = plan.steps
    suffix = f"{UNDONE_SUFFIX}-{steps.generation}"  # a second restore must not take the first one's copies for its own
    _keep_aside(store.directory, steps.base, suffix)
    gone = [info.end for info in store.list() if info.end.offset > steps.end.offset]
    for end in gone:
        store.directory.rename(snapshot_name(end), snapshot_name(end) + suffix)
    if gone:
        store.directory.flush()
        log.forget_snapshot(newest_kept(plan.survivor.directory, steps.end.offset, at_least=log.shape.start.offset))


def _keep_aside(metadata: Directory, base: Offset, suffix: str) -> None:
    """Copies the segments that the truncation to `base` shortens or deletes."""
    names = segment_names(metadata)
    first = sum(1 for each in names[1:] if (base_offset_of(each) or 0) <= base)
    for name in names[first:]:
        copy_file(metadata, name, name + suffix)


def _copy_snapshot(store: SnapshotStore, source: Candidate, end: OffsetAndEpoch) -> None:
    theirs = SnapshotStore(source.directory.subdirectory(LOG_DIRECTORY))
    position, size = 0, 1
    while position < size:
        try:
            size, data = theirs.read_chunk(end, position, CHUNK_BYTES)
        except (SnapshotNotFound, PositionOutOfRange) as e:
            raise CorruptLog(f"{source.path}: {e}; the survey could read it. The recovery is not finished") from e
        store.write_part(end, position, data)
        position += len(data)
    store.complete_part(end)


def locked(directories: Sequence[Directory]) -> ExitStack:
    """Locks all directories for a `with` block. Raises DirectoryInUse if another process has locked a directory."""
    stack = ExitStack()
    try:
        for directory in directories:
            directory.lock()
            stack.callback(directory.unlock)
    except BaseException:
        stack.close()
        raise
    return stack
