"""A planned recovery, as `plan` makes it and `carry_out` carries it out."""

from __future__ import annotations

from typing import NamedTuple

from metadata_log.format.ids import Offset
from metadata_log.format.records import Voter
from quorum.recovery.point_in_time import Undone
from quorum.recovery.survey import Candidate
from quorum.runtime.disk.recovery_plan import PlannedDirectory, RecoveryPlan
from snapshots.format import SnapshotMeta


class Loss(NamedTuple):
    """The durable end of a log that is not in the result."""

    path: str
    end: Offset
    """Exclusive."""
    was_committed: bool
    """True if a broker had the records: brokers receive only committed records."""


class Plan(NamedTuple):
    """A planned recovery. `source` has the records that the survivor lacks; None if the survivor lacks none."""

    candidates: tuple[Candidate, ...]
    survivor: Candidate
    source: Candidate | None
    losses: tuple[Loss, ...]
    is_resumed: bool
    """True if this recovery was begun before and not finished."""
    steps: RecoveryPlan
    undone: Undone | None = None
    """The records that a restore to a point in time undoes; None without a restore, and if the recovery is resumed."""

    @property
    def voter(self) -> Voter:
        """The survivor, as the only voter."""
        identity = self.survivor.identity
        return Voter(identity.node_id, identity.directory_id, self.steps.endpoints)

    @property
    def own_snapshot(self) -> SnapshotMeta | None:
        """The survivor's own snapshot, if its log will start there because the log below is damaged or missing; else None."""
        survivor, steps = self.survivor, self.steps
        begins_there = steps.snapshot is None and survivor.log_start < survivor.start <= steps.base
        return survivor.snapshot if begins_there else None


def named(candidate: Candidate) -> PlannedDirectory:
    """Returns the candidate's directory as a plan names it."""
    identity = candidate.identity
    return PlannedDirectory(candidate.path, identity.role, identity.node_id, identity.directory_id)
