"""Which directory becomes the quorum, and what it has to be given first: decided from what was surveyed, changing nothing.

*Which log is the best* is Raft's rule for a vote: the highest last epoch, then the longest (5.4.1). It holds everything
that was committed, as far as any of the others does. What was committed beyond it, by nodes that are gone, nobody can tell.

*Who goes on* is the controller with the best log among those that still hold all that had been durable in them. What one of
the others has beyond that, it is given. Only where there is no such controller may one go on that has lost something.

*What is lost for certain* are ends of logs that had been durable and are in no history that is left. That is not for a program
to shrug off: it wants a word more than `--yes`.

*A recovery that was begun* is not planned again (see `recovery_plan`): it goes on with the same directories, or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import EPOCH_MAX, Epoch, Offset, OffsetAndEpoch, Uuid, uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.core.protocol.epochs import reach
from quorum.recovery.survey import Candidate, CannotRecover, batches_of, places_of
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.recovery_plan import (
    DIRECTORIES_MAX,
    ENDPOINTS_MAX,
    PATH_CHARS_MAX,
    PlannedDirectory,
    RecoveryPlan,
)
from snapshots.format import SnapshotMeta

GENERATION_STEP: Final = 1 << 20
"""Of so many generations one is a survivor's own: two have the same by a chance of one in a million. 2,000 recoveries fit below
2^31."""
GENERATION_MAX: Final = (1 << 31) - 1


class Loss(NamedTuple):
    """The end of a log that had been durable, and that nobody among these has any more."""

    path: str
    end: Offset
    """Exclusive."""
    was_committed: bool
    """A broker had it."""


class Plan(NamedTuple):
    """What is to be done. `source` has what the survivor lacks; None where it lacks nothing."""

    candidates: tuple[Candidate, ...]
    survivor: Candidate
    source: Candidate | None
    losses: tuple[Loss, ...]
    is_resumed: bool
    """It was begun before, and broken off."""
    steps: RecoveryPlan

    @property
    def voter(self) -> Voter:
        identity = self.survivor.identity
        return Voter(identity.node_id, identity.directory_id, self.steps.endpoints)

    @property
    def own_snapshot(self) -> SnapshotMeta | None:
        """That of the survivor, if its log goes on at that, and goes below, where it is damaged or none is left."""
        survivor, steps = self.survivor, self.steps
        stands = steps.snapshot is None and survivor.start < survivor.intact_from <= steps.base
        return survivor.snapshot if stands else None


def plan(candidates: Sequence[Candidate], endpoint: Endpoint | None, wall_ms: int) -> Plan:
    """What is to be done. `endpoint`: where the survivor will be reached.

    Raises:
        CannotRecover: the directories are not of one cluster and generation, contradict each other, none can go on, or another
            recovery was begun in one of them.
    """
    if any(each.unfinished is not None for each in candidates):
        return _resumed(candidates, endpoint)
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
    voters = _voters(result, survivor)
    if source is None and snapshot is None and endpoint is None:
        _check_not_done(survivor, voters)
    steps = RecoveryPlan(
        directories=tuple(map(_named, candidates)),
        survivor=_named(survivor),
        source=None if source is None else _named(source),
        base=base,
        base_chain=base_chain,
        snapshot=snapshot,
        end=OffsetAndEpoch(result.end, result.epoch),
        end_chain=result.chain,
        committed_end=max(each.committed[0] for each in candidates),
        generation=_generation(candidates, survivor),
        epoch=_epoch(candidates),
        endpoints=_endpoints(survivor, voters, endpoint),
        wall_ms=wall_ms,
        accepts_loss=survivor.damage is not None or not survivor.is_back,
    )
    _check_bounds(steps)
    return Plan(tuple(candidates), survivor, source, _losses(candidates, result), False, steps)


def _named(candidate: Candidate) -> PlannedDirectory:
    identity = candidate.identity
    return PlannedDirectory(candidate.path, identity.role, identity.node_id, identity.directory_id)


def _preference(candidate: Candidate) -> tuple[Epoch, Offset, Offset, int, Uuid]:
    """The best log first. Of equal ones that which begins earliest; the rest makes the order of the options mean nothing."""
    identity = candidate.identity
    return (*candidate.rank, -candidate.intact_from, -identity.node_id, identity.directory_id)


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
    initial = "as the cluster was formatted in the beginning"
    if first_voters is not None:
        each = (
            f"{voter.node_id}@{voter.endpoints[0].host}:{voter.endpoints[0].port}:{uuid_text(voter.directory_id)}"
            for voter in first_voters.voters
        )
        initial = f"with --initial-controllers {','.join(each)}"
    return (
        f"Format an empty directory for a controller (`quorumctl storage format`, {initial}), and name it with --directory "
        "too: it takes over what the others still hold"
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
                "an earlier recovery, and what it holds does not count any more. Leave it out"
            )


def _check_not_done(survivor: Candidate, voters: Voters | None) -> None:
    identity = survivor.identity
    alone = voters is not None and [(each.node_id, each.directory_id) for each in voters.voters] == [
        (identity.node_id, identity.directory_id)
    ]
    if alone and survivor.is_whole and survivor.is_back and survivor.vote_epoch is not None:
        raise CannotRecover(
            f"nothing is to be recovered: controller {identity.node_id} in {survivor.path} is the only voter already, of "
            f"generation {identity.generation}. Start it, it leads alone"
        )


def _check_one_history(candidates: Sequence[Candidate], result: Candidate) -> None:
    """What brokers and snapshots hold was committed: a log that lacks any of it, or has something else there, is no log of this
    cluster. Nor is one of two that are equally good and not the same."""
    wanted = [(each, *each.committed) for each in candidates if each.committed[0] > 0]
    held = _held(result, {(offset, chain) for _, offset, chain in wanted})
    for each, offset, chain in wanted:
        if result.can_tell(offset) and (offset, chain) not in held:
            raise CannotRecover(
                f"{each.path} holds committed records up to {offset} that are not those of {result.path}, although its log is "
                "the better one by epoch and length: one of the two is not of this history. Leave it out, or ask why"
            )
    for each in candidates:
        if each.rank == result.rank and each.end > 0 and each.chain != result.chain:
            raise CannotRecover(
                f"{each.path} and {result.path} both end at {each.end} in epoch {each.epoch}, and differ: one of the two is "
                "not of this history. Leave it out, or ask why"
            )


def _held(candidate: Candidate, places: set[tuple[Offset, bytes]]) -> set[tuple[Offset, bytes]]:
    """Those of these places that are in its history."""
    return {place for place in places_of(candidate) if place in places}


def _losses(candidates: Sequence[Candidate], result: Candidate) -> tuple[Loss, ...]:
    committed_end = max(
        each.committed[0] for each in candidates
    )  # all below it is in `result`, and nothing else counts there
    suspects = [each for each in candidates if not each.is_back or each.durable.end > each.end]
    durable = {each.path: (each.durable.end, each.durable.chain) for each in suspects}
    held = _held(result, set(durable.values()))
    return tuple(
        Loss(each.path, each.durable.end, not each.is_controller)
        for each in suspects
        if each.durable.end > committed_end and durable[each.path] not in held and result.can_tell(each.durable.end)
    )


def _base(survivor: Candidate, source: Candidate | None) -> tuple[Offset, bytes, OffsetAndEpoch | None]:
    """Where the survivor goes on with what it is given: the last place at which both have the same history; or a snapshot at
    which it begins anew, where the logs do not meet, the better one is damaged below its snapshot, or the survivor has none that
    it could start from.

    Raises:
        CannotRecover: there is neither.
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
    if agreed is not None and agreed[0] >= giver.intact_from and survivor.is_startable:
        return (*agreed, None)
    is_in_gap = giver.log_end < survivor.start < giver.intact_from
    if agreed is None and giver.start <= survivor.log_end and not is_in_gap:
        why = (
            "was it formatted with other initial controllers than the cluster?"
            if survivor.end == 0
            else "leave one out"
        )
        raise CannotRecover(f"{survivor.path} and {giver.path} have no history in common: {why}")
    snapshot = giver.snapshot
    if source is None or snapshot is None or not giver.is_startable:
        raise CannotRecover(_no_snapshot(survivor if giver.is_startable else giver))
    place = (snapshot.end.offset, snapshot.chain)
    if not _held(giver, {place}):
        raise CannotRecover(f"{giver.path} has a snapshot at {snapshot.end} that is not of its log's history")
    return (*place, snapshot.end)


