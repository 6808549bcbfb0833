"""The Spark job: find the names of topics, deal the records into shares, and replay each share.

    segments --topics--> the share of each topic
    segments --deal--> rows of DEALT --repartition(share), sort(share, generation, first)--> replay --> one result per share

The log is read twice, because a record of a partition does not have the name of its topic. The first pass decodes topics only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import SkippedBatch, Topic
from snapshots.format import snapshot_name
from snapshots.offline.inputs import NodeLog
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.rows import FROM_LOG
from snapshots.offline.scan import FileRange, scan, split
from snapshots.offline.schema import BatchBuilder, Column, arrow_schema, spark_schema
from snapshots.offline.shares.dealing import DEALT, UNREAD, Dealer, Row, Topics, topics_in, topics_of
from snapshots.offline.shares.replayed import Replayed, add_up, result_of
from snapshots.offline.shares.share import Share
from snapshots.offline.typed.arrow_schema import record_batch
from snapshots.reader import read_runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS: Final = (Column("topic_id", "binary"), Column("name", "string"))
RESULTS: Final = (Column("share", "int"), Column("result", "string"))
_SPLIT_BYTES: Final = 16 << 20

Batches = Iterator[pa.RecordBatch]


class Source(NamedTuple):
    """The part of a node's log to replay: [since, until), on top of the snapshot that ends at `since`."""

    directory: str
    base: OffsetAndEpoch | None
    since: Offset
    until: Offset
    skips: tuple[SkippedBatch, ...]
    stretches: tuple[FileRange, ...]


def source_of(log: NodeLog, base: OffsetAndEpoch | None, until: Offset, skips: Iterable[SkippedBatch]) -> Source:
    """Plan the parts of the log's files, about 16 MiB each."""
    since = 0 if base is None else base.offset
    stretches: list[FileRange] = []
    for name, *_ in log.segments_needed(since, until):
        try:
            file = log.directory.open(name)
        except FileNotFoundError:
            stretches.append(FileRange(name, 0, 0, None, None))
            continue
        try:
            stretches += split(file, name, _SPLIT_BYTES)
        finally:
            file.close()
    return Source(log.path, base, since, until, tuple(skips), tuple(stretches))


def replay_in_shares(spark: "SparkSession", source: Source, cuts: Iterable[Offset]) -> Replayed:
    """Replay the log strictly. `cuts` are the offsets at which a digest is wanted; the last one is the end."""
    share_count = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    tasks = len(source.stretches) + (source.base is not None)
    wanted = sorted(set(cuts))
    if not tasks:
        return add_up((), wanted)

    def each_part(run: Callable[[Batches], Batches], columns: tuple[Column, ...]) -> "DataFrame":
        return spark.range(0, tasks, 1, tasks).mapInArrow(run, spark_schema(columns))

    named = each_part(_FindTopics(source), TOPICS).toArrow().to_pylist()
    topics = topics_of(((row["topic_id"], row["name"]) for row in named), share_count)
    dealt = each_part(_Deal(source, topics), DEALT).repartition(share_count, "share")
    ordered = dealt.sortWithinPartitions("share", "generation", "first")
    rows = ordered.mapInArrow(_ReplayShares(wanted), spark_schema(RESULTS)).toArrow().to_pylist()
    return add_up((row["result"] for row in rows), wanted)


# --- on the workers ---------------------------------------------------------------------------------------------------


class _Unread(Exception):
    """A part of the log is gone or damaged. The audit has checked the log before, so the node has changed it since."""


class _FindTopics:
    """The first pass. A class instead of a closure, so that workers find it by name."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, batches: Batches) -> Batches:
        for number in _numbers(batches):
            builder = BatchBuilder(TOPICS)
            for row in self._rows(number):
                builder.add(row)
                if builder.is_full:
                    yield builder.take()
            yield builder.take()

    def _rows(self, number: int) -> Iterator[tuple[bytes, str]]:
        source = self._source
        try:
            if number == len(source.stretches):
                yield from ((each.topic_id, each.name) for each in _base_records(source) if isinstance(each, Topic))
                return
            for batch in _batches(source, number):
                yield from topics_in(batch)
        except _Unread:
            return  # the second pass tells


class _Deal:
    """The second pass."""

    def __init__(self, source: Source, topics: Topics) -> None:
        self._source = source
        self._topics = topics

    def __call__(self, batches: Batches) -> Batches:
        for number in _numbers(batches):
            for row in self._rows(number):
                builder = BatchBuilder(DEALT)
                builder.add(row)
                yield builder.take()

    def _rows(self, number: int) -> Iterator[Row]:
        source = self._source
        dealer = Dealer(self._topics, source.skips, source.since)
        try:
            if number == len(source.stretches):
                yield from dealer.take_canonical(_base_records(source))
                return
            for batch in _batches(source, number):
                dealer.take(batch)
                yield from dealer.full_rows()
        except _Unread as e:
            dealer.problem(-1, source.until, UNREAD, str(e))
        yield from dealer.rows()


class _ReplayShares:
    """Replays the shares of one task, one after the other."""

    def __init__(self, cuts: Sequence[Offset]) -> None:
        self._cuts = cuts

    def __call__(self, batches: Batches) -> Batches:
        def rows() -> Iterator[tuple[Any, ...]]:
            for batch in batches:
                yield from zip(*(batch.column(i).to_pylist() for i in range(len(DEALT))), strict=True)

        results: list[tuple[int, str]] = []
        for number, group in groupby(rows(), key=lambda row: row[0]):
            share = Share(number, self._cuts)
            for _, generation, _, offsets, sizes, payload in group:
                share.take(generation, offsets, sizes, payload)
            share.finish()
            results.append((number, result_of(share, number)))
        yield record_batch(arrow_schema(RESULTS), results)


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _base_records(source: Source) -> Iterator[Any]:
    assert source.base is not None
    directory = ReadOnlyDirectory(source.directory)
    try:
        yield from read_runs(directory, source.base)
    except FileNotFoundError:
        raise _Unread(f"{snapshot_name(source.base)} is gone") from None


def _batches(source: Source, number: int) -> Iterator[Batch]:
    """Return the batches of one stretch.

    Raises:
        _Unread: a part is gone or damaged.
    """
    stretch = source.stretches[number]
    try:
        file = ReadOnlyDirectory(source.directory).open(stretch.name)
    except FileNotFoundError:
        raise _Unread(f"{stretch.name} is gone") from None
    try:
        for each in scan(file, stretch, source.until):
            if each.batch is None:
                raise _Unread(f"{stretch.name}, position {each.position}: {each.error}")
            yield each.batch
    finally:
        file.close()


assert FROM_LOG == 1, "rows are sorted by generation: the snapshot comes first"
