"""The table at the end of a run."""

from collections.abc import Mapping

from tests.fuzz.running import Tally
from tests.fuzz.target import ACCEPTED

_SHOWN = 3
"""So many kinds of refusal are named; the rest is counted together."""


def table(tallies: Mapping[str, Tally]) -> str:
    """A line for each target, as Markdown."""
    lines = [
        "| target | inputs | accepted | refused, most often with | slowest ms | failed |",
        "|---|--:|--:|---|--:|--:|",
    ]
    lines += [_line(tally) for tally in tallies.values()]
    inputs = sum(tally.outcomes.total() for tally in tallies.values())
    failures = sum(len(tally.failures) for tally in tallies.values())
    lines += ["", f"{inputs:,} inputs, {failures} failed"]
    return "\n".join(lines)


def _line(tally: Tally) -> str:
    outcomes = tally.outcomes
    refused = [(name, count) for name, count in outcomes.most_common() if name != ACCEPTED and not name.startswith("!")]
    words = [f"{name} {count:,}" for name, count in refused[:_SHOWN]]
    if len(refused) > _SHOWN:
        words.append(f"{len(refused) - _SHOWN} more {sum(count for _, count in refused[_SHOWN:]):,}")
    return (
        f"| {tally.target} | {outcomes.total():,} | {outcomes[ACCEPTED]:,} | {', '.join(words)} | {tally.slowest_ms:.0f} "
        f"| {len(tally.failures)} |"
    )
