"""What is left of a cluster that has lost its majority for good: read, compared, and made a quorum of one.

The quorum cannot help itself: even who votes is changed by a majority of the voters (KIP-853).

*What is read.* Controllers' directories, and brokers'. A broker was only ever given committed records, so what it holds
proves that all of it was committed. A controller's log may end in records that nobody knows the fate of.

*Which log is the best* is Raft's rule for a vote: the highest last epoch, then the longest (5.4.1). It holds everything
that was committed, as far as any of the others does. What was committed beyond it, by nodes that are gone, nobody can tell.

*A new generation.* The dead may not be dead. If their disks are found again, an old majority would be a second brain, so every
request carries the generation and those of another one are refused. The order of the writes makes it safe to be killed at any
point, and to begin again:

    1. meta.properties, generation + 1     from here on nobody else in the world speaks to this node, nor it to them
    2. quorum-state, an epoch far ahead    higher than any that the lost nodes can have come to (R4: epoch before log)
    3. the missing records, if any, then the voter set: this node alone

After 1 or 2 the log's voter set is still the old one: the node cannot win an election, and harms nobody. After 3 it leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.errors import LogFormatError
from metadata_log.files import RealDirectory
from metadata_log.identity import write_identity
from metadata_log.ids import Epoch, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.log import Log
from metadata_log.records import Endpoint, LeaderChange, Voter, Voters
from quorum.cli.surveying import Candidate, CannotRecover, batches_of, places_of
from quorum.core.effects import ElectionState
from quorum.core.votes import EPOCHS_AHEAD_MAX
from quorum.runtime import election_file
from quorum.runtime.node_config import NodeConfig
from quorum.runtime.opening import LOG_DIRECTORY, open_directory
from snapshots.store import SnapshotStore

EPOCH_JUMP: Final = EPOCHS_AHEAD_MAX
"""As far as any node lets itself be taken at once: three days of elections that all fail. The lost nodes cannot have come
further unless they were alone for that long, and 2,000 recoveries fit below 2^31."""
EPOCH_MAX: Final = (1 << 31) - 1
CHUNK_BYTES: Final = 1 << 20


class Plan(NamedTuple):
    """What is to be done. `source` has what the survivor lacks; None where it lacks nothing."""

    candidates: tuple[Candidate, ...]
    survivor: Candidate
    source: Candidate | None
    agreed_end: Offset | None
    """Up to here survivor and source have the same history; None: the survivor begins anew at the source's snapshot."""
    generation: int
    epoch: Epoch
    voter: Voter

    @property
    def end(self) -> Offset:
        """What is kept: all below."""
        return (self.source or self.survivor).end

    @property
    def committed_end(self) -> Offset:
        """All below is known to have been committed."""
        return max(candidate.committed_end for candidate in self.candidates)


# --- planning --------------------------------------------------------------------------------------------------------


def plan(candidates: Sequence[Candidate], endpoint: Endpoint | None) -> Plan:
    """Which directory becomes the quorum, and what it has to be given first. `endpoint`: where it will be reached.

    Raises:
        CannotRecover: the directories are not of one cluster and generation, contradict each other, or none can go on.
    """
    _check_belong_together(candidates)
    controllers = [each for each in candidates if each.is_controller]
    whole = [each for each in controllers if not each.is_damaged]
    if not whole:
        damaged = "; ".join(f"{each.path}: {each.damage}" for each in controllers)
        raise CannotRecover(
            f"no undamaged controller's directory ({damaged or 'none was given'}). Format a new one, with the initial "
            "controllers that the cluster was formatted with, and name it too: it takes over what the others still hold"
        )
    survivor = max(whole, key=lambda each: each.rank)
    best = max(candidates, key=lambda each: each.rank)
    source = best if best.rank > survivor.rank else None
    result = source or survivor
    _check_committed_is_kept(candidates, result)
    agreed_end = None if source is None else _agreed_end(survivor, source)
    epoch = max(each.epoch for each in candidates)
    epoch = max(epoch, *(each.vote_epoch or 0 for each in candidates)) + EPOCH_JUMP
    if epoch > EPOCH_MAX - EPOCH_JUMP:
        raise CannotRecover(f"the epoch would be {epoch}, and there is none after {EPOCH_MAX}")
    generation = 1 + max(each.identity.generation for each in candidates)
    identity = survivor.identity
    endpoints = (endpoint,) if endpoint is not None else _recorded_endpoints(result, survivor)
    if not endpoints:
        raise CannotRecover(
            f"controller {identity.node_id} was no voter, so nothing says where it is reached: add --endpoint HOST:PORT"
        )
    voter = Voter(identity.node_id, identity.directory_id, endpoints)
    return Plan(tuple(candidates), survivor, source, agreed_end, generation, epoch, voter)


