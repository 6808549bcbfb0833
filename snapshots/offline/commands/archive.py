"""`quorum-offline archive merge`: merges the archived segments of a node. The only job that writes into a node's directory.

It writes in `@metadata/archive` alone, which the node's log does not need. Example, on the machine of controller 1:
  1. `archive/` has 16 segments of 64 MiB. `archive merge DIRECTORY` makes four files of about 100 MB of them.
  2. `quorumctl topics list --at-offset 1246` reads offset 1,246 out of the first file.
  3. `metadata.log.archive.max.bytes` counts the 400 MB: the archive reaches further back than before.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from metadata_log.disk.failures import DirectoryInUse, FlushFailed
from metadata_log.disk.files import RealDirectory
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.archived.merging import TARGET_BYTES, CannotMerge, Result, merge
from snapshots.offline.commands.shared import EXIT_FINDINGS, SCHEMA_VERSION, common_options

_METADATA: Final = "@metadata"
_MIB: Final = 1 << 20


@click.group()
def archive() -> None:
    """Works on the archived segments of a node."""


@archive.command("merge")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--keep", type=click.IntRange(0), default=0, show_default=True, help="How many of the newest segments stay."
)
@click.option(
    "--target-mib", type=click.IntRange(1, 65_536), default=TARGET_BYTES // _MIB, show_default=True,
    help="How many MiB of segments one file holds, before compression. The node deletes a file as a whole.",
)  # fmt: skip
@common_options
def merge_(directory: Path, keep: int, target_mib: int, output: str) -> None:
    """Merges archived segments into larger, compressed files. The node may run.

    DIRECTORY is a controller's data directory, its @metadata directory, or the archive itself. Reads of the past read merged
    files as they read segments. A segment is deleted only when the file that holds it was read again and is durable. If the
    command is broken off, run it again. Exit code 10: a damaged segment stays as it is.
    """
    place = _archive_in(directory)
    try:
        owner = place.stat().st_uid
        if owner != os.geteuid():
            raise click.ClickException(
                f"{place} belongs to user {owner}, and this is user {os.geteuid()}: the node could not read the merged files. "
                f"Nothing was changed. Run this as its user: sudo -u '#{owner}' quorum-offline archive merge ..."
            )
        target = RealDirectory(place)
        target.lock()
        try:
            result = merge(target, keep=keep, target_bytes=target_mib * _MIB)
        finally:
            target.unlock()
    except DirectoryInUse as e:
        raise click.ClickException(f"another merge is running: {e}") from None
    except CannotMerge as e:
        raise click.ClickException(str(e)) from None
    except (OSError, FlushFailed) as e:
        raise click.ClickException(
            f"{e}. Each record is in its segment or in a merged file. Repair the cause, and run this again"
        ) from None
    click.echo(json.dumps(_document(place, result), indent=2) if output == "json" else "\n".join(_lines(result)))
    sys.exit(EXIT_FINDINGS if result.skipped else 0)


def _archive_in(directory: Path) -> Path:
    """Return the archive that the argument names."""
    directory = directory.resolve()
    if directory.name == ARCHIVE_NAME:
        return directory
    for place in (directory / _METADATA / ARCHIVE_NAME, directory / ARCHIVE_NAME):
        if place.is_dir():
            return place
    if directory.name != _METADATA and not (directory / _METADATA).is_dir():
        raise click.UsageError(
            f"{directory} is no directory of a node: it has no {_METADATA}; name the node's data directory"
        )
    raise click.UsageError(
        f"{directory} has no {ARCHIVE_NAME} directory: the node has archived nothing yet, or keeps none"
    )


def _document(place: Path, result: Result) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "archive": str(place),
        "written": [each._asdict() for each in result.written],
        "skipped": [{"name": name, "reason": reason} for name, reason in result.skipped],
        "removed": result.removed,
    }


def _lines(result: Result) -> list[str]:
    lines = [
        f"{each.name}: {each.segments} segments, {each.raw_bytes:,} bytes in {each.stored_bytes:,}"
        for each in result.written
    ]
    if result.removed:
        lines.append(f"removed {len(result.removed)} segments that an earlier run had merged")
    lines += [f"{name} stays: {reason}" for name, reason in result.skipped]
    return lines or ["no change: there is nothing to merge"]
