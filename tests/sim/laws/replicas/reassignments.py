"""The laws of reassignments (M11): which replicas a partition may have, and when (KIP-455).

    AskedFor        the target is one that a client has asked for; without a reassignment, the replicas are a target, or former
    FormerKept      until the end a partition has all replicas that it had before the first request, and a cancellation leads back
    TargetReached   when the former replicas are gone, every replica that was added is in sync
    RemovedNotices  when a replica is removed, the leader epoch goes up
    AsAnswered      a request takes effect as a whole: as of its answer, each partition without an error has the target asked for

Example: orders-0 is on 101 and 102 and shall have 103. If the controller removed 101 and 102 before 103 is in sync, the records
would be on no broker at all: TargetReached is broken.
"""

from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.partition_state import ADDING, ISR, LEADER_EPOCH, REMOVING, REPLICAS, PartitionState
from quorum.controller.partitions.target_replicas import is_reassigning
from quorum.controller.protocol.reassignment_commands import Reassignment
from tests.sim.coverage import Coverage
from tests.sim.laws.broken import hold


class Target(NamedTuple):
    """The replicas that a partition shall have."""

    replicas: tuple[NodeId, ...]
    is_reassigning: bool


class ReassignmentLaws:
    """Checks every committed change of a partition's replicas."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._asked: dict[tuple[str, int], set[tuple[NodeId, ...] | None]] = {}
        """By partition: every target that a client has ever asked for; None for a cancellation."""
        self._targets: dict[tuple[str, int], list[tuple[Offset, Target]]] = {}
        """By partition: every target that it has ever had, and since when."""

    def asked(self, wanted: Reassignment) -> None:
        """Notes a request. It may arrive at any later time."""
        self._asked.setdefault((wanted.topic, wanted.partition), set()).add(wanted.replicas)

    def noted(self, topic: str, partition: int, after: PartitionState, end: Offset) -> None:
        """Notes a partition that the batch which ends at `end` has changed or created."""
        targets = self._targets.setdefault((topic, partition), [])
        now = Target(_target(after), is_reassigning(after))
        if not targets or targets[-1][1] != now:
            targets.append((end, now))

    def answered(self, done: Sequence[Reassignment], end: Offset) -> None:
        """Checks an answer "these are in effect below `end`"."""
        for topic, partition, replicas in done:
            found = next((now for at, now in reversed(self._targets.get((topic, partition), [])) if at <= end), None)
            as_asked = found is not None and (
                not found.is_reassigning if replicas is None else found.replicas == replicas
            )
            text = f"{topic}-{partition} was to have {replicas}, acknowledged at {end}; it has {found}"
            hold(as_asked, "M11 AsAnswered", text)

    def changed(self, topic: str, partition: int, before: PartitionState, after: PartitionState, where: str) -> None:
        """Checks a partition that a batch has changed."""
        if before[REPLICAS] == after[REPLICAS] and before[REMOVING : ADDING + 1] == after[REMOVING : ADDING + 1]:
            return
        asked = self._asked.get((topic, partition), set())
        former = set(before[REPLICAS]) - set(before[ADDING])
        target = tuple(each for each in after[REPLICAS] if each not in after[REMOVING])
        removed = set(before[REPLICAS]) - set(after[REPLICAS])
        hold(
            not removed or after[LEADER_EPOCH] > before[LEADER_EPOCH],
            "M11 RemovedNotices",
            f"{where}: {sorted(removed)} were removed in leader epoch {after[LEADER_EPOCH]}",
        )
        if after[REMOVING] or after[ADDING]:
            kept = set(after[REPLICAS]) - set(after[ADDING])
            hold(kept == former, "M11 FormerKept", f"{where}: had {sorted(former)}, and keeps {sorted(kept)}")
            hold(target in asked, "M11 AskedFor", f"{where}: nobody has asked for {target}")
            self._coverage["reassignment replaced" if before[REMOVING] or before[ADDING] else "reassignment begun"] += 1
            return
        is_back = None in asked and set(target) == former and target not in asked
        hold(is_back or target in asked or target == _target(before), "M11 AskedFor", f"{where}: nobody wants {target}")
        added = set(target) - former
        hold(
            added <= set(after[ISR]), "M11 TargetReached", f"{where}: {sorted(added)} are new, and in sync {after[ISR]}"
        )
        kept_in_sync = not (former - set(target)) or bool(set(after[ISR]) & set(target))
        hold(kept_in_sync, "M11 TargetReached", f"{where}: nobody of {target} is in sync: {after[ISR]}")
        self._coverage["reassignment cancelled" if is_back else "reassignment finished"] += 1


def _target(state: PartitionState) -> tuple[NodeId, ...]:
    return tuple(each for each in state[REPLICAS] if each not in state[REMOVING])
