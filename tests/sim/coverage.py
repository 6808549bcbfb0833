"""What a run has really done, so that a run in which nothing happened cannot pass for a proof."""

from collections import Counter

REQUIRED = (
    "election",
    "restart",
    "power cut",
    "crash inside a turn",
    "truncation",
    "lost unflushed records",
    "snapshot written",
    "snapshot installed by a controller",
    "snapshot loaded by a broker",
    "log prefix dropped",
    "link cut",
    "pause",
    "message lost",
    "message duplicated",
    "acknowledged write",
    "unknown outcome",
    "linearizable read",
    "broker registered",
    "broker online",
    "broker fenced",
    "broker stopped",
    "lease lapsed",
)
"""Things that some seed of every long run must have met."""


class Coverage(Counter[str]):
    """Counts by name. Role changes are counted as `edge: from -> to`."""

    def missing(self) -> list[str]:
        return [name for name in REQUIRED if not self[name]]

    def table(self) -> str:
        width = max((len(name) for name in self), default=0)
        return "\n".join(f"  {name:<{width}}  {count:>12,}" for name, count in sorted(self.items()))
