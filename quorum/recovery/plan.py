"""Plans a recovery: chooses the survivor, the only voter of the new quorum, and the records that the survivor lacks.

The plan follows from the surveys alone. Planning changes nothing.

*The best log* is the log that would win a vote in Raft: the highest last epoch, then the longest log (section 5.4.1). The best
log has every committed record that any of the directories has. Lost nodes may have committed more; no directory can show that.

*The survivor* is the controller with the best log among those that have all their durable records. If no controller has, a
controller that can start is chosen, and only then any controller. The *source* is the directory with the best log of all, if
that log is better than the survivor's. The survivor takes the missing records over from the source.

*A loss* is the end of a log that had been durable, and that the result does not contain. The operator has to accept a loss with
an option of its own; `--yes` is not enough.

Example: the voters are 1, 2 and 3. The disk of 3 is destroyed, and 2 has lost durable records to a broken disk.

    1. Controller 1 has records 0 to 89. Controller 2 had 0 to 99 and can read 0 to 49. Broker 7 has 0 to 94, all committed.
    2. Controller 1 is the survivor: it has all its durable records. Broker 7 is the source, because its log is longer.
    3. Controller 1 takes records 90 to 94 over from broker 7. The new log ends at 95.
    4. Records 95 to 99 were durable on controller 2, and may have been committed. They are reported as a loss.

*A restore to a point in time* is a recovery whose result is cut (`quorum.recovery.point_in_time`). A cluster that has lost
nothing can be restored, too.

*A recovery that was begun* is not planned again (`quorum.recovery.resume`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import EPOCH_MAX, Epoch, Offset, OffsetAndEpoch, Uuid, uuid_text
from metadata_log.format.records import Endpoint, Voters
from quorum.core.protocol.epochs import reach
from quorum.recovery.plan_values import Loss, Plan, named
from quorum.recovery.point_in_time import check_can_start, cut_of, undone_by
from quorum.recovery.remains import Place
from quorum.recovery.resume import resumed
from quorum.recovery.survey import Candidate, CannotRecover, batches_of, held, places_of
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.recovery_plan import (
    DIRECTORIES_MAX,
    ENDPOINTS_MAX,
    PATH_CHARS_MAX,
    RecoveryPlan,
)
from snapshots.history.wanted import Wanted

GENERATION_STEP: Final = 1 << 20
"""How many generations a recovery may skip. Each survivor has its own number in this range: two survivors have the same number
with a chance of one in a million. About 2,000 recoveries in a row fit below 2^31."""
GENERATION_MAX: Final = (1 << 31) - 1


def plan(candidates: Sequence[Candidate], endpoint: Endpoint | None, wall_ms: int, point: Wanted | None = None) -> Plan:
    """Plans the recovery. `endpoint`: the survivor's future address; None: the address in the log. `point`: the offset or the
    time to which the best log is cut (`point_in_time`); None: all of the log is kept.

    Raises:
        CannotRecover: the directories are not of one cluster and generation, or contradict each other; or no controller can
            start; or another recovery was begun in one of the directories.
    """
    if any(each.unfinished is not None for each in candidates):
        return resumed(candidates, endpoint, point)
    _check_belong_together(candidates)
    survivor = _survivor(candidates)
    best = max(candidates, key=_preference)
    source = best if best.rank > survivor.rank else None
    result = source or survivor
    if result.end == 0:
        raise CannotRecover(
            f"there is no record in {' or '.join(each.path for each in candidates)}: nothing to recover from"
        )
    _check_one_history(candidates, result)
    base, base_chain, snapshot = _base(survivor, source)
    end = Place(result.end, result.epoch, result.chain)
    undone = None
    if point is not None:
        end = cut_of(result, point)
        check_can_start(survivor, snapshot, end.offset)
        undone = undone_by(result, end.offset)
        if end.offset <= base and snapshot is None:
            source, base, base_chain = None, end.offset, end.chain
    voters = _voters(result, survivor)
    if source is None and snapshot is None and endpoint is None and (undone is None or not undone.has_metadata):
        _check_not_done(survivor, voters)
    steps = RecoveryPlan(
        directories=tuple(map(named, candidates)),
        survivor=named(survivor),
        source=None if source is None else named(source),
        base=base,
        base_chain=base_chain,
        snapshot=snapshot,
        end=OffsetAndEpoch(end.offset, end.epoch),
        end_chain=end.chain,
        committed_end=max(each.committed[0] for each in candidates),
        generation=_generation(candidates, survivor),
        epoch=_epoch(candidates),
        endpoints=_endpoints(survivor, voters, endpoint),
        wall_ms=wall_ms,
        accepts_loss=survivor.damage is not None or not survivor.is_back,
        undone_end=result.end if end.offset < result.end else 0,
    )
    _check_bounds(steps)
    losses = _losses(candidates, result) if undone is None else ()  # all of them lie behind the cut
    return Plan(tuple(candidates), survivor, source, losses, False, steps, undone)


def _preference(candidate: Candidate) -> tuple[Epoch, Offset, Offset, int, Uuid]:
    """Returns the sort key of the best log: rank, then the earliest start. The ids make the order of the options irrelevant."""
    identity = candidate.identity
    return (*candidate.rank, -candidate.start, -identity.node_id, identity.directory_id)


def _survivor(candidates: Sequence[Candidate]) -> Candidate:
    controllers = [each for each in candidates if each.is_controller and each.first_voters is not None]
    if not controllers:
        damaged = "; ".join(f"{each.path}: {each.damage}" for each in candidates if each.is_controller)
        raise CannotRecover(
            f"no controller can start in any of these directories ({damaged}). {format_a_new_one(None)}"
        )
    whole = [each for each in controllers if each.is_whole]
    startable = [each for each in controllers if each.is_startable]
    return max(whole or startable or controllers, key=_preference)


def format_a_new_one(first_voters: Voters | None) -> str:
    """Returns the advice to format an empty directory as the survivor."""
    initial = "as the cluster was formatted in the beginning"
    if first_voters is not None:
        each = (
            f"{voter.node_id}@{voter.endpoints[0].host}:{voter.endpoints[0].port}:{uuid_text(voter.directory_id)}"
            for voter in first_voters.voters
        )
        initial = f"with --initial-controllers {','.join(each)}"
    return (
        f"Format an empty directory for a controller (`quorumctl storage format`, {initial}), and name it with --directory "
        "too: it takes over the records of the other directories"
    )


def _check_belong_together(candidates: Sequence[Candidate]) -> None:
    first = candidates[0]
    for each in candidates[1:]:
        if each.identity.cluster_id != first.identity.cluster_id:
            raise CannotRecover(
                f"{each.path} is of cluster {each.identity.cluster_id}, {first.path} of {first.identity.cluster_id}"
            )
    newest = max(each.identity.generation for each in candidates)
    current = [each for each in candidates if each.identity.generation == newest]
    for each in candidates:
        if each.identity.generation < newest and each.end > 0:
            for done in current:
                if done.is_controller:
                    _check_not_done(done, _voters(done, done))
            raise CannotRecover(
                f"{each.path} is of generation {each.identity.generation}, and another one of {newest}: it was left behind by "
                "an earlier recovery, and its records do not count any more. Leave it out"
            )


def _check_not_done(survivor: Candidate, voters: Voters | None) -> None:
    identity = survivor.identity
    alone = voters is not None and [(each.node_id, each.directory_id) for each in voters.voters] == [
        (identity.node_id, identity.directory_id)
    ]
    if alone and survivor.is_whole and survivor.is_back and survivor.vote_epoch is not None:
        raise CannotRecover(
            f"nothing is to be recovered: controller {identity.node_id} in {survivor.path} is the only voter already, of "
            f"generation {identity.generation}. Start it: it leads alone"
        )


def _check_one_history(candidates: Sequence[Candidate], result: Candidate) -> None:
    """Refuses directories that contradict each other.

    Records of brokers and snapshots are committed, so the result must contain them. Two logs with the same last epoch and the
    same length must be equal.
    """
    wanted = [(each, *each.committed) for each in candidates if each.committed[0] > 0]
    found = held(result, {(offset, chain) for _, offset, chain in wanted})
    for each, offset, chain in wanted:
        if result.can_tell(offset) and (offset, chain) not in found:
            raise CannotRecover(
                f"{each.path} holds committed records up to {offset} that are not those of {result.path}, although its log is "
                "the better one by epoch and length: one of the two is not of this history. Find out which one, and leave it out"
            )
    for each in candidates:
        if each.rank == result.rank and each.end > 0 and each.chain != result.chain:
            raise CannotRecover(
                f"{each.path} and {result.path} both end at {each.end} in epoch {each.epoch}, and differ: one of the two is "
                "not of this history. Find out which one, and leave it out"
            )


def _losses(candidates: Sequence[Candidate], result: Candidate) -> tuple[Loss, ...]:
    # Every record below `committed_end` is in `result`. Other records below it were never committed: no loss.
    committed_end = max(each.committed[0] for each in candidates)
    suspects = [each for each in candidates if not each.is_back or each.durable.end > each.end]
    durable = {each.path: (each.durable.end, each.durable.chain) for each in suspects}
    found = held(result, set(durable.values()))
    return tuple(
        Loss(each.path, each.durable.end, not each.is_controller)
        for each in suspects
        if each.durable.end > committed_end and durable[each.path] not in found and result.can_tell(each.durable.end)
    )


def _base(survivor: Candidate, source: Candidate | None) -> tuple[Offset, bytes, OffsetAndEpoch | None]:
    """Returns the place from which the survivor takes the source's records: offset, chain, and a snapshot or None.

    Without a source, the place is the end of the survivor's log.

    Without a snapshot, the place is the last place that both histories share. With a snapshot, the survivor's log begins anew
    at the source's snapshot. That is needed if the two histories share no place, or if the survivor cannot start from its own
    log.

    Raises:
        CannotRecover: there is no shared place and no usable snapshot.
    """
    giver = source or survivor
    agreed: tuple[Offset, bytes] | None = (survivor.end, survivor.chain) if source is None else None
    if source is not None:
        ours = places_of(survivor)
        mine = next(ours, None)
        for place in places_of(source):
            while mine is not None and mine[0] < place[0]:
                mine = next(ours, None)
            if mine == place:
                agreed = place
    if agreed is not None and survivor.is_startable:
        return (*agreed, None)
    if agreed is None and giver.start <= survivor.end:
        why = (
            "was it formatted with other initial controllers than the cluster?"
            if survivor.end == 0
            else "leave one of the two out"
        )
        raise CannotRecover(f"{survivor.path} and {giver.path} have no history in common: {why}")
    snapshot = giver.snapshot
    if source is None or snapshot is None or not giver.is_startable:
        raise CannotRecover(_no_snapshot(survivor if giver.is_startable else giver))
    place = (snapshot.end.offset, snapshot.chain)
    if not held(giver, {place}):
        raise CannotRecover(
            f"{giver.path} has a snapshot at {snapshot.end} that is not of its log's history. Leave this directory out"
        )
    return (*place, snapshot.end)


def _no_snapshot(candidate: Candidate) -> str:
    return (
        f"{candidate.path}: {candidate.damage}; no controller could start with that. Put a whole .checkpoint of its history into "
        f"its {LOG_DIRECTORY}, one that ends between the beginning and the end of its log (the nodes all write the same: another "
        "controller, a broker, or a backup may have it), and run this again; or leave this directory out"
    )


def _generation(candidates: Sequence[Candidate], survivor: Candidate) -> int:
    """Returns a generation later than all generations in the directories. The survivor's directory id chooses the number.

    1. After a network partition, operator A recovers controller 1, and operator B recovers controller 2, from generation 1.
    2. With generation 2 for both, broker 7 could fetch records of both quorums, and mix two histories.
    3. With numbers of their own, broker 7 follows the later generation, and refuses and logs the other quorum.
    """
    own = int.from_bytes(hashlib.sha256(survivor.identity.directory_id).digest()[:8]) % GENERATION_STEP
    generation = 1 + max(each.identity.generation for each in candidates) + own
    if generation > GENERATION_MAX:
        raise CannotRecover(f"the generation would be {generation}, and there is none after {GENERATION_MAX}")
    return generation


def _epoch(candidates: Sequence[Candidate]) -> Epoch:
    """Returns an epoch above every epoch that the lost nodes can have reached, with another epoch left for the election.

    The new epoch is as far ahead as a node accepts in one step. Lost nodes can have a higher epoch only after three days of
    failed elections (`epochs`).
    """
    known = max(max(each.epoch, each.vote_epoch or 0) for each in candidates)
    epoch = known + reach(known)
    if epoch == known or not reach(epoch):
        raise CannotRecover(
            f"one of these directories is in epoch {known}, and a recovery needs a later epoch: the last one is {EPOCH_MAX}. "
            "Nothing was changed. Leave that directory out"
        )
    return epoch


def _voters(result: Candidate, survivor: Candidate) -> Voters | None:
    """Returns the newest voter set in the history of `result`."""
    voters, known_end = survivor.first_voters, 0
    if result.snapshot is not None:
        voters, known_end = result.snapshot.voters, result.snapshot.end.offset
    for batch in batches_of(result):
        if batch.is_control and batch.base_offset >= known_end:
            for record in decode_batch(batch):
                voters = record if isinstance(record, Voters) else voters
    return voters


def _endpoints(survivor: Candidate, voters: Voters | None, endpoint: Endpoint | None) -> tuple[Endpoint, ...]:
    if endpoint is not None:
        return (endpoint,)
    node_id = survivor.identity.node_id
    known = () if voters is None else voters.voters
    endpoints = next((each.endpoints for each in known if each.node_id == node_id), ())
    if not endpoints:
        raise CannotRecover(
            f"controller {node_id} was no voter, so the log has no address for it: add --endpoint HOST:PORT"
        )
    return endpoints


def _check_bounds(steps: RecoveryPlan) -> None:
    """Refuses a plan that would be too large to be read again from its file."""
    if len(steps.directories) > DIRECTORIES_MAX:
        raise CannotRecover(f"{len(steps.directories)} directories were named; at most {DIRECTORIES_MAX} are allowed")
    texts = [each.path for each in steps.directories] + [each.host for each in steps.endpoints]
    if max(map(len, texts)) > PATH_CHARS_MAX or len(steps.endpoints) > ENDPOINTS_MAX:
        raise CannotRecover(
            f"a path or host has more than {PATH_CHARS_MAX} characters, or the voter has more than {ENDPOINTS_MAX} endpoints"
        )
