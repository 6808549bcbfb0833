"""The tables of a metadata log. Each column is defined once, for Arrow and for Spark.

Spark accepts the Arrow batches of a Python source only if names, types and nullability equal the declared schema. So
the Spark schema is made from the Arrow one (`typed.arrow_schema`).

    batches     one row per batch, and per damaged place
    records     one row per record, for people and queries
    entities    one row per record and entity that the record changes: the input of a fold
    packed      one row per entity and piece of a task: many records, for the fold of millions of them
    activity    how many events of each kind each time bucket has
    snapshots   one row per snapshot: verified, or with an error
    stretches   one row per stretch that a task reads: see `stretch`
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from snapshots.offline.typed.arrow_schema import TIMESTAMP, list_of, record_batch, spark_schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    """One column. Types: string, long, int, boolean, binary, timestamp, strings (an array)."""

    name: str
    type_name: str
    nullable: bool = False


BATCHES: Final = (
    Column("node", "string"),
    Column("file", "string"),
    Column("position", "long"),
    Column("bytes", "long"),
    Column("base_offset", "long", True),
    Column("end_offset", "long", True),
    Column("expected_offset", "long", True),
    Column("epoch", "long", True),
    Column("control", "boolean", True),
    Column("record_count", "int", True),
    Column("first_timestamp", "timestamp", True),
    Column("last_timestamp", "timestamp", True),
    Column("crc_ok", "boolean"),
    Column("chain", "binary", True),
    Column("previous_chain", "binary", True),
    Column("chain_ok", "boolean", True),
    Column("error", "string", True),
)

RECORDS: Final = (
    Column("node", "string"),
    Column("file", "string"),
    Column("position", "long"),
    Column("offset", "long", True),
    Column("epoch", "long", True),
    Column("timestamp", "timestamp", True),
    Column("type", "int", True),
    Column("type_name", "string", True),
    Column("version", "int", True),
    Column("entities", "strings"),
    Column("topic_id", "string", True),
    Column("broker_id", "long", True),
    Column("payload", "binary", True),
    Column("json", "string", True),
    Column("error", "string", True),
)

ENTITIES: Final = (
    Column("entity", "string"),
    Column("generation", "int"),
    Column("offset", "long"),
    Column("payload", "binary"),
)
"""`generation` 0: a record of the snapshot below the log, and `offset` is its number in that snapshot; 1: a record of
the log."""

PACKED: Final = (
    Column("entity", "string"),
    Column("generation", "int"),
    Column("offset", "long"),
    Column("sizes", "binary"),
    Column("offsets", "binary"),
    Column("payload", "binary"),
)
"""Generation as in `entities`; `offset` is that of the first record. `packed` explains the other columns."""

ACTIVITY: Final = (
    Column("kind", "string"),
    Column("bucket", "long"),
    Column("count", "long"),
)

SNAPSHOTS: Final = (
    Column("node", "string"),
    Column("file", "string"),
    Column("end_offset", "long"),
    Column("epoch", "long"),
    Column("timestamp", "timestamp", True),
    Column("bytes", "long"),
    Column("record_count", "long", True),
    Column("digest", "binary", True),
    Column("chain", "binary", True),
    Column("error", "string", True),
)
SNAPSHOTS_MODE: Final = "snapshots"

STRETCHES: Final = (
    Column("node", "string"),
    Column("file", "string"),
    Column("position", "long"),
    Column("facts", "string", True),
)
"""`facts` is null if the stretch is not whole; else the text of a `stretch.WholeStretch`."""

TABLES: Final = {
    "batches": BATCHES,
    "records": RECORDS,
    "entities": ENTITIES,
    "packed": PACKED,
    "activity": ACTIVITY,
    SNAPSHOTS_MODE: SNAPSHOTS,
    "stretches": STRETCHES,
}

_ARROW: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": TIMESTAMP,
    "strings": list_of(pa.string()),
}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the columns as an Arrow schema."""
    return pa.schema([pa.field(column.name, _ARROW[column.type_name], column.nullable) for column in columns])


def spark_schema(columns: tuple[Column, ...]) -> "StructType":
    """Return the columns as a Spark schema."""
    return spark_schema_of(arrow_schema(columns))


class BatchBuilder:
    """Collects rows and returns them as Arrow RecordBatches of bounded size."""

    ROWS: Final = 10_000
    BYTES: Final = 8 << 20

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._rows: list[tuple[object, ...]] = []
        self._bytes = 0

    def add(self, row: tuple[object, ...], payload_bytes: int = 0) -> None:
        self._rows.append(row)
        self._bytes += payload_bytes

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= self.ROWS or self._bytes >= self.BYTES

    def take(self) -> pa.RecordBatch:
        """Return all rows so far, as one RecordBatch."""
        rows, self._rows, self._bytes = self._rows, [], 0
        return record_batch(self._schema, rows)
