"""Checks of batches, on each node and between nodes, over the table `batches`.

Each damaged place is reported once, by the rule that says most. Example: the batch of 40..49 is missing. The batch of
50..59 then begins at a wrong offset and has a wrong previous chain; the audit reports one `offset-gap`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.format.ids import Epoch, Offset
from snapshots.offline.audit.findings import Finding, Severity, error
from snapshots.offline.look import FirstBatch
from snapshots.offline.punctuation import Punctuation
from snapshots.offline.schema import Column, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FINDINGS_MAX: Final = 1_000
"""Maximum number of findings of each kind."""
_OFFSETS: Final = (Column("offset", "long"),)


def with_history(batches: "DataFrame") -> "DataFrame":
    """Add to each batch the values of the batches before it on the same node."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("node").orderBy("file", "position")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    return (
        batches.withColumn("before_end", f.lag("end_offset").over(order))
        .withColumn("before_chain", f.lag("chain").over(order))
        .withColumn("before_file", f.lag("file").over(order))
        .withColumn("before_position", f.lag("position").over(order))
        .withColumn("before_epoch", f.max("epoch").over(before))
        .withColumn("before_time", f.max("last_timestamp").over(before))
        .withColumn("intact_to", f.max("end_offset").over(before))
    )


def check_batches(history: "DataFrame") -> list[Finding]:
    """Find damage, gaps, broken chains, and epochs and times that decrease. `history` is the result of
    `with_history`.
    """
    from pyspark.sql import functions as f

    comes_next = f.coalesce("before_end", "expected_offset")
    is_first = f.col("file") != f.coalesce("before_file", f.lit(""))
    rule = (
        f.when(f.col("error").isNotNull(), "damaged-batch")
        .when(f.col("base_offset") != comes_next, "offset-gap")
        .when(is_first & (f.col("previous_chain") != f.col("before_chain")), "segment-chain")
        .when(f.col("chain_ok") == f.lit(False), "chain-broken")
        .when(f.col("epoch") < f.col("before_epoch"), "epoch-regression")
        .when(
            (f.col("first_timestamp") < f.col("before_time")) | (f.col("first_timestamp") > f.col("last_timestamp")),
            "time-regression",
        )
    )
    columns = (
        "node", "file", "position", "base_offset", "end_offset", "epoch", "before_epoch", "intact_to", "error",
        "expected_offset", comes_next.alias("comes_next"), "rule", "first_timestamp", "before_time", "before_file",
        "before_position",
    )  # fmt: skip
    bad = history.withColumn("rule", rule).where(f.col("rule").isNotNull()).select(*columns)
    rows = bad.orderBy("node", "file", "position").limit(FINDINGS_MAX).toArrow().to_pylist()
    return [*_joined(rows)]


