"""The Spark data source `metadata_log`: a node's log as tables and streams, read in parallel.

    spark.read.format("metadata_log").option("path", DIR).option("mode", "records").load()
    spark.readStream.format("metadata_log").option("path", DIR).option("mode", "records").load()

Options:
    path          a data directory, an `@metadata` directory, or a JSON list of several; one for a stream
    mode          batches (default), records, entities, snapshots, activity, packed or stretches: see `schema`; or the name of a
                  record type, such as PartitionChange: see `typed`
    until         committed (default: what the files prove), uncommitted or flushed (the durable end at the start), end, an
                  offset, or a JSON object {path: offset}: see `reading.ends`
    beside        a directory, or a JSON list of several, that only help to prove what is committed
    since         an offset; not for activity and stretches
    standing      a JSON object {path: offset}: the end of the snapshot on which a job stands; the segments below are not read
    archive       true (default) or false: the segments in `archive/` are read, too
    types         type numbers, comma-separated; only for records
    pushdown      true: the source answers filters, for one query (see `typed.reader`); for batches, records, entities and the
                  name of a record type
    damage        fail (default) or skip; only for the name of a record type
    invisible     JSON list of [from, to) offset ranges to leave out; only for entities and packed
    base          name of the snapshot below the log, to be read first; only for entities and packed
    first_ms, bucket_ms    begin and length of the time buckets; only for activity
    wanted        JSON list of offsets: which ends of batches to tell; only for stretches
    split_bytes   about how many bytes one task reads (default: an eighth of the logs, from 4 to 64 MiB)

One `InputPartition` is a part of a file between two batch boundaries. The driver plans with file names and headers
only. The workers open the files themselves, so a log in an object store is read by the workers.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from snapshots.offline.reading.options import parse_options
from snapshots.offline.reading.stream import LogStreamReader
from snapshots.offline.reading.tables import table_reader
from snapshots.offline.schema import TABLES, spark_schema
from snapshots.offline.typed.arrow_schema import spark_schema_of
from snapshots.offline.typed.columns import CLASSES, schema_of
from snapshots.offline.typed.reader import typed_reader


class MetadataLogSource(DataSource):  # type: ignore[misc]
    """The data source; see the top of this file."""

    @classmethod
    def name(cls) -> str:
        return "metadata_log"

    def schema(self) -> StructType:
        mode = parse_options(self.options).mode
        return spark_schema(TABLES[mode]) if mode in TABLES else spark_schema_of(schema_of(CLASSES[mode]))

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = parse_options(self.options)
        return typed_reader(settings) if settings.is_typed else table_reader(settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return LogStreamReader(parse_options(self.options))
