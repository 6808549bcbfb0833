"""`quorum-offline dump`"""

import sys
from itertools import islice

import click

from metadata_log.format.errors import LogFormatError
from snapshots.offline.commands import running
from snapshots.offline.commands.shared import EXIT_FINDINGS, Failed, common_options, format_option
from snapshots.offline.dump_source import CannotShow, Shown, dump_of
from snapshots.offline.kafka.dump import Range


@click.command()
@click.argument("directory")
@click.option("--batches", is_flag=True, help="One line per batch instead of one per record.")
@click.option("--from-offset", type=click.IntRange(0), default=0, show_default=True)
@click.option("--to-offset", type=click.IntRange(0), help="Exclusive.")
@click.option("--limit", type=click.IntRange(1), help="Print at most this many lines.")
@click.option(
    "--all", "beyond", is_flag=True, help="Also print batches above the durable end, which may be half written."
)
@format_option
@common_options
def dump(
    directory: str,
    batches: bool,
    from_offset: int,
    to_offset: int | None,
    limit: int | None,
    beyond: bool,
    log_format: str,
    output: str,
) -> None:
    """Prints a log, damage included; then the exit code is 10. Needs no Java. With -o json: one object per line.

    DIRECTORY is a node's data directory, or its @metadata directory; or a log directory of an Apache Kafka (KRaft) node, its
    __cluster_metadata-0, or one segment or snapshot in it.
    """
    shown = Shown(batches, Range(from_offset, to_offset), beyond, output == "json")
    try:
        with running.needing("spark", "; `quorumctl log dump` works without it"):
            lines, tally = dump_of(directory, log_format, shown)
        for line in islice(lines, limit):
            click.echo(line)
    except BrokenPipeError:  # `dump | head` has closed the pipe: end without a traceback
        sys.stdout = None
        return
    except CannotShow as e:
        raise click.UsageError(str(e)) from None
    except (LogFormatError, OSError) as e:
        raise Failed(str(e)) from None
    for note in tally.notes():
        click.echo(f"quorum-offline: {note}", err=True)
    if tally.damaged:
        sys.exit(EXIT_FINDINGS)