def _no_snapshot(candidate: Candidate) -> str:
    return (
        f"{candidate.path}: {candidate.damage}; no controller could start with that. Put a whole .checkpoint of its history into "
        f"its {LOG_DIRECTORY}, one that ends between the beginning and the end of its log (the nodes all write the same: another "
        "controller, a broker, or a backup may have it), and run this again; or leave this directory out"
    )


def _generation(candidates: Sequence[Candidate], survivor: Candidate) -> int:
    """Later than any that there was; and it is the survivor's own.

    Two people recover two survivors, each without the other's knowledge. In one and the same generation, a broker that asks now
    this quorum and now that one would be given records of both; as it is, the later one keeps it, and it says so.
    """
    own = int.from_bytes(hashlib.sha256(survivor.identity.directory_id).digest()[:8]) % GENERATION_STEP
    generation = 1 + max(each.identity.generation for each in candidates) + own
    if generation > GENERATION_MAX:
        raise CannotRecover(f"the generation would be {generation}, and there is none after {GENERATION_MAX}")
    return generation


def _epoch(candidates: Sequence[Candidate]) -> Epoch:
    """Later than any that there was, and with another one after it, for the survivor has to be elected.

    It is as far on as any node lets itself be taken at once. The lost nodes can have come further only by three days of elections
    that all failed (`epochs`).
    """
    known = max(max(each.epoch, each.vote_epoch or 0) for each in candidates)
    epoch = known + reach(known)
    if epoch == known or not reach(epoch):
        raise CannotRecover(
            f"one of these stands in epoch {known}, and there is none to go on in: the last one is {EPOCH_MAX}. Leave out the "
            "directory that says so; nothing was changed"
        )
    return epoch