def _check_belong_together(candidates: Sequence[Candidate]) -> None:
    first = candidates[0]
    for each in candidates[1:]:
        if each.identity.cluster_id != first.identity.cluster_id:
            raise CannotRecover(
                f"{each.path} is of cluster {each.identity.cluster_id}, {first.path} of {first.identity.cluster_id}"
            )
    newest = max(each.identity.generation for each in candidates)
    for each in candidates:
        if each.identity.generation < newest and each.end > 0:
            raise CannotRecover(
                f"{each.path} is of generation {each.identity.generation}, and another one of {newest}: it was left behind by "
                "an earlier recovery, and what it holds does not count any more. Leave it out"
            )


def _check_committed_is_kept(candidates: Sequence[Candidate], result: Candidate) -> None:
    """What brokers hold was committed: a log that lacks any of it, or has something else there, is no log of this cluster."""
    for each in candidates:
        if each.is_controller or each.end == 0 or each is result:
            continue
        if each.end < result.start:
            continue  # `result` begins later, at a snapshot: nothing is left there to compare with
        if each.end > result.end or _chain_at(result, each.end) != each.chain:
            raise CannotRecover(
                f"{each.path} holds committed records up to {each.end} that are not those of {result.path}, although its log is "
                "the better one by epoch and length: one of the two is not of this history. Leave it out, or ask why"
            )


def _chain_at(candidate: Candidate, offset: Offset) -> bytes | None:
    return next((chain for at, chain in places_of(candidate) if at == offset), None)


def _agreed_end(survivor: Candidate, source: Candidate) -> Offset | None:
    """The last place at which both have the same history; None: the source begins beyond the survivor's end.

    Raises:
        CannotRecover: there is none, or no snapshot to begin at.
    """
    if survivor.end == 0 and survivor.start_chain == b"" and source.start == 0:
        return 0  # just formatted: opening it compares the beginnings
    agreed: Offset | None = None
    ours = places_of(survivor)
    mine = next(ours, None)
    for place in places_of(source):
        while mine is not None and mine[0] < place[0]:
            mine = next(ours, None)
        if mine == place:
            agreed = place[0]
    if agreed is None and source.start <= survivor.end:
        raise CannotRecover(f"{survivor.path} and {source.path} have no history in common: leave one of them out")
    if agreed is None and (source.snapshot is None or source.snapshot.end.offset < source.start):
        raise CannotRecover(f"{source.path} begins at {source.start}, and no whole snapshot there reaches that far")
    return agreed


def _recorded_endpoints(result: Candidate, survivor: Candidate) -> tuple[Endpoint, ...]:
    """What the newest voter set says of the survivor's node id."""
    from metadata_log.codec import decode_batch

    metadata = RealDirectory(survivor.path).subdirectory(LOG_DIRECTORY)
    bootstrap = SnapshotStore(metadata).bootstrap()
    voters = None if bootstrap is None else bootstrap.voters
    if result.snapshot is not None:
        voters = result.snapshot.voters
    for batch in batches_of(result):
        if batch.is_control:
            for record in decode_batch(batch):
                voters = record if isinstance(record, Voters) else voters
    known = () if voters is None else voters.voters
    return next((each.endpoints for each in known if each.node_id == survivor.identity.node_id), ())


