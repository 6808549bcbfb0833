"""A log as a stream: each micro-batch has the records that were proven to be committed since the one before.

The progress is the offset at which the micro-batch ends, `{"offset": N}`. Spark keeps it in the checkpoint of the query, so a
query that is started again goes on there, and each record comes once. Example, the directory of broker 101:
  1. The query begins at 0, and the durable end is 60: the first micro-batch has [0, 60).
  2. The query stops at 60, and the broker appends up to 90.
  3. The query starts again with its checkpoint, and reads [60, 90).
  4. While the query is stopped again, retention deletes all below 200. The query fails, because [90, 200) is gone.
A broker is given committed records only, so its directory is the best one for a stream. The directory of one controller proves
what its newest snapshot has. Nothing is proven yet: the stream waits.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from snapshots.offline.inputs import NodeLog, find_log
from snapshots.offline.reading.ends import NothingProven, ends_of
from snapshots.offline.reading.options import END, Settings
from snapshots.offline.reading.parts import parts_of, with_archive
from snapshots.offline.reading.tables import TableReader
from snapshots.offline.typed.filters import Bounds
from snapshots.offline.typed.reader import TypedReader

MODES: Final = ("batches", "records", "entities")
"""The tables that can be streams, beside the record types."""
SPLIT_BYTES: Final = 4 << 20
"""About how many bytes of a segment are read again for the records behind them."""

Progress = dict[str, int]


class LogStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Tells Spark how far the log reaches, and reads the parts between two ends."""

    def __init__(self, settings: Settings) -> None:
        if not settings.is_typed and settings.mode not in MODES:
            raise ValueError(
                f"metadata_log: mode {settings.mode!r} cannot be a stream; there are {', '.join(MODES)}, and the name of each "
                "record type"
            )
        if len(settings.paths) != 1 or settings.until == END or settings.base is not None or settings.pushes_down:
            raise ValueError(
                "metadata_log: a stream reads one directory, up to a durable end, without base and pushdown; name other "
                'directories with .option("beside", DIRECTORY)'
            )
        self._settings = settings

    def initialOffset(self) -> Progress:  # noqa: N802 (Spark's name, as below)
        lowest = [segment.base_offset for segment in self._log().segments[:1]]
        return {"offset": max(self._settings.since, *lowest, 0)}

    def latestOffset(self, start: Progress | None = None, limit: Any = None) -> Progress:  # noqa: N802
        begin = self.initialOffset() if start is None else start
        log = self._log()
        try:
            end = ends_of([log], self._settings.until, self._settings.beside)[log.path]
        except NothingProven:
            return begin
        if log.durable_end is None or end is None:
            return begin
        return {"offset": max(begin["offset"], min(end, log.durable_end))}

    def partitions(self, start: Progress, end: Progress) -> list[InputPartition]:
        begin, until = start["offset"], end["offset"]
        if begin >= until:
            return []
        log = self._log()
        _check_reach(log, begin)
        split_bytes = self._settings.split_bytes or SPLIT_BYTES
        return list(parts_of(log, until, Bounds(since=begin), split_bytes, prunes=True, strict=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settings = self._settings
        yield from (TypedReader(settings) if settings.is_typed else TableReader(settings)).read(partition)

    def _log(self) -> NodeLog:
        log = find_log(self._settings.paths[0])
        return with_archive(log) if self._settings.reads_archive else log


def _check_reach(log: NodeLog, begin: Offset) -> None:
    """Refuse a log without the record at `begin`.

    Raises:
        LogFormatError: the log starts above.
    """
    first = log.segments[0].base_offset if log.segments else None
    if first is None or first > begin:
        raise LogFormatError(
            f"{log.path} has no record at {begin} any more, and the stream ends there: it begins at {first}. Read another node's "
            "directory with the same checkpoint, or begin a new query"
        )
