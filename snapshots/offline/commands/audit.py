"""`quorum-offline audit`"""

import json
import sys
from typing import TYPE_CHECKING

import click

from metadata_log.disk.failures import FlushFailed
from metadata_log.format.errors import LogFormatError
from snapshots.offline.commands import running
from snapshots.offline.commands.kafka_logs import kafka_directories
from snapshots.offline.commands.shared import (
    EXIT_FINDINGS,
    SCHEMA_VERSION,
    Failed,
    common_options,
    format_option,
    refuse_unwritable,
    spark_options,
)
from snapshots.offline.progress import shown_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metadata_log.disk.files import Directory
    from snapshots.offline.audit.baseline_checks import AgainstBaseline
    from snapshots.offline.audit.result import AuditResult


@click.command()
@click.argument("directories", nargs=-1, required=True)
@click.option("--report", metavar="FILE", help="Writes an HTML report to this path or URL.")
@click.option(
    "--summary",
    "summary_file",
    metavar="FILE",
    help="Writes the JSON summary to this path or URL, too.",
)
@click.option(
    "--findings",
    "findings_file",
    metavar="FILE",
    help="Writes the findings to this path or URL, as CSV.",
)
@click.option(
    "--baseline",
    "baseline_file",
    metavar="FILE",
    help="Proves that the log continues what an earlier audit noted in this file, reads only what is newer, and notes the end.",
)
@click.option("--full", is_flag=True, help="With --baseline: reads everything all the same.")
@click.option(
    "--fail-on", type=click.Choice(["error", "warning", "never"]), default="warning", show_default=True,
    help="From which severity on the exit code is 10.",
)  # fmt: skip
@format_option
@spark_options
@common_options
def audit(
    directories: tuple[str, ...],
    report: str | None,
    summary_file: str | None,
    findings_file: str | None,
    baseline_file: str | None,
    full: bool,
    fail_on: str,
    log_format: str,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Audits the logs of one cluster.

    Each of DIRECTORIES is a node's data directory, or its @metadata directory; or a log directory of an Apache Kafka (KRaft)
    controller, or its __cluster_metadata-0. The audit of Kafka's logs needs no Java.
    """
    if full and baseline_file is None:
        raise click.UsageError("--full goes with --baseline: without --baseline the audit reads everything")
    refuse_unwritable(report, summary_file, findings_file)
    kafkas = kafka_directories(directories, log_format)
    if kafkas is None:
        against = None if baseline_file is None else _against(baseline_file, directories, full)
        with running.session(master, shuffle_partitions, directories) as (spark, step):
            from snapshots.offline.audit.run import audit as run_audit

            result = run_audit(spark, directories, step, against)
    elif baseline_file is not None:
        raise click.UsageError("--baseline is for metaquorum's own log: a log of Kafka has no chain to compare")
    else:
        result = _audit_kafka(kafkas)
    try:
        text = _written(result, report, summary_file, findings_file)
    except (OSError, FlushFailed) as e:
        _print_audit(result, None, "")
        raise Failed(f"the audit is done, and its files could not be written: {e}") from None
    if baseline_file is not None:
        _keep_baseline(baseline_file, result)
    if output == "json":
        click.echo(text)
    else:
        _print_audit(result, report, baseline_file or "")
    from snapshots.offline.audit.findings import Severity

    is_bad = bool(result.count(Severity.ERROR)) or (fail_on == "warning" and bool(result.count(Severity.WARNING)))
    sys.exit(EXIT_FINDINGS if is_bad and fail_on != "never" else 0)


def _audit_kafka(directories: "Sequence[Directory]") -> "AuditResult":
    with running.needing("spark"):
        from snapshots.offline.kafka_audit.run import audit_kafka
    try:
        with shown_progress() as step:
            return audit_kafka(directories, step)
    except (LogFormatError, OSError) as e:
        raise Failed(str(e)) from None


def _written(result: "AuditResult", report: str | None, summary_file: str | None, findings_file: str | None) -> str:
    """Write the files that were asked for, and return the summary."""
    from snapshots.offline.audit.summary import findings_csv, summary
    from snapshots.offline.report.page import report_html
    from snapshots.offline.writable import write_text

    as_json = {"schema_version": SCHEMA_VERSION, **summary(result)}
    if report:
        write_text(report, report_html(result))
        as_json["report"] = report
    text = json.dumps(as_json, indent=2, ensure_ascii=False)
    if summary_file:
        write_text(summary_file, text + "\n")
    if findings_file:
        write_text(findings_file, findings_csv(result))
    return text


def _against(file: str, directories: tuple[str, ...], full: bool) -> "AgainstBaseline":
    """Read the baseline, before Spark starts."""
    with running.needing("spark"):
        from snapshots.offline.audit.baseline import CannotUseBaseline, read_baseline
        from snapshots.offline.audit.baseline_checks import AgainstBaseline
        from snapshots.offline.inputs import find_logs
    try:
        logs = find_logs(directories)
        return AgainstBaseline(read_baseline(file, logs), logs, is_full=full)
    except CannotUseBaseline as e:
        raise click.UsageError(str(e)) from None
    except (LogFormatError, OSError) as e:
        raise Failed(str(e)) from None


def _keep_baseline(file: str, result: "AuditResult") -> None:
    """Write the next baseline, unless another audit has written one since."""
    from snapshots.offline.audit.baseline import CannotUseBaseline, read_baseline, write_baseline

    compared = result.baseline
    if compared is None or compared.after is None:
        return
    try:
        if read_baseline(file, ()) != compared.before:
            raise Failed(f"another audit has written {file} meanwhile; this audit left the file as it is: audit again")
        write_baseline(file, compared.after)
    except (CannotUseBaseline, OSError, FlushFailed) as e:
        raise Failed(f"the baseline was not written: {e}") from None


def _print_nodes(result: "AuditResult") -> None:
    rows = [["NODE", "START", "END", "DURABLE", "EPOCH", "BATCHES", "RECORDS", "CHAIN"]]
    for log in result.logs:
        numbers = result.nodes.get(log.node)
        durable = "-" if log.durable_end is None else log.durable_end
        end, rest = "-", ["-"] * 4
        if numbers is not None:
            end = str(numbers.end_offset)
            rest = [str(numbers.last_epoch), str(numbers.batches), str(numbers.records), numbers.chain.hex()[:16]]
        rows.append([log.node, str(log.start_offset), end, str(durable), *rest])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_audit(result: "AuditResult", report: str | None, baseline_file: str) -> None:
    from snapshots.offline.audit.findings import Severity
    from snapshots.offline.audit.summary import baseline_lines, lines_of

    _print_nodes(result)
    click.echo()
    for line in lines_of(result):
        click.echo(line)
    if result.fold is not None and result.snapshots:
        count = sum(snapshot.end in result.fold.digests for snapshot in result.snapshots)
        click.echo(f"state: replayed from the log of {result.reference}, compared with {count} snapshots")
    if result.fold is None:
        click.echo(
            "state: not replayed: no healthy log has records that begin at a whole snapshot, or at 0, or its node has deleted a "
            "part meanwhile"
        )
    for line in baseline_lines(result, baseline_file):
        click.echo(line)
    errors, warnings = result.count(Severity.ERROR), result.count(Severity.WARNING)
    click.echo("clean" if result.is_clean else f"{errors} errors, {warnings} warnings")
    if report:
        click.echo(f"report: {report}")
