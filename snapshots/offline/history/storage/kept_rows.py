"""Checks of the rows that a run keeps for the next run, and that anything may have changed meanwhile.

Example: a bit flips in a file of `_state`. The pages of the file have checksums, so the next run is refused before it changes a
table, and names the file.
"""

import datetime as dt
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.format.ids import OFFSET_MAX
from snapshots.offline.history.folding.intervals import KEYS, check_open_row
from snapshots.offline.history.growth import SUMMED
from snapshots.offline.history.tables import BROKER_STATES, schema_of_table

_SIZES: Final = ("topics", "partitions", "brokers")
_BATCH_ROWS: Final = 10_000


def check_brokers(rows: Any) -> None:
    """Check the open intervals of brokers.

    Raises:
        ValueError, TypeError: they are something else.
    """
    if not isinstance(rows, list):
        raise TypeError("brokers")
    for row in rows:
        check_open_row(BROKER_STATES, row, KEYS[BROKER_STATES])
    pa.RecordBatch.from_pylist([*rows], schema=schema_of_table(BROKER_STATES))


def check_growth(growth: Any) -> None:
    """Check what the next run must know of `growth`.

    Raises:
        ValueError, TypeError: it is something else.
    """
    newest = growth["newest"]
    numbers = [growth[name] for name in _SIZES]
    if newest is not None:
        numbers += [newest[name] for name in SUMMED]
        dt.date.fromisoformat(newest["date"])
    if any(type(number) is not int or not 0 <= number <= OFFSET_MAX for number in numbers):
        raise ValueError("a size of growth")


def rows_in(source: Any, schema: pa.Schema) -> int:
    """Return the number of rows in a file of `_state`, whose pages are read, and compared with their checksums.

    Raises:
        ValueError: the file is damaged, has other columns, or lacks a value.
        OSError: the file cannot be read.
    """
    watched = _Watched(source)
    try:
        with pq.ParquetFile(pa.PythonFile(watched, mode="r"), page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(schema):
                raise ValueError("it has other columns")
            rows = 0
            for batch in file.iter_batches(_BATCH_ROWS):
                if any(column.null_count for column in batch.columns):
                    raise ValueError(f"a value is missing in the rows from {rows} on")
                rows += batch.num_rows
            return rows
    except OSError as e:
        if watched.has_failed or e.errno is not None:
            raise  # of the store or the disk, and not of a page with a wrong checksum
        raise ValueError(" ".join(str(e).split())) from None
    except pa.ArrowException as e:
        raise ValueError(" ".join(str(e).split())) from None


class _Watched:
    """A file that remembers a failed read. Example: a store that is away, and a page with a wrong checksum, are both an OSError
    without a number. Only the second one is damage, after which the tables must be made anew.
    """

    closed = False

    def __init__(self, source: Any) -> None:
        self._source = source
        self.has_failed = False

    def read(self, length: int) -> bytes:
        try:
            return bytes(self._source.read(length))
        except OSError:
            self.has_failed = True
            raise

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._source.seek(position, whence))

    def tell(self) -> int:
        return int(self._source.tell())

    def close(self) -> None:
        """Do nothing: the caller closes the file."""
