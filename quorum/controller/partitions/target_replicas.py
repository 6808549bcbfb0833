"""The replicas of a partition in reassignment: those it had, those it gets, and those it has meanwhile (KIP-455).

    former       the replicas when the reassignment began       replicas without the adding ones
    target       the replicas when it will be finished          replicas without the removing ones
    replicas     the target, then the removing replicas

Example. orders-0 has the replicas 101,102,103 and shall have 104,102.
    1  The reassignment begins: replicas 104,102,101,103, adding 104, removing 101,103. The ISR is 101,102,103.
    2  Broker 104 is in sync: the ISR has all of the target, so the reassignment is finished. Replicas and ISR are 104,102.

A reassignment that adds nothing is finished as soon as one replica of the target is in the ISR, mostly at once. The state keeps
the order of the target. So a cancelled reassignment returns to the former replicas, but perhaps in another order: in the
example to 102,101,103.
"""

from typing import NamedTuple

from metadata_log.format.partition_state import ADDING, REMOVING, REPLICAS, NodeIds, PartitionState


class Assignment(NamedTuple):
    """The replicas of a partition, and those of them that a reassignment removes and adds."""

    replicas: NodeIds
    removing: NodeIds = ()
    adding: NodeIds = ()


def is_reassigning(state: PartitionState) -> bool:
    """Tells whether a reassignment of the partition is in progress."""
    return bool(state[REMOVING] or state[ADDING])


def target_of(state: PartitionState) -> NodeIds:
    """Returns the replicas that the partition shall have; without a reassignment those that it has."""
    removing = state[REMOVING]
    return tuple([each for each in state[REPLICAS] if each not in removing]) if removing else state[REPLICAS]


def former_of(state: PartitionState) -> NodeIds:
    """Returns the replicas that the partition had before its reassignment; without a reassignment those that it has."""
    adding = state[ADDING]
    return tuple([each for each in state[REPLICAS] if each not in adding]) if adding else state[REPLICAS]


def in_sync_wanted(state: PartitionState) -> int:
    """Returns the size of a full ISR. A reassignment under way, in itself, makes no partition under-replicated."""
    return len(state[REPLICAS]) - max(len(state[REMOVING]), len(state[ADDING]))


def begun(state: PartitionState, target: NodeIds) -> Assignment:
    """Returns the assignment on the way to `target`. A replica that an earlier reassignment was adding, and that is not in the
    target, is dropped at once."""
    former = former_of(state)
    removing = tuple([each for each in former if each not in target])
    return Assignment((*target, *removing), removing, tuple([each for each in target if each not in former]))


def finished(assignment: Assignment, isr: NodeIds) -> Assignment | None:
    """Returns the assignment after the reassignment; None if the ISR does not allow to finish it, or there is none."""
    replicas, removing, adding = assignment
    if not removing and not adding:
        return None
    target = tuple([each for each in replicas if each not in removing])
    covers = all if adding else any
    return Assignment(target) if covers(each in isr for each in target) else None
