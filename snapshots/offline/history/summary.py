"""The result of a run, for people and for machines."""

from collections.abc import Iterator
from typing import Any, Final

from snapshots.offline.history.folding.intervals import moment_text
from snapshots.offline.history.run import History

SCHEMA_VERSION: Final = 1


def summary(history: History) -> dict[str, Any]:
    """Return the JSON document of a run."""
    baseline = history.baseline
    return {
        "schema_version": SCHEMA_VERSION,
        "out": str(history.out),
        "node": baseline.node,
        "run": baseline.run,
        "begin_offset": history.begin,
        "end_offset": baseline.end.offset,
        "epoch": baseline.end.epoch,
        "end_time": moment_text(baseline.end.time_ms),
        "chain": None if baseline.chain is None else baseline.chain.hex(),
        "waiting_records": history.waiting,
        "committed": None if history.committed is None else history.committed._asdict(),
        "tables": {name: {"final": final, "open": opened} for name, (final, opened) in sorted(history.rows.items())},
    }


def lines_of(history: History) -> Iterator[str]:
    """Return the lines for people."""
    end = history.baseline.end
    width = max((len(name) for name in history.rows), default=5)
    yield f"{'TABLE':{width}}  FINAL  OPEN"
    for name, (final, opened) in sorted(history.rows.items()):
        yield f"{name:{width}}  {final:>5}  {opened:>4}"
    yield ""
    if end.offset == history.begin:
        yield f"nothing new: the tables end at {end.offset}@{end.epoch}, as far as {history.baseline.node} was read"
    else:
        yield (
            f"records [{history.begin}, {end.offset}) of {history.baseline.node}, up to {moment_text(end.time_ms)}: "
            f"run {history.baseline.run} in {history.out}"
        )
    if history.committed is not None:
        yield f"committed up to {history.committed.end}: {history.committed.proof}"
    if history.waiting:
        yield f"{history.waiting} records of an open transaction are left for the next run"
