"""`quorum-offline history`"""

import json
from typing import TYPE_CHECKING, Any

import click

from snapshots.offline.commands import running
from snapshots.offline.commands.kafka_logs import as_own_logs
from snapshots.offline.commands.shared import (
    Failed,
    common_options,
    format_option,
    place_of_results,
    proof_options,
    refuse_unusable_tables,
    spark_options,
)

if TYPE_CHECKING:
    from snapshots.offline.history.place import Place


class _Place(click.ParamType[Any]):
    """An offset or a time."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from snapshots.offline.history.place import parse_place

        try:
            return parse_place(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)


@click.command()
@click.argument("directory")
@click.option(
    "--out",
    "out_dir",
    required=True,
    type=click.Path(file_okay=False),
    callback=place_of_results,
    help="The directory of the tables, a path or a URL.",
)
@click.option("--tables", "names", help="Comma-separated; default: all tables, or those that the directory has.")
@click.option("--since", type=_Place(), help="Leave out what ended before this offset or time (UTC).")
@click.option("--until", type=_Place(), help="End at this offset or time (UTC); default: the last proven record.")
@click.option("--delta", is_flag=True, help="Also keep a Delta log, so that the tables are Delta tables from now on.")
@format_option
@proof_options
@spark_options
@common_options
def history(
    directory: str,
    out_dir: str,
    names: str | None,
    since: "Place | None",
    until: "Place | None",
    delta: bool,
    log_format: str,
    beside: tuple[str, ...],
    uncommitted: bool,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Turns a log into tables of its history, or adds new records to the tables.

    The tables are Parquet files for questions in Spark SQL, for example about the leaders of a partition, fenced brokers
    and changed configs. DIRECTORY is a node's data directory, or its @metadata directory; or a log directory of an Apache
    Kafka (KRaft) controller, or its __cluster_metadata-0.
    """
    with running.needing("spark"):
        from snapshots.offline.history.place import EVERYWHERE
        from snapshots.offline.history.tables import TABLES
    wanted = tuple(TABLES) if names is None else tuple(names.split(","))
    unknown = [name for name in wanted if name not in TABLES]
    if unknown:
        raise click.UsageError(f"there is no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    refuse_unusable_tables(out_dir)
    with (
        as_own_logs((directory, *beside), log_format, uncommitted=uncommitted) as logs,
        running.session(master, shuffle_partitions, logs.paths[:1], logs.paths[1:]) as (spark, step),
    ):
        from snapshots.offline.history.output import HistoryRefused
        from snapshots.offline.history.run import make_history
        from snapshots.offline.history.summary import lines_of, summary

        try:
            result = make_history(
                spark, logs.paths[0], out_dir, wanted=wanted, since=since, until=until or EVERYWHERE,
                beside=logs.paths[1:], uncommitted=logs.uncommitted, delta=delta, progress=step,
            )  # fmt: skip
        except HistoryRefused as e:
            raise Failed(str(e)) from None
    if output == "json":
        click.echo(json.dumps(summary(result), indent=2))
    else:
        click.echo("\n".join(lines_of(result)))
