"""What the runs have really done, so that runs in which nothing happened cannot pass for a proof."""

from collections import Counter

from broker_agent.lifecycle import EDGES, BrokerState
from quorum.core.roles import TRANSITIONS

_HAPPENINGS = (
    "election",
    "restart",
    "kill",
    "power cut",
    "majority crashes at once",
    "crash inside a turn",
    "crash inside a job",
    "crash inside recovery",
    "crash around an election",
    "flush failure",
    "disk full",
    "stopped itself",
    "truncation",
    "lost unflushed records",
    "snapshot written",
    "snapshot installed by a controller",
    "snapshot loaded by a broker",
    "log prefix dropped",
    "link cut",
    "cut one way",
    "pause",
    "wall clock step",
    "message lost",
    "message duplicated",
    "message slow",
    "message cut off",
    "acknowledged write",
    "unknown outcome",
    "linearizable read",
    "broker registered",
    "broker unfenced",
    "broker fenced",
    "leaders moved when a session ended",
    "broker crash",
    "broker stopped",
    "lease lapsed",
    "lease renewed",
    "stale broker fetch",
    "partition leader changed",
    "ISR grew",
    "only a majority heals",
)

_BY_A_FATAL_ERROR = {(BrokerState.FENCED, BrokerState.OFFLINE), (BrokerState.ONLINE, BrokerState.OFFLINE)}
"""Refusals that no honest cluster of one version gives."""


def _role_edges() -> set[str]:
    """Changes of role that a cluster can show whose voters don't change."""
    return {f"edge: {before.value} -> {after.value}" for before, after, _ in TRANSITIONS if before is not after}


def _broker_edges() -> set[str]:
    pairs = {(before, after) for before, afters in EDGES.items() for after in afters} - _BY_A_FATAL_ERROR
    return {f"broker edge: {before.name.lower()} -> {after.name.lower()}" for before, after in pairs}


REQUIRED = (*_HAPPENINGS, *sorted(_role_edges()), *sorted(_broker_edges()))
"""What some seed of every long run must have met."""


class Coverage(Counter[str]):
    """Counts by name."""

    def missing(self) -> list[str]:
        return [name for name in REQUIRED if not self[name]]

    def table(self) -> str:
        met = sorted((name, count) for name, count in self.items() if count)
        width = max((len(name) for name, _ in met), default=0)
        return "\n".join(f"  {name:<{width}}  {count:>12,}" for name, count in met)
