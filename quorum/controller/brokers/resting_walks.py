"""Walks that rest: a change of a broker's state is under way, and nobody asks for its next slice.

The controller continues a fencing or a loss of directories by itself, and abandons a drain. Example:

    1  The controller fences broker 7, which has 30,000 replicas. The first decision has 250 changes, and names the next command.
    2  The batch is never appended, so the node does not run the next command.
    3  A second later `resting` names broker 7, and the controller decides the next slice by itself.
"""

from collections.abc import Mapping
from typing import Protocol

from metadata_log.format.ids import NodeId
from quorum.controller.partitions.walks import PartitionWalk


class UnderWay(Protocol):
    """A change that takes several slices."""

    @property
    def walk(self) -> PartitionWalk: ...


def resting(changes: Mapping[NodeId, UnderWay], rest_ms: int, now_ms: int) -> list[NodeId]:
    """The brokers whose walk has rested for `rest_ms`."""
    return [broker_id for broker_id, change in changes.items() if change.walk.last_step_ms + rest_ms <= now_ms]


def next_deadline_ms(changes: Mapping[NodeId, UnderWay], rest_ms: int) -> int | None:
    """The time to call `resting`."""
    if not changes:
        return None
    return min(change.walk.last_step_ms for change in changes.values()) + rest_ms
