"""The batches of all nodes, as the audit asks about them: answered from the look at whole logs, or from the rows of the table.

Whole logs with one history have no finding in their batches, so nothing else is read. If a log is not whole, or the logs differ,
the rows of all batches tell what is wrong and where.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from metadata_log.format.ids import Epoch, Offset
from snapshots.offline.audit.batch_checks import (
    NodeBatches,
    Places,
    chains_at,
    check_batches,
    compare_nodes,
    first_batches,
    places_of,
    summarize,
    with_history,
)
from snapshots.offline.audit.findings import Finding
from snapshots.offline.inputs import NodeLog, standing_text
from snapshots.offline.look import FirstBatch, WholeLog, agree, look
from snapshots.offline.punctuation import Punctuation, read_punctuation, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str], None]


class Batches(Protocol):
    """The answers."""

    nodes: dict[str, NodeBatches]
    """The numbers of each node that has an intact batch."""
    findings: list[Finding]
    """The findings in the batches, on each node and between nodes."""

    def chains_at(self, offsets: set[Offset]) -> dict[tuple[str, Offset], bytes]:
        """Return the chain at each of these ends, for each node with a batch that ends there."""

    def epoch_at(self, node: str, offset: Offset) -> Epoch | None:
        """Return the epoch of the batch that ends at `offset` on `node`; None if no batch ends there."""

    def places_of(self, offsets: Iterable[Offset]) -> Places:
        """Return the batches that have these offsets, of all nodes."""

    def firsts(self) -> list[FirstBatch]:
        """Return the first batch of each epoch on each node."""

    def punctuation(self) -> dict[str, Punctuation]:
        """Return the punctuation of each node's log."""

    def unpersist(self) -> None:
        """Free the memory of the rows, if Spark keeps any."""


def read_batches(
    spark: "SparkSession", logs: Sequence[NodeLog], until: str, progress: Progress, wanted: Iterable[Offset] = ()
) -> Batches:
    """Check all batches below `until` (see `datasource`), on each node and between nodes. Somebody will ask for the chains at the
    ends in `wanted`.
    """
    ends = set(wanted)
    ends |= {log.flushed.end for log in logs if log.flushed} | {log.start.start.offset for log in logs if log.start}
    ends |= {end.offset for log in logs for end in log.snapshots}
    whole = look(spark, logs, until, ends)
    if whole is not None and agree(whole.values()):
        return WholeBatches(spark, logs, until, whole, ends)
    return _Rows(spark, logs, until, progress)


class _Rows:
    """The answers from the table, which Spark keeps."""

    def __init__(self, spark: "SparkSession", logs: Sequence[NodeLog], until: str, progress: Progress) -> None:
        self._spark = spark
        self._paths = [log.path for log in logs]
        self._until = until
        self._standing = standing_text(logs)
        self._table: DataFrame = read_table(spark, self._paths, "batches", until=until, standing=self._standing).cache()
        self.nodes = summarize(self._table)
        self.findings = check_batches(with_history(self._table))
        progress("comparing the nodes")
        self.findings += compare_nodes(self._table, len(logs))

    def chains_at(self, offsets: set[Offset]) -> dict[tuple[str, Offset], bytes]:
        return chains_at(self._table, offsets)

    def epoch_at(self, node: str, offset: Offset) -> Epoch | None:
        held = self.places_of([offset - 1]).get(offset - 1, {}).get(node)
        return None if held is None or (node, offset) not in self.chains_at({offset}) else held.epoch

    def places_of(self, offsets: Iterable[Offset]) -> Places:
        return places_of(self._table, offsets)

    def firsts(self) -> list[FirstBatch]:
        return first_batches(self._table)

    def punctuation(self) -> dict[str, Punctuation]:
        return read_punctuation(self._spark, self._paths, self._until, self._standing)

    def unpersist(self) -> None:
        self._table.unpersist()


class WholeBatches:
    """The answers from the look at whole logs."""

    def __init__(
        self,
        spark: "SparkSession | None",
        logs: Sequence[NodeLog],
        until: str,
        whole: dict[str, WholeLog],
        ends: set[Offset],
    ) -> None:
        self._spark = spark
        self._paths = [log.path for log in logs]
        self._until = until
        self._standing = standing_text(logs)
        self._whole = whole
        self._ends = ends
        self.nodes = {node: _numbers(log) for node, log in whole.items()}
        self.findings: list[Finding] = []

    def chains_at(self, offsets: set[Offset]) -> dict[tuple[str, Offset], bytes]:
        assert offsets <= self._ends, "the look was not told of these ends"
        return {
            (node, offset): log.ends[offset].chain
            for node, log in self._whole.items()
            for offset in offsets
            if offset in log.ends
        }

    def epoch_at(self, node: str, offset: Offset) -> Epoch | None:
        end = self._whole[node].ends.get(offset)
        return None if end is None else end.epoch

    @cached_property
    def _table(self) -> "DataFrame":
        """The rows of all batches. Nobody asks for them before there is a finding in the records."""
        assert self._spark is not None, "the rows of batches need Spark"
        return read_table(self._spark, self._paths, "batches", until=self._until, standing=self._standing).cache()

    def places_of(self, offsets: Iterable[Offset]) -> Places:
        wanted = set(offsets)
        return places_of(self._table, wanted) if wanted else {}

    def firsts(self) -> list[FirstBatch]:
        return [first for log in self._whole.values() for first in log.firsts]

    def punctuation(self) -> dict[str, Punctuation]:
        return {node: log.punctuation for node, log in self._whole.items()}

    def unpersist(self) -> None:
        if "_table" in self.__dict__:
            self._table.unpersist()


def _numbers(log: WholeLog) -> NodeBatches:
    return NodeBatches(
        segments=log.segments,
        batches=log.batches,
        records=log.records,
        size=log.size,
        first_offset=log.first_offset,
        end_offset=log.end.offset,
        last_epoch=log.end.epoch,
        chain=log.end.chain,
        first_ms=log.first_ms,
        last_ms=log.end.timestamp_ms,
        first_previous_chain=log.previous_chain,
    )
