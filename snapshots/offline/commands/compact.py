"""`quorum-offline compact`"""

import json
import sys

import click

from snapshots.offline.commands import running
from snapshots.offline.commands.shared import (
    EXIT_FINDINGS,
    SCHEMA_VERSION,
    Failed,
    common_options,
    place_of_results,
    proof_options,
    spark_options,
)


@click.command()
@click.argument("directory")
@click.option(
    "--out",
    "out_dir",
    required=True,
    metavar="DIRECTORY",
    callback=place_of_results,
    help="The directory, or an object store's URL, for the snapshot.",
)
@click.option("--at-mark", type=click.Choice(["last"]), help="Compact to the last snapshot mark (the default).")
@click.option("--offset", type=click.IntRange(1), help="Compact to this end offset instead, the end of a batch.")
@proof_options
@spark_options
@common_options
def compact(
    directory: str,
    out_dir: str,
    at_mark: str | None,
    offset: int | None,
    beside: tuple[str, ...],
    uncommitted: bool,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Folds a log into a snapshot file.

    The result equals the controllers' own file at that offset. DIRECTORY is a node's data directory, or its
    @metadata directory.
    """
    if at_mark and offset is not None:
        raise click.UsageError("--at-mark and --offset exclude each other")
    with running.session(master, shuffle_partitions, (directory,), beside) as (spark, step):
        from snapshots.offline.compaction import CannotCompact
        from snapshots.offline.compaction import compact as run_compaction

        step("folding the log")
        try:
            result = run_compaction(spark, directory, offset, out_dir, beside=beside, uncommitted=uncommitted)
        except CannotCompact as e:
            raise Failed(str(e)) from None
    found = {
        "schema_version": SCHEMA_VERSION,
        "path": result.path,
        "end_offset": result.end.offset,
        "epoch": result.end.epoch,
        "bytes": result.size,
        "records": result.record_count,
        "digest": result.digest.hex(),
        "chain": result.chain.hex(),
        "same_as_source": result.same_as_source,
    }
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        same = {
            True: "equal to the node's own, byte for byte",
            False: "NOT equal to the node's own",
            None: "the node has none there",
        }
        click.echo(f"{result.path}\n{result.record_count:,} records at {result.end}, digest {result.digest.hex()[:16]}")
        click.echo(f"compared with the source's snapshot: {same[result.same_as_source]}")
    sys.exit(EXIT_FINDINGS if result.same_as_source is False else 0)
