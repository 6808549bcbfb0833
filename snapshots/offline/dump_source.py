"""Choose the reader of a log that `dump` prints: metaquorum's own log, or one of Apache Kafka.

Both kinds have segments `<20 digits>.log` and snapshots `.checkpoint`, so the bytes decide. Example:
  1. `/var/lib/kafka` has `__cluster_metadata-0/`: a log of Kafka.
  2. `/tmp/copy` has `00000000000000000000.log`, which begins with a batch of Kafka at offset 0: a log of Kafka too.
  3. `/tmp/mq/controller-1/data` has `@metadata/`: metaquorum's own. Only this reader needs the package pyarrow.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline.kafka import dump as kafka_dump
from snapshots.offline.kafka.log_files import is_kafka, is_kafka_file


class CannotShow(Exception):
    """The options do not fit the log. Nothing was printed. The message says what to do."""


class Shown(NamedTuple):
    """What to print of a log, and in which form."""

    batches: bool
    wanted: kafka_dump.Range
    beyond: bool
    """Print the batches above the durable end too."""
    as_json: bool


def dump_of(path: str, log_format: str, shown: Shown) -> tuple[Iterator[str], kafka_dump.Tally]:
    """Return the lines of a dump, and a tally that is complete behind the last line. `log_format`: auto, own, or kafka.

    Raises:
        CannotShow: the options do not fit the log.
        LogFormatError: there is no log. The lines may raise it too.
    """
    if log_format == "own":
        return _own(path, shown)
    directory, name = place_of(path)
    if log_format == "auto" and not (is_kafka(directory) if name is None else is_kafka_file(directory, name)):
        if name is not None:
            raise CannotShow(
                f"{path} is one file, and no log of Kafka begins in it: name the directory of a log, or, for a damaged file "
                "of Kafka, use --format kafka"
            )
        return _own(path, shown)
    if shown.beyond:
        raise CannotShow("--all is for metaquorum's own log: Kafka notes no durable end, so all its records are shown")
    tally, wanted = kafka_dump.Tally(), shown.wanted
    found = kafka_dump.scan(directory, name, wanted)
    if shown.batches:
        return kafka_dump.batch_lines(found, shown.as_json, tally), tally
    return kafka_dump.record_lines(found, wanted, shown.as_json, tally), tally


def _own(path: str, shown: Shown) -> tuple[Iterator[str], kafka_dump.Tally]:
    from snapshots.offline.dump import batch_lines, record_lines

    form = batch_lines if shown.batches else record_lines
    tally = kafka_dump.Tally()
    return form(path, shown.wanted, shown.beyond, shown.as_json, tally), tally


def place_of(path: str) -> tuple[Directory, str | None]:
    """Return the directory at `path`; for a file its directory and its name."""
    if "://" in path:
        from snapshots.offline.readonly import ReadOnlyDirectory

        return ReadOnlyDirectory(path), None
    local = Path(path)
    return (LocalDirectory(local.parent), local.name) if local.is_file() else (LocalDirectory(local), None)