# --- doing it --------------------------------------------------------------------------------------------------------


def carry_out(plan: Plan, wall_ms: int) -> Offset:
    """Makes the survivor a quorum of one, in the order that the file's head tells. Returns the new end of its log.

    Raises:
        CannotRecover: its directory cannot be opened after all; nothing was changed.
        OSError, FlushFailed: the disk's. Do it again: what was written so far harms nobody.
    """
    directory = RealDirectory(plan.survivor.path)
    election = ElectionState(plan.epoch, ReplicaKey(plan.voter.node_id, plan.voter.directory_id), None)
    if plan.survivor.vote_epoch is None and plan.survivor.end > 0:
        # It has forgotten its vote, and would not be opened. So far above, it cannot have given one.
        election_file.save(directory, election)
    try:
        opened = open_directory(directory, plan.survivor.identity, NodeConfig())
    except LogFormatError as e:
        raise CannotRecover(str(e)) from e
    log = opened.log
    try:
        _check_as_planned(log, plan)
        write_identity(directory, plan.survivor.identity._replace(generation=plan.generation))
        election_file.save(directory, election)
        if plan.source is not None:
            _take_over(log, opened.snapshotter.store, plan, plan.source)
        # An epoch opens with who leads it (the audit looks), and with this one the voter set changes. One batch: both or none.
        node_id = plan.voter.node_id
        opening = LeaderChange(node_id, (node_id,), (node_id,))
        log.append([opening, Voters((plan.voter,))], plan.epoch, wall_ms)
        log.flush()
        return log.end
    finally:
        log.close()


def _check_as_planned(log: Log, plan: Plan) -> None:
    """The last look before the first write."""
    agreed_end = plan.agreed_end
    fits = agreed_end is None or log.is_boundary(agreed_end)
    source = plan.source
    if fits and source is not None and agreed_end is not None and agreed_end == source.start:
        fits = log.chain_at(agreed_end) == source.start_chain
    if log.end != plan.survivor.end or not fits:
        raise CannotRecover(
            f"{plan.survivor.path}: its log ends at {log.end} and is not that of {source.path if source else 'before'}; "
            "was it formatted with other initial controllers than the cluster?"
        )


def _take_over(log: Log, store: SnapshotStore, plan: Plan, source: Candidate) -> None:
    """Gives `log` what `source` has: cut back to where they agree, then on from there; or begun anew at a snapshot."""
    agreed_end = plan.agreed_end if plan.agreed_end is not None else _copy_snapshot(log, store, source)
    log.truncate(agreed_end)
    for batch in batches_of(source):
        if batch.base_offset >= agreed_end:
            log.append_batches([batch])
    log.flush()


def _copy_snapshot(log: Log, store: SnapshotStore, source: Candidate) -> Offset:
    meta = source.snapshot
    assert meta is not None, "planned without a place to begin"
    theirs = SnapshotStore(RealDirectory(source.path).subdirectory(LOG_DIRECTORY))
    position, size = 0, 1
    while position < size:
        size, data = theirs.read_chunk(meta.end, position, CHUNK_BYTES)
        store.write_part(meta.end, position, data)
        position += len(data)
    store.complete_part(meta.end)
    log.reset_to(OffsetAndEpoch(*meta.end), meta.chain, meta.timestamp_ms)
    return meta.end.offset


def locked(paths: Sequence[Path]) -> ExitStack:
    """`with locked(paths):` nobody else runs on any of them. Raises DirectoryInUse, naming the process."""
    stack = ExitStack()
    try:
        for path in paths:
            directory = RealDirectory(path)
            directory.lock()
            stack.callback(directory.unlock)
    except BaseException:
        stack.close()
        raise
    return stack
