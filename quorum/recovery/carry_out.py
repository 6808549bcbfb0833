"""What is left of a cluster that has lost its majority for good is made a quorum of one, as planned.

The quorum cannot help itself: even who votes is changed by a majority of the voters (KIP-853).

*A new generation.* The dead may not be dead. If their disks are found again, an old majority would be a second brain, so every
request carries the generation and those of another one are refused. Two survivors that are recovered apart get different ones
(`plan`). The order of the writes:

    0. recovery-plan                       from here on this node does not start, and whoever goes on does exactly the rest
    1. meta.properties, the generation     nobody else in the world speaks to this node any more, nor it to them
    2. quorum-state, an epoch far ahead    higher than any that the lost nodes can have come to (R4: epoch before log)
    3. the missing records, if any, then the voter set: this node alone
    4. recovery-plan is gone

Each step can be done again, and after a crash all of them are, in the same order: the log is cut back to where the records begin
that another directory gives, whatever had come of them. So it ends with the same bytes as if nothing had happened.
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
from metadata_log.store.log_notes import Flushed, FlushedNote, write_lost
from metadata_log.store.recovery import DAMAGED_SUFFIX
from metadata_log.store.segment import base_offset_of, segment_names
from quorum.core.protocol.effects import ElectionState
from quorum.recovery.plan import Plan, format_a_new_one
from quorum.recovery.remains import place_of
from quorum.recovery.survey import Candidate, CannotRecover, batches_of
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore, genesis

CHUNK_BYTES: Final = 1 << 20


def carry_out(plan: Plan) -> Offset:
    """Makes the survivor a quorum of one, in the order that the file's head tells. Returns the new end of its log.

    Raises:
        CannotRecover: its log is not what was surveyed. What the opening has cut is noted as lost, and kept aside.
        LogFormatError: what is to be taken over is not what was surveyed.
        OSError, FlushFailed: the disk's. Once the plan is there, do it again, when the disk is in order.
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
        # An epoch opens with who leads it (the audit looks), and with this one the voter set changes. One batch: both or none.
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
    """The survivor's log, with the last look before the first write."""
    survivor, steps = plan.survivor, plan.steps
    assert survivor.first_voters is not None, "planned without a bootstrap checkpoint"
    chain = genesis(survivor.identity.cluster_id, survivor.first_voters)
    if survivor.proven is not None:
        _note_proven(store.directory, survivor.proven, survivor.durable)
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


def _note_proven(metadata: Directory, proven: Flushed, durable: Flushed) -> None:
    """Notes how far the log goes on from the survivor's snapshot, for the opening. With an older note it would take the damage
    below for a torn tail, and cut off all behind it; with one beyond a second damage, it would take both for one.

    What was `durable` beyond that, the opening takes for a torn tail, and cuts. So first it is kept aside, and noted as lost.
    Without that: killed before the plan is there, this node would start as one that had never promised any of it, and vote.
    """
    note = FlushedNote(metadata)
    try:
        if note.read() != proven:
            if durable.end > proven.end:
                _keep_aside(metadata, proven.end)
                write_lost(metadata, durable)
            note.write(*proven)
            note.flush()
    finally:
        note.close()


def _keep_aside(metadata: Directory, end: Offset) -> None:
    """The file that is cut at `end`. Whole ones behind that the opening keeps by itself, where something is noted as lost."""
    names = [each for each in segment_names(metadata) if (base_offset_of(each) or 0) <= end]
    for name in names[-1:]:
        copy_file(metadata, name, name + DAMAGED_SUFFIX)


def _check_as_planned(log: Log, plan: Plan) -> None:
    survivor, steps = plan.survivor, plan.steps
    if plan.is_resumed and log.shape.last_epoch > steps.epoch:
        raise CannotRecover(
            f"{survivor.path} has been in use since its recovery was begun, and holds what came of that"
        )
    lowest = 0 if plan.own_snapshot is None else plan.own_snapshot.end.offset
    if steps.snapshot is not None or lowest == steps.base > 0:
        return  # all of its log goes
    if any(lowest <= damaged.start < steps.base and not log.read_again(damaged) for damaged in log.damage):
        raise CannotRecover(f"{survivor.path} has damage inside its log: {log.damage[0]}")
    try:
        fits = log.chain_at(steps.base) == steps.base_chain
    except LogFormatError as e:
        raise CannotRecover(str(e)) from e
    if not plan.is_resumed and not steps.accepts_loss:
        fits = fits and log.end == survivor.log_end
    if not fits:
        raise CannotRecover(
            f"{survivor.path}: its log ends at {log.end}, and is not what was read of it before. Does anything write there?"
        )


def _take_over(log: Log, store: SnapshotStore, plan: Plan) -> None:
    """Gives `log` what the source has: cut back to where they agree, then on from there; or begun anew at a snapshot. Of its own
    damaged log the survivor keeps what goes on at its snapshot."""
    steps, source, own = plan.steps, plan.source, plan.own_snapshot
    if steps.snapshot is not None:
        assert source is not None
        _copy_snapshot(store, source, steps.snapshot)
        meta = store.read_meta(steps.snapshot)
        log.reset_to(steps.snapshot, meta.chain, meta.timestamp_ms)
    elif own is not None:
        log.start_at_snapshot(own.end, own.chain, own.timestamp_ms)
    while damaged := next((each for each in log.damage if each.start < steps.base), None):
        log.repair(damaged, log.read_again(damaged))  # its bytes are there, and are proven by now
    log.truncate(steps.base)
    for batch in () if source is None else batches_of(source):
        if steps.base <= batch.base_offset and batch.end_offset <= steps.end.offset:
            log.append_batches([batch])
    if (log.end, log.shape.chain) != (steps.end.offset, steps.end_chain):
        assert source is not None, f"{log} after {steps}"
        raise CorruptLog(
            f"{source.path} gives its log up to {log.end} only, and gave it up to {steps.end.offset} before: its disk is "
            "failing. Copy what can be read of it, and name the copy"
        )


def _copy_snapshot(store: SnapshotStore, source: Candidate, end: OffsetAndEpoch) -> None:
    theirs = SnapshotStore(source.directory.subdirectory(LOG_DIRECTORY))
    position, size = 0, 1
    while position < size:
        try:
            size, data = theirs.read_chunk(end, position, CHUNK_BYTES)
        except (SnapshotNotFound, PositionOutOfRange) as e:
            raise CorruptLog(f"{source.path}: {e}; it could be read before") from e
        store.write_part(end, position, data)
        position += len(data)
    store.complete_part(end)


def locked(directories: Sequence[Directory]) -> ExitStack:
    """`with locked(directories):` nobody else runs on any of them. Raises DirectoryInUse, naming the process."""
    stack = ExitStack()
    try:
        for directory in directories:
            directory.lock()
            stack.callback(directory.unlock)
    except BaseException:
        stack.close()
        raise
    return stack
