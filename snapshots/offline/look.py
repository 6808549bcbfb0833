"""The look at healthy logs: join the stretches of each node, and answer from them what the jobs ask about batches.

Only the joints are checked here: `stretch` has checked what lies between. A node whose stretches are whole and join has no
finding in its batches. Any doubt gives None, and the job reads the table `batches`, whose rows show what is wrong, and where.
"""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metadata_log.format.ids import Epoch, Offset
from snapshots.offline.inputs import NodeLog, standing_text
from snapshots.offline.punctuation import Placed, Punctuation, punctuation_of, read_table
from snapshots.offline.stretch import End, WholeStretch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FirstBatch(NamedTuple):
    """The first batch of an epoch on a node."""

    node: str
    epoch: Epoch
    offset: Offset
    file: str
    position: int


class WholeLog(NamedTuple):
    """A node's log below its durable end, which is whole from its first segment on."""

    segments: int
    batches: int
    records: int
    size: int
    first_offset: Offset
    first_ms: int
    previous_chain: bytes
    """The chain before the first batch."""
    end: End
    ends: dict[Offset, End]
    """The wanted ends, the end of each control batch, and the last end."""
    firsts: tuple[FirstBatch, ...]
    punctuation: Punctuation


def look(
    spark: "SparkSession", logs: Sequence[NodeLog], until: Offset | str, wanted: Iterable[Offset]
) -> dict[str, WholeLog] | None:
    """Read all batches of all logs once. Return None if a log is not whole, or has no batch."""
    options: dict[str, Any] = {"until": until, "standing": standing_text(logs), "wanted": json.dumps(sorted(wanted))}
    table = read_table(spark, [log.path for log in logs], "stretches", **options)
    return joined([log.node for log in logs], table.toArrow().to_pylist())


def joined(nodes: Sequence[str], rows: Iterable[dict[str, Any]]) -> dict[str, WholeLog] | None:
    """Join the rows of the table `stretches`. Return None if a log is not whole, or has no batch."""
    by_node: dict[str, list[dict[str, Any]]] = {node: [] for node in nodes}
    for row in rows:
        if row["facts"] is None or row["node"] not in by_node:
            return None
        by_node[row["node"]].append(row)
    found: dict[str, WholeLog] = {}
    for node, stretches in by_node.items():
        stretches.sort(key=lambda row: (row["file"], row["position"]))
        whole = _join(node, [(row["file"], WholeStretch.from_text(row["facts"])) for row in stretches])
        if whole is None:
            return None
        found[node] = whole
    return found


def agree(logs: Iterable[WholeLog]) -> bool:
    """Return True if all logs certainly have one history.

    A chain is a hash of all batches before. So a log agrees with a longer log if the longer log has the chain of the shorter log
    at the end of the shorter log.
    """
    by_end = sorted(logs, key=lambda log: log.end.offset)
    longest = by_end[-1]
    return all(
        log.end.offset in longest.ends
        and longest.ends[log.end.offset].chain == log.end.chain
        and longest.first_offset < log.end.offset
        for log in by_end
    )


def _join(node: str, stretches: list[tuple[str, WholeStretch]]) -> WholeLog | None:
    some = [(file, stretch) for file, stretch in stretches if stretch.batches]
    if not some:
        return None
    end: End | None = None
    ends: dict[Offset, End] = {}
    firsts: list[FirstBatch] = []
    placed: list[Placed] = []
    for file, stretch in some:
        if end is not None and not _continues(stretch, end):
            return None
        for epoch, offset, position in stretch.beginnings:
            if not firsts or epoch > firsts[-1].epoch:
                firsts.append(FirstBatch(node, epoch, offset, file, position))
        end = stretch.end
        ends |= {each.offset: each for each in (*stretch.ends, end)}
        placed += stretch.placed
    first = some[0][1]
    assert end is not None
    return WholeLog(
        len({file for file, _ in some}),
        sum(stretch.batches for _, stretch in some),
        sum(stretch.records for _, stretch in some),
        sum(stretch.size for _, stretch in some),
        first.first_offset, first.first_ms, first.previous_chain, end, ends, tuple(firsts), punctuation_of(placed),
    )  # fmt: skip


def _continues(stretch: WholeStretch, end: End) -> bool:
    return (
        stretch.first_offset == end.offset
        and stretch.previous_chain == end.chain
        and stretch.beginnings[0].epoch >= end.epoch
        and stretch.first_ms >= end.timestamp_ms
    )
