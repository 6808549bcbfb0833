"""Arrow schemas as Spark schemas. Each table of the typed view and of the history is defined once, in Arrow.

Spark accepts the Arrow batches of a Python source only if names, types and nullability equal the declared schema, down to the
items of lists and the fields of structs. Example: `pa.list_(pa.int64())` has items that may be null, and Spark's
`ArrayType(LongType(), containsNull=False)` has none. Spark refuses the batch. So `list_of` makes lists without nulls.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def list_of(item: pa.DataType) -> pa.DataType:
    """Return the type of a list without nulls."""
    return pa.list_(pa.field("element", item, nullable=False))


def spark_schema_of(schema: Iterable[pa.Field]) -> "StructType":
    """Return the fields as a Spark schema."""
    from pyspark.sql import types as t

    return t.StructType([t.StructField(each.name, spark_type_of(each.type), each.nullable) for each in schema])


def spark_type_of(arrow: pa.DataType) -> "DataType":
    """Return the Spark type of the same values."""
    from pyspark.sql import types as t

    if pa.types.is_struct(arrow):
        return spark_schema_of(arrow)
    if pa.types.is_list(arrow):
        return t.ArrayType(spark_type_of(arrow.value_type), containsNull=arrow.value_field.nullable)
    plain: dict[pa.DataType, DataType] = {
        pa.string(): t.StringType(),
        pa.int64(): t.LongType(),
        pa.int32(): t.IntegerType(),
        pa.float64(): t.DoubleType(),
        pa.bool_(): t.BooleanType(),
        pa.binary(): t.BinaryType(),
        pa.date32(): t.DateType(),
        TIMESTAMP: t.TimestampType(),
    }
    return plain[arrow]


def record_batch(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return the rows as one RecordBatch. A struct is a dictionary in its row."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
