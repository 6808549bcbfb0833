"""Why leaderships end, and which conditions a partition has: the judgements behind the rows of a topic.

A row says only what the log says at its step. Example: broker 101 holds 30,000 replicas, and its session ends. The controller
takes 101 out of ISRs and leaderships in thirty batches, and the record that fences 101 is in the last one. So a leadership in the
first batch ends with `taken_out`; the view `leader_changes` finds the fencing that followed.
"""

from typing import Final

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import ADDING, ISR, LEADER, REMOVING, REPLICAS, PartitionState
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.folding.timelines import STOPPING, UNREGISTERED, BrokerTimeline
from snapshots.offline.history.tables import Row

TOPIC_REMOVED: Final = "topic_removed"
ELECTED: Final = "elected"
SAME_LEADER: Final = "same_leader"
REASSIGNED: Final = "reassigned"
MAINTENANCE: Final = "maintenance"
CONTROLLED_SHUTDOWN: Final = "controlled_shutdown"
BROKER_FENCED: Final = "broker_fenced"
BROKER_UNREGISTERED: Final = "broker_unregistered"
TAKEN_OUT: Final = "taken_out"
PREFERRED_LEADER: Final = "preferred_leader"
OTHER_ELECTION: Final = "other_election"
"""The reasons why a leadership ended; `docs/history.md` explains each of them."""

UNDER_REPLICATED: Final = "under_replicated"
UNDER_MIN_ISR: Final = "under_min_isr"
OFFLINE: Final = "offline"
"""The conditions; their definitions are those of `quorumctl partitions list`."""

_SHUT_DOWN: Final = "shut_down"
_MAINTENANCE_MODE: Final = "maintenance"


def end_reason(old: PartitionState, new: PartitionState, step: Step, brokers: BrokerTimeline) -> str:
    """Say why the leadership of `old` ended with `new`."""
    leader = old[LEADER]
    if leader == new[LEADER]:
        return SAME_LEADER
    if leader == NO_LEADER:
        return ELECTED
    if leader not in new[REPLICAS]:
        return REASSIGNED
    broker = brokers.at(leader, step.offset)
    if broker.state == STOPPING or broker.reason == _SHUT_DOWN:
        return CONTROLLED_SHUTDOWN
    if broker.state == UNREGISTERED:
        return BROKER_UNREGISTERED
    if not broker.serves:
        return BROKER_FENCED
    if leader not in new[ISR] or new[LEADER] == NO_LEADER:
        return TAKEN_OUT
    if broker.mode == _MAINTENANCE_MODE:
        return MAINTENANCE
    return PREFERRED_LEADER if new[LEADER] == new[REPLICAS][0] else OTHER_ELECTION


def conditions_of(state: PartitionState, min_isr: int) -> frozenset[str]:
    """Return the conditions that the partition has. A reassignment under way makes no partition under-replicated."""
    in_sync, replicas = len(state[ISR]), len(state[REPLICAS])
    found = []
    if in_sync < replicas - max(len(state[REMOVING]), len(state[ADDING])):
        found.append(UNDER_REPLICATED)
    if in_sync < min(min_isr, replicas):
        found.append(UNDER_MIN_ISR)
    if state[LEADER] == NO_LEADER:
        found.append(OFFLINE)
    return frozenset(found)


def absent(state: PartitionState, step: Step, brokers: BrokerTimeline) -> list[Row]:
    """Return the replicas that are out of sync, or on a broker out of service, each with the state of the broker."""
    found = []
    for broker_id in state[REPLICAS]:
        broker = brokers.at(broker_id, step.offset)
        if broker_id not in state[ISR] or not broker.serves:
            found.append({"broker_id": broker_id, "state": broker.state, "reason": broker.reason or None})
    return found


def shown_leader(leader: NodeId) -> NodeId | None:
    """Return the leader as in tables: null instead of NO_LEADER."""
    return None if leader == NO_LEADER else leader
