"""`quorum-offline import kafka`: what the command prints."""

import json
from pathlib import Path
from typing import Any

import click

from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.errors import LogFormatError
from snapshots.offline.commands.shared import SCHEMA_VERSION, common_options, place_of_results
from snapshots.offline.kafka.importing import CannotImport, Imported, import_log
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.offline.kafka.transcribe.left_out import LeftOut


@click.group("import")
def import_() -> None:
    """Makes the first state of a new cluster from the metadata of another system. Needs neither Java nor Spark."""


@import_.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out", "out_dir", required=True, type=click.Path(file_okay=False, path_type=Path),
    callback=place_of_results,
    help="The directory for the snapshot.",
)  # fmt: skip
@click.option("--to-offset", type=click.IntRange(1), help="Exclusive: the end of a batch; default: the end of the log.")
@click.option(
    "--keep-directories",
    is_flag=True,
    help="Keep the ids of Kafka's log directories: the new brokers use the same disks.",
)
@common_options
def kafka(directory: Path, out_dir: Path, to_offset: int | None, keep_directories: bool, output: str) -> None:
    """Imports the metadata of an Apache Kafka (KRaft) cluster, 3.7 to 4.2.

    DIRECTORY is a log directory of a controller, or its __cluster_metadata-0. Stop the cluster first, and take the directory of
    the last active controller: it has all that was committed. The result is a snapshot, and a list of what is in it in another
    form, or not at all. `quorumctl storage format --snapshot` makes controllers that begin with it.
    """
    try:
        log = find_kafka_log(LocalDirectory(directory))
        if directory.resolve() in (out_dir.resolve(), *out_dir.resolve().parents):
            raise CannotImport(f"{out_dir} lies in Kafka's directory; nothing was written. Choose another directory")
        result = import_log(log, RealDirectory(out_dir), to_offset, keep_directories=keep_directories)
    except CannotImport as e:
        raise click.ClickException(str(e)) from None
    except LogFormatError as e:
        raise click.ClickException(f"{e}. Nothing was written") from None
    except (OSError, FlushFailed) as e:
        raise click.ClickException(f"{e}. There is no snapshot. Repair the cause, and run this again") from None
    click.echo(json.dumps(document(result), indent=2) if output == "json" else "\n".join(lines_of(result)))


def document(result: Imported) -> dict[str, Any]:
    """Return the result as JSON. Offsets of single records are left out: they differ between the nodes of a cluster."""
    return {
        "schema_version": SCHEMA_VERSION,
        "path": result.path,
        "end_offset": result.end.offset,
        "epoch": result.end.epoch,
        "base_offset": None if result.base is None else result.base.offset,
        "records": result.counts,
        "changed": [_json(each) for each in result.changed],
        "left_out": [_json(each) for each in result.left_out],
    }


def _json(each: LeftOut) -> dict[str, Any]:
    return {"what": each.what, "number": each.number, "reason": each.reason}


def lines_of(result: Imported) -> list[str]:
    """Return the result as lines."""
    begin = "the log's beginning" if result.base is None else f"Kafka's snapshot {result.base}"
    lines = [result.path, f"{sum(result.counts.values()):,} records at {result.end}, read from {begin} on", ""]
    rows = [("RECORD", "NUMBER", ""), *((name, f"{number:,}", "") for name, number in sorted(result.counts.items()))]
    lines += _table(rows)
    for title, found in (("IN ANOTHER FORM", result.changed), ("LEFT OUT", result.left_out)):
        if found:
            rows = [(title, "NUMBER", "WHY"), *((each.what, f"{each.number:,}", each.reason) for each in found)]
            lines += ["", *_table(rows)]
    return lines


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    return [f"{a.ljust(first)}  {b.rjust(second)}  {c}".rstrip() for a, b, c in rows]