def _joined(rows: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    """Return one finding for batches in a row that are all out of place. Example: 42 and 43 are swapped, so 43, 42 and 44 each
    follow a batch that they should not follow.
    """
    first: Finding | None = None
    last, more = ("", "", -1), 0
    for row in rows:
        is_gap = row["rule"] == "offset-gap"
        if first is not None and is_gap and (row["node"], row["before_file"], row["before_position"]) == last:
            more += 1
        else:
            if first is not None:
                yield _with_more(first, more)
            first, more = _batch_finding(row), 0
        last = (row["node"], row["file"], row["position"]) if is_gap else ("", "", -1)
    if first is not None:
        yield _with_more(first, more)


def _with_more(finding: Finding, more: int) -> Finding:
    if not more:
        return finding
    return finding._replace(detail=f"{finding.detail}; and {more} more behind it, each out of place")


def _batch_finding(row: dict[str, Any]) -> Finding:
    rule = row["rule"]
    batch = f"[{row['base_offset']}, {row['end_offset']})"
    details = {
        "damaged-batch": row["error"],
        "offset-gap": f"the batch {batch} is at a place where offset {row['comes_next']} is expected",
        "segment-chain": f"the segment that begins with {batch} does not continue the one before it",
        "chain-broken": f"the batch {batch} is not what its chain says, or follows another history",
        "epoch-regression": f"the batch {batch} is of epoch {row['epoch']}, after epoch {row['before_epoch']}",
        "time-regression": f"the batch {batch} begins at {row['first_timestamp']}, after {row['before_time']}",
    }
    offset = row["base_offset"] if row["error"] is None else row["expected_offset"]
    if offset is None:
        offset = row["intact_to"]
    return error(
        rule, details[rule], node=row["node"], file=row["file"], position=row["position"], offset=offset or 0
    )  # fmt: skip


class NodeBatches(NamedTuple):
    """The numbers of one node's log."""

    segments: int
    batches: int
    records: int
    size: int
    first_offset: Offset
    end_offset: Offset
    last_epoch: int
    chain: bytes
    first_ms: int
    last_ms: int
    first_previous_chain: bytes | None


def summarize(batches: "DataFrame") -> dict[str, NodeBatches]:
    """Return the numbers of each node that has an intact batch."""
    from pyspark.sql import functions as f

    intact = batches.where("error IS NULL")
    rows = intact.groupBy("node").agg(
        f.countDistinct("file").alias("segments"),
        f.count("*").alias("batches"),
        f.sum("record_count").alias("records"),
        f.sum("bytes").alias("size"),
        f.min("base_offset").alias("first_offset"),
        f.max("end_offset").alias("end_offset"),
        f.max("epoch").alias("last_epoch"),
        f.max_by("chain", "end_offset").alias("chain"),
        f.min(f.unix_millis("first_timestamp")).alias("first_ms"),
        f.max(f.unix_millis("last_timestamp")).alias("last_ms"),
        f.min_by("previous_chain", f.struct("file", "position")).alias("first_previous_chain"),
    )
    return {row.pop("node"): NodeBatches(**row) for row in rows.toArrow().to_pylist()}


def chains_at(batches: "DataFrame", offsets: set[Offset]) -> dict[tuple[str, Offset], bytes]:
    """Return the chain at each of these ends, for each node with a batch that ends there."""
    if not offsets:
        return {}
    rows = batches.where(batches["end_offset"].isin(sorted(offsets))).select("node", "end_offset", "chain")
    return {(row["node"], row["end_offset"]): row["chain"] for row in rows.toArrow().to_pylist()}


def first_batches(batches: "DataFrame") -> list[FirstBatch]:
    """Return the first batch of each epoch on each node."""
    from pyspark.sql import functions as f

    firsts = (
        batches.where("error IS NULL")
        .groupBy("node", "epoch")
        .agg(
            f.min("base_offset").alias("offset"),
            f.min_by("file", "base_offset").alias("file"),
            f.min_by("position", "base_offset").alias("position"),
        )
    )
    return [FirstBatch(**row) for row in firsts.toArrow().to_pylist()]


class Held(NamedTuple):
    """A batch of one node that has a wanted offset."""

    file: str
    position: int
    base_offset: Offset
    epoch: Epoch
    chain: bytes


Places = Mapping[Offset, Mapping[str, Held]]
"""Offset -> node -> the batch that has the offset."""


def places_of(batches: "DataFrame", offsets: Iterable[Offset]) -> Places:
    """Return the batches that have these offsets, of all nodes."""
    from pyspark.sql import functions as f

    wanted = sorted(set(offsets))
    found: dict[Offset, dict[str, Held]] = defaultdict(dict)
    if wanted:
        table = batches.sparkSession.createDataFrame([(offset,) for offset in wanted], spark_schema(_OFFSETS))
        held = (f.col("offset") >= f.col("base_offset")) & (f.col("offset") < f.col("end_offset"))
        joined = batches.where("error IS NULL").join(f.broadcast(table), held)
        for row in joined.select("offset", "node", *Held._fields).toArrow().to_pylist():
            found[row["offset"]][row["node"]] = Held(*(row[name] for name in Held._fields))
    return found


def check_skips(punctuation: Mapping[str, Punctuation], wrong: Collection[Offset]) -> list[Finding]:
    """Report each skipped batch once, as of the first node that has it. The records at the offsets in `wrong` skip nothing:
    they name a batch that does not exist.
    """
    found: dict[Offset, Finding] = {}
    for node, records in sorted(punctuation.items()):
        for at, skip in records.skipped():
            detail = (
                f"the batch at offset {skip.offset} of epoch {skip.epoch}, chain {skip.chain.hex()[:16]}: "
                f"[{skip.dropped_start}, {skip.dropped_end}) has no effect"
            )
            if at not in wrong:
                found.setdefault(at, error("batch-skipped", detail, node=node, offset=at, severity=Severity.INFO))
    return list(found.values())


# --- between nodes ----------------------------------------------------------------------------------------------------


def compare_nodes(batches: "DataFrame", node_count: int) -> list[Finding]:
    """Find nodes whose history differs from the others. Equal offset and epoch must mean equal chains (Raft 5.3).

    Different epochs at one offset belong to a tail that was never committed. The node with that tail will cut it.
    """
    from pyspark.sql import functions as f

    if node_count < 2:
        return []
    copies = batches.where("error IS NULL").groupBy("base_offset")
    grouped = copies.agg(
        f.collect_list(f.struct("node", "epoch", "chain", "file", "position")).alias("copies"),
        f.countDistinct("chain").alias("chains"),
        f.countDistinct("epoch").alias("epochs"),
    )
    differing = grouped.where("chains > 1").orderBy("base_offset").limit(FINDINGS_MAX).toArrow().to_pylist()
    return list(_differences(differing))


def _differences(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    accused: set[str] = set()
    has_tail = False
    for row in rows:
        for epoch in sorted({copy["epoch"] for copy in row["copies"]}):
            same_epoch = [copy for copy in row["copies"] if copy["epoch"] == epoch and copy["node"] not in accused]
            for finding in _odd_ones(row["base_offset"], same_epoch):
                accused.add(finding.node or "")
                yield finding
        trusted = [copy for copy in row["copies"] if copy["node"] not in accused]
        if not has_tail and len({copy["epoch"] for copy in trusted}) > 1:
            has_tail = True
            oldest = min(trusted, key=lambda copy: int(copy["epoch"]))
            yield error(
                "divergent-tail",
                "; ".join(f"{copy['node']} has epoch {copy['epoch']}" for copy in trusted),
                node=oldest["node"],
                file=oldest["file"],
                position=oldest["position"],
                offset=row["base_offset"],
                severity=Severity.INFO,
            )


def _odd_ones(base_offset: Offset, copies: list[dict[str, Any]]) -> Iterator[Finding]:
    votes = Counter(copy["chain"] for copy in copies)
    if len(votes) < 2:
        return
    (favourite, most), (_, next_most), *_ = votes.most_common()
    for copy in copies:
        if most > next_most and copy["chain"] == favourite:
            continue
        others = ", ".join(other["node"] for other in copies if other["chain"] != copy["chain"])
        odd = "most nodes have the other chain" if most > next_most else "the audit cannot tell which chain is right"
        yield error(
            "history-differs",
            f"chain {copy['chain'].hex()[:16]} at the batch that begins here differs from that of {others}; {odd}",
            node=copy["node"],
            file=copy["file"],
            position=copy["position"],
            offset=base_offset,
        )