def _voters(result: Candidate, survivor: Candidate) -> Voters | None:
    """The newest voter set in that history."""
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
            f"controller {node_id} was no voter, so nothing says where it is reached: add --endpoint HOST:PORT"
        )
    return endpoints


def _check_bounds(steps: RecoveryPlan) -> None:
    """What could not be read again is not written."""
    if len(steps.directories) > DIRECTORIES_MAX:
        raise CannotRecover(f"{len(steps.directories)} directories; {DIRECTORIES_MAX} are possible")
    texts = [each.path for each in steps.directories] + [each.host for each in steps.endpoints]
    if max(map(len, texts)) > PATH_CHARS_MAX or len(steps.endpoints) > ENDPOINTS_MAX:
        raise CannotRecover(
            f"a path or host of more than {PATH_CHARS_MAX} characters, or a voter with more than {ENDPOINTS_MAX} endpoints"
        )


# --- going on --------------------------------------------------------------------------------------------------------


def _resumed(candidates: Sequence[Candidate], endpoint: Endpoint | None) -> Plan:
    """What was begun, with the same directories, wherever they lie now."""
    survivor, *others = [each for each in candidates if each.unfinished is not None]
    steps = survivor.unfinished
    assert steps is not None
    how = f"To finish it: {steps.command}"
    if others:
        raise CannotRecover(
            f"in {survivor.path} and in {others[0].path} a recovery was begun and not finished, and there can be one quorum "
            f"only. Leave one of them out, for ever. {how}"
        )
    if steps.survivor[1:] != _named(survivor)[1:]:
        raise CannotRecover(
            f"{survivor.path} holds the plan of a recovery of another directory, {steps.survivor.path}: put the copy back that "
            "was made before"
        )
    wanted, given = (
        {each[1:]: each.path for each in steps.directories},
        {_named(each)[1:]: each.path for each in candidates},
    )
    differences = [
        *(f"{wanted[each]} is missing" for each in sorted(wanted.keys() - given.keys())),
        *(f"{given[each]} is no part of it" for each in sorted(given.keys() - wanted.keys())),
    ]
    if endpoint is not None and steps.endpoints != (endpoint,):
        planned = steps.endpoints[0]
        differences.append(f"it is to be reached at {planned.host}:{planned.port}")
    if differences:
        raise CannotRecover(
            f"in {survivor.path} a recovery was begun and not finished, and it can only be finished as it was begun: "
            f"{'; '.join(differences)}. {how}. To begin another one, put the copy of {survivor.path} back that was made before"
        )
    source = None if steps.source is None else _unchanged_source(candidates, survivor, steps, how)
    if survivor.vote_epoch is not None and survivor.vote_epoch > steps.epoch:
        raise CannotRecover(
            f"{survivor.path} has been in use since its recovery was begun, which therefore cannot be finished: put the copy "
            "back that was made before"
        )
    return Plan(tuple(candidates), survivor, source, (), True, steps)


def _unchanged_source(candidates: Sequence[Candidate], survivor: Candidate, steps: RecoveryPlan, how: str) -> Candidate:
    """Who still has what is to be taken over; of a directory and its copy, either."""
    assert steps.source is not None
    wanted = {(steps.base, steps.base_chain), (steps.end.offset, steps.end_chain)}
    for each in candidates:
        has_snapshot = steps.snapshot is None or (each.snapshot is not None and each.snapshot.end == steps.snapshot)
        if (
            each is not survivor
            and _named(each)[1:] == steps.source[1:]
            and has_snapshot
            and _held(each, wanted) == wanted
        ):
            return each
    raise CannotRecover(
        f"{steps.source.path} does not hold any more what {survivor.path} was taking over from it. Put back what was there. "
        f"{how}. Or put the copy of {survivor.path} back that was made before, and begin anew"
    )
