"""Finishes a recovery that was begun: with the plan in the survivor's directory, and with the same directories, or not at all.

1. `quorumctl quorum recover` writes `recovery-plan` into the directory of controller 1, and is killed.
2. The same command finds the plan, checks that each directory still has the records of the plan, and carries it out.
3. A command without one of the directories is refused. It could choose another source, with other records.
"""

from __future__ import annotations

from collections.abc import Sequence

from metadata_log.format.records import Endpoint
from quorum.recovery.plan_values import Plan, named
from quorum.recovery.survey import Candidate, CannotRecover, held
from quorum.runtime.disk.recovery_plan import RecoveryPlan
from snapshots.history.wanted import Wanted


def resumed(candidates: Sequence[Candidate], endpoint: Endpoint | None, point: Wanted | None = None) -> Plan:
    """Returns the plan that was begun. The directories have to be the same; their paths may have changed. The plan knows the
    offset of a restore, so `point` is not needed again; with a `point` the plan must be a restore.
    """
    survivor, *others = [each for each in candidates if each.unfinished is not None]
    steps = survivor.unfinished
    assert steps is not None
    how = f"To finish it: {steps.command}"
    if others:
        raise CannotRecover(
            f"in {survivor.path} and in {others[0].path} a recovery was begun and not finished, and there can be only one "
            f"quorum. Leave one of the two out, for ever. {how}"
        )
    if steps.survivor[1:] != named(survivor)[1:]:
        raise CannotRecover(
            f"{survivor.path} holds the plan of a recovery of another directory, {steps.survivor.path}: restore the "
            "copy of it that was made before"
        )
    wanted, given = (
        {each[1:]: each.path for each in steps.directories},
        {named(each)[1:]: each.path for each in candidates},
    )
    differences = [
        *(f"{wanted[each]} is missing" for each in sorted(wanted.keys() - given.keys())),
        *(f"{given[each]} is no part of it" for each in sorted(given.keys() - wanted.keys())),
    ]
    if endpoint is not None and steps.endpoints != (endpoint,):
        planned = steps.endpoints[0]
        differences.append(f"the planned endpoint is {planned.host}:{planned.port}")
    if point is not None and not steps.undone_end:
        differences.append("it keeps the whole log, and was not begun with --to-offset or --to-time")
    if differences:
        raise CannotRecover(
            f"in {survivor.path} a recovery was begun and not finished, and it can only be finished as it was begun: "
            f"{'; '.join(differences)}. {how}. To begin another one, restore the copy of {survivor.path} that was made before"
        )
    source = None if steps.source is None else _unchanged_source(candidates, survivor, steps, how)
    if survivor.vote_epoch is not None and survivor.vote_epoch > steps.epoch:
        raise CannotRecover(
            f"{survivor.path} has been in use since its recovery was begun, so the recovery cannot be finished: restore the copy "
            "that was made before"
        )
    return Plan(tuple(candidates), survivor, source, (), True, steps)


def _unchanged_source(candidates: Sequence[Candidate], survivor: Candidate, steps: RecoveryPlan, how: str) -> Candidate:
    """Returns the directory, or a copy of it, that still has the records to take over."""
    assert steps.source is not None
    wanted = {(steps.base, steps.base_chain), (steps.end.offset, steps.end_chain)}
    for each in candidates:
        has_snapshot = steps.snapshot is None or (each.snapshot is not None and each.snapshot.end == steps.snapshot)
        if (
            each is not survivor
            and named(each)[1:] == steps.source[1:]
            and has_snapshot
            and held(each, wanted) == wanted
        ):
            return each
    raise CannotRecover(
        f"{steps.source.path} does not have the records any more that {survivor.path} was taking over. Restore its files. "
        f"{how}. Or restore the copy of {survivor.path} that was made before, and begin anew"
    )
