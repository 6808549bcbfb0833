"""Bugs of reassignments."""

from dataclasses import replace
from typing import Any

from metadata_log.format.partition_state import REPLICAS, NodeIds, PartitionState
from metadata_log.format.records import PartitionChange
from quorum.controller.partitions import partition_changes
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.partitions.reassignment import reassignments
from quorum.controller.partitions.target_replicas import Assignment, finished, target_of
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ContinueReassignments,
)
from tests.sim.mutants.patching import Mutant, patched

_build = PartitionChangeBuilder.build
_next = reassignments._next


def _any_in_sync(assignment: Assignment, isr: NodeIds) -> Assignment | None:
    replicas, removing, adding = assignment
    target = tuple(each for each in replicas if each not in removing)
    return Assignment(target) if (removing or adding) and any(each in isr for each in target) else None


def _only_without_adding(assignment: Assignment, isr: NodeIds) -> Assignment | None:
    return None if assignment.adding else finished(assignment, isr)


def _from_all_replicas(state: PartitionState, target: NodeIds) -> Assignment:
    """As if every replica had been there before the first request."""
    replicas = state[REPLICAS]
    removing = tuple(each for each in replicas if each not in target)
    return Assignment((*target, *removing), removing, tuple(each for each in target if each not in replicas))


def _unnoticed(self: PartitionChangeBuilder) -> PartitionChange | None:
    change = _build(self)
    is_same: Any = change is not None and change.replicas is not None and change.leader == self._state[4]
    return change._replace(leader=None) if is_same and change is not None else change


def _none(command: AlterPartitionReassignments, config: ControllerConfig) -> str:
    return ""


def _first_slice_only(rest: ContinueReassignments, config: ControllerConfig) -> Decision:
    """All partitions are decided, and the changes of one slice are written."""
    decision = _next(rest, config)
    if decision.then is None:
        return decision
    for _ in rest.changes:
        pass
    return replace(decision, reply=AlterPartitionReassignmentsReply(results=tuple(rest.results)), then=None)


REASSIGNMENTS: dict[str, Mutant] = {
    "reassigned-too-early": Mutant(
        "the former replicas are removed when one replica of the target is in sync, and others are not",
        lambda: patched(partition_changes, "finished", _any_in_sync),
    ),
    "never-reassigned": Mutant(
        "no reassignment that adds a replica is ever finished",
        lambda: patched(partition_changes, "finished", _only_without_adding),
    ),
    "former-replicas-forgotten": Mutant(
        "a second request takes the replicas on the way for the former ones, and a cancellation leads to them",
        lambda: patched(reassignments, "begun", _from_all_replicas),
    ),
    "cancelled-forwards": Mutant(
        "a cancelled reassignment ends at once with the new replicas, in sync or not",
        lambda: patched(reassignments, "former_of", target_of),
    ),
    "removed-unnoticed": Mutant(
        "a replica is removed in the same leader epoch, if the leader stays",
        lambda: patched(PartitionChangeBuilder, "build", _unnoticed),
    ),
    "reassigned-in-parts": Mutant(
        "the slices of a large reassignment take effect one by one",
        lambda: patched(reassignments, "_transaction_of", _none),
    ),
    "half-of-a-reassignment-acknowledged": Mutant(
        "a large reassignment is acknowledged as a whole when its first slice is written",
        lambda: patched(reassignments, "_next", _first_slice_only),
    ),
}
