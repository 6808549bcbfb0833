"""The events of all runs, counted, so that runs in which nothing happened cannot pass for a proof."""

from collections import Counter
from collections.abc import Iterable

from broker_agent.session.lifecycle import EDGES, BrokerState
from quorum.core.roles import TRANSITIONS

FAULTS = (
    "kill",
    "power cut",
    "majority crashes at once",
    "crash inside a turn",
    "crash inside a job",
    "crash inside recovery",
    "crash around an election",
    "restart",
    "flush failure",
    "read failure",
    "disk full",
    "slow disk",
    "hanging disk",
    "bit flip",
    "bad sector",
    "durable end lost",
    "forged snapshot",
    "disk replaced",
    "vote lost or damaged",
    "membership change asked for",
    "link cut",
    "cut one way",
    "controllers cut off from each other",
    "broker out of reach",
    "pause",
    "wall clock step",
    "message lost",
    "message duplicated",
    "message slow",
    "message reordered",
    "message cut off",
    "slow link",
    "clock that drifts",
    "broker crash",
    "broker disk: full",
    "broker disk: flush",
    "broker disk: read",
    "broker disk: cut",
    "broker disk: rot",
    "client of a session sleeps",
    "data disk: full",
    "data disk: flush",
    "data disk: read",
    "data disk: cut",
)
"""The faults, by kind. Each kind is absent from some runs."""

_HAPPENINGS = (
    "election",
    "stopped itself",
    "truncation",
    "lost unflushed records",
    "snapshot written",
    "snapshot installed by a controller",
    "snapshot loaded by a broker",
    "log prefix dropped",
    "scrub found rot",
    "log mended",
    "standing restored",
    "acknowledged write",
    "unknown outcome",
    "ISR proposal granted",
    "wrong ISR proposal",
    "voter set changed",
    "came back as another replica",
    "done: AddVoter",
    "done: RemoveVoter",
    "done: UpdateVoter",
    "done: TransferLeadership",
    "linearizable read",
    "local read",
    "request sent again",
    "answered again",
    "request id expired",
    "broker registered",
    "broker unfenced",
    "broker fenced",
    "broker fenced by hand",
    "broker drained",
    "mode of a broker ended",
    "config set under a policy",
    "led by a drained broker, because no other can",
    "leader relieved by a replica that came in sync",
    "replica assigned to a directory",
    "log directory failed",
    "log directory lost",
    "replica in an offline directory",
    "leader lost its directory",
    "wrong assignment to a directory",
    "broker ended without a log directory",
    "broker unregistered",
    "broker not sent away",
    "leaders moved when a session ended",
    "broker stopped",
    "broker stopped by its disk",
    "broker store dropped at start",
    "snapshot download broken off",
    "part of a batch given to a follower",
    "part of a batch given to a broker",
    "brokers answered in slices",
    "lease lapsed",
    "lease renewed",
    "stale broker fetch",
    "agent killed while it serves",
    "data plane outlives its agent",
    "no report while a data plane serves",
    "restart beside a data plane that serves",
    "late fetch of a dead process",
    "death reported",
    "broker process dead in the log",
    "partition leader changed",
    "ISR grew",
    "leadership given back",
    "broker registered after a crash",
    "broker registered after a clean shutdown",
    "min.insync.replicas changed",
    "ELR cleared by a config or feature",
    "leader elected from the ELR",
    "last known leader elected",
    "preferred election",
    "designated election",
    "reassignment begun",
    "reassignment replaced",
    "reassignment finished",
    "reassignment cancelled",
    "leader reassigned",
    "only a majority heals",
    "caught up over a slow link",
    "transaction ended",
    "transaction aborted",
    "feature level raised",
    "feature level lowered",
    "feature level not supported by all",
    "node upgraded",
    "partition spread over racks",
    "poison batch",
    "poison batch skipped",
    "skip refused",
    "image made anew after a skip",
    "happening told",
    "reason of a broker's state written",
    "transaction of entities done",
    "condition failed",
    "entity read",
    "put for a session that has ended",
    "session kept alive",
    "session expired",
    "session closed",
    "client forgets its session",
    "entity outlived its time",
    "ephemeral entity of a session ended with it",
    "ephemeral entity of a broker ended with it",
    "lock held",
    "lock waited for",
    "lock released",
    "watch begins with the state",
    "watch shows changes",
    "part of a watched batch",
    "watch goes on elsewhere",
    "watch reset",
    "past shown",
    "data: write acknowledged by all",
    "data: batch sent again",
    "data: record read",
    "data: replica begins to lead",
    "data: ISR proposed",
    "data: fetch without an answer",
    "data: lease over when a write was answered",
    "data: lease over when a fetch was answered",
    "data: log directory failed",
    "data: all in sync, all read",
)

_BY_A_FATAL_ERROR = {(BrokerState.FENCED, BrokerState.OFFLINE), (BrokerState.ONLINE, BrokerState.OFFLINE)}
"""Refusals that no honest cluster of one version gives."""


def _role_edges() -> set[str]:
    """Changes of role that a cluster can show whose voters don't change."""
    return {f"edge: {before.value} -> {after.value}" for before, after, _ in TRANSITIONS if before is not after}


def _broker_edges() -> set[str]:
    pairs = {(before, after) for before, afters in EDGES.items() for after in afters} - _BY_A_FATAL_ERROR
    return {f"broker edge: {before.name.lower()} -> {after.name.lower()}" for before, after in pairs}


REQUIRED = (*FAULTS, *_HAPPENINGS, *sorted(_role_edges()), *sorted(_broker_edges()))
"""The events that some seed of every long run must have met."""


class Coverage(Counter[str]):
    """Counts by name."""

    def missing(self) -> list[str]:
        return [name for name in REQUIRED if not self[name]]

    def faults(self) -> int:
        """Of all kinds together."""
        return sum(self[name] for name in FAULTS)

    def table(self) -> str:
        """The faults first, then what came of them."""
        width = max((len(name) for name in self), default=0)

        def part(title: str, names: Iterable[str]) -> list[str]:
            return [title, *(f"  {name:<{width}}  {self[name]:>12,}" for name in names if self[name])]

        rest = sorted(self.keys() - set(FAULTS))
        return "\n".join((*part("faults injected", FAULTS), *part("what was met", rest)))
