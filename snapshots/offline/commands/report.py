"""`quorum-offline report`"""

import json
import sys

import click

from snapshots.offline.commands import running
from snapshots.offline.commands.kafka_logs import as_own_logs
from snapshots.offline.commands.shared import (
    EXIT_FINDINGS,
    SCHEMA_VERSION,
    Failed,
    common_options,
    format_option,
    place_of_results,
    refuse_unusable_tables,
    refuse_unwritable,
    spark_options,
)


@click.command()
@click.argument("directories", nargs=-1, required=True)
@click.option("--out", "report", required=True, metavar="FILE", help="The path or URL of the HTML page.")
@click.option(
    "--history", "history_dir", type=click.Path(file_okay=False),
    callback=place_of_results,
    help="The directory of a history, a path or a URL, which is made or continued; default: a temporary one.",
)  # fmt: skip
@click.option("--uncommitted", is_flag=True, help="Show also what is durable and perhaps not committed.")
@format_option
@spark_options
@common_options
def report(
    directories: tuple[str, ...],
    report: str,
    history_dir: str | None,
    uncommitted: bool,
    log_format: str,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Writes one page about a cluster: audit, availability, churn, growth, elections.

    Each of DIRECTORIES is a node's data directory, or its @metadata directory; or a log directory of an Apache Kafka (KRaft)
    controller, or its __cluster_metadata-0. The history is made of the first directory.
    The exit code is 10 if the audit has errors.
    """
    refuse_unwritable(report)
    with running.needing("spark"):
        refuse_unusable_tables(history_dir)
    with (
        as_own_logs(directories, log_format, uncommitted=uncommitted, with_audit=True) as logs,
        running.session(master, shuffle_partitions, logs.paths) as (spark, step),
    ):
        from snapshots.offline.audit.findings import Severity
        from snapshots.offline.history.output import HistoryRefused
        from snapshots.offline.report.run import write_report

        try:
            made = write_report(
                spark,
                logs.paths,
                report,
                history_dir,
                uncommitted=logs.uncommitted,
                progress=step,
                audited=logs.audited,
            )
        except HistoryRefused as e:
            raise Failed(f"{e}. `audit --report` writes a page without a history") from None
    errors, warnings = made.audit.count(Severity.ERROR), made.audit.count(Severity.WARNING)
    if output == "json":
        found = {"schema_version": SCHEMA_VERSION, "report": report, "errors": errors, "warnings": warnings}
        click.echo(json.dumps({**found, "outages": made.history.outages_total["times"]}, indent=2))
    else:
        click.echo(f"{report}\n{errors} errors, {warnings} warnings")
    sys.exit(EXIT_FINDINGS if errors else 0)
