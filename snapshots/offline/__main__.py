"""`quorum-offline`: batch jobs over a metadata log. They read a node's directory, live or copied, and write elsewhere.

Exit codes: 0 clean, 10 the audit or the dump has findings, 1 the job failed, 2 wrong usage.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from metadata_log.format.errors import LogFormatError
from snapshots.offline.archive.command import archive
from snapshots.offline.bundle import NEEDED, write_bundle
from snapshots.offline.dump_source import CannotShow, Shown, dump_of
from snapshots.offline.java import JavaNotFound
from snapshots.offline.progress import shown_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snapshots.offline.audit.baseline_checks import AgainstBaseline
    from snapshots.offline.audit.run import AuditResult
    from snapshots.offline.history.place import Place

EXIT_FINDINGS: Final = 10
EXIT_FAILED: Final = 1
SCHEMA_VERSION: Final = 1
_WORKERS_LOG_ERROR: Final = re.compile(
    rf"^{re.escape(f'{LogFormatError.__module__}.{LogFormatError.__qualname__}')}: (?P<reason>.+)$", re.MULTILINE
)

F = TypeVar("F", bound=Callable[..., Any])


def _common(command: F) -> F:
    output = click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For people or for machines."
    )
    return output(command)


def _spark_options(command: F) -> F:
    master = click.option("--master", help="A Spark master; default: what spark-submit says, else local[*].")
    partitions = click.option("--shuffle-partitions", type=click.IntRange(1), default=8, show_default=True)
    return master(partitions(command))


def _proof_options(command: F) -> F:
    beside = click.option(
        "--beside", multiple=True, metavar="DIRECTORY",
        help="Another controller's directory, to prove what is committed. Can be given several times.",
    )  # fmt: skip
    uncommitted = click.option(
        "--uncommitted", is_flag=True, help="Read also what is durable here and perhaps not committed."
    )
    return beside(uncommitted(command))


class Failed(click.ClickException):
    """The job failed: one line, exit code 1."""

    exit_code = EXIT_FAILED


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "QUORUM_OFFLINE"})
@click.version_option(package_name="metaquorum", message="metaquorum %(version)s")
def main() -> None:
    """Spark jobs over a metadata log: audit it, compact it, turn its history into tables.

    Exit codes: 0 clean, 10 the audit or the dump has findings, 1 the job failed, 2 wrong usage.
    """


main.add_command(archive)


@main.command()
@click.argument("directories", nargs=-1, required=True)
@click.option("--report", metavar="FILE", help="Writes an HTML report to this path or URL.")
@click.option("--summary", "summary_file", metavar="FILE", help="Writes the JSON summary to this path or URL, too.")
@click.option("--findings", "findings_file", metavar="FILE", help="Writes the findings to this path or URL, as CSV.")
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
@_spark_options
@_common
def audit(
    directories: tuple[str, ...],
    report: str | None,
    summary_file: str | None,
    findings_file: str | None,
    baseline_file: str | None,
    full: bool,
    fail_on: str,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Audits the logs of one cluster.

    Each of DIRECTORIES is a node's data directory, or its @metadata directory.
    """
    if full and baseline_file is None:
        raise click.UsageError("--full goes with --baseline: without --baseline the audit reads everything")
    against = None if baseline_file is None else _against(baseline_file, directories, full)
    with _session(master, shuffle_partitions, directories) as (spark, step):
        from snapshots.offline.audit.run import audit as run_audit
        from snapshots.offline.audit.run import findings_csv, summary
        from snapshots.offline.report.page import report_html
        from snapshots.offline.writable import write_text

        result = run_audit(spark, directories, step, against)
        as_json = {"schema_version": SCHEMA_VERSION, **summary(result)}
        if report:
            write_text(report, report_html(result))
            as_json["report"] = report
    text = json.dumps(as_json, indent=2, ensure_ascii=False)
    if summary_file:
        write_text(summary_file, text + "\n")
    if findings_file:
        write_text(findings_file, findings_csv(result))
    if baseline_file is not None:
        _keep_baseline(baseline_file, result)
    if output == "json":
        click.echo(text)
    else:
        _print_audit(result, report, baseline_file or "")
    from snapshots.offline.audit.findings import Severity

    is_bad = bool(result.count(Severity.ERROR)) or (fail_on == "warning" and bool(result.count(Severity.WARNING)))
    sys.exit(EXIT_FINDINGS if is_bad and fail_on != "never" else 0)


def _against(file: str, directories: tuple[str, ...], full: bool) -> "AgainstBaseline":
    """Read the baseline, before Spark starts."""
    with _needing("spark"):
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
    except (CannotUseBaseline, OSError) as e:
        raise Failed(f"the baseline was not written: {e}") from None


@main.command()
@click.argument("directories", nargs=-1, required=True)
@click.option("--out", "report", required=True, metavar="FILE", help="The path or URL of the HTML page.")
@click.option(
    "--history", "history_dir", type=click.Path(file_okay=False),
    help="The directory of a history, which is made or continued; default: a temporary one.",
)  # fmt: skip
@click.option("--uncommitted", is_flag=True, help="Show also what is durable and perhaps not committed.")
@_spark_options
@_common
def report(
    directories: tuple[str, ...],
    report: str,
    history_dir: str | None,
    uncommitted: bool,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Writes one page about a cluster: audit, availability, churn, growth, elections.

    Each of DIRECTORIES is a node's data directory, or its @metadata directory. The history is that of the first one. The exit
    code is 10 if the audit has errors.
    """
    with _session(master, shuffle_partitions, directories) as (spark, step):
        from snapshots.offline.audit.findings import Severity
        from snapshots.offline.history.output import HistoryRefused
        from snapshots.offline.report.run import write_report

        try:
            made = write_report(spark, directories, report, history_dir, uncommitted=uncommitted, progress=step)
        except HistoryRefused as e:
            raise Failed(f"{e}. `audit --report` writes a page without a history") from None
    errors, warnings = made.audit.count(Severity.ERROR), made.audit.count(Severity.WARNING)
    if output == "json":
        found = {"schema_version": SCHEMA_VERSION, "report": report, "errors": errors, "warnings": warnings}
        click.echo(json.dumps({**found, "outages": made.history.outages_total["times"]}, indent=2))
    else:
        click.echo(f"{report}\n{errors} errors, {warnings} warnings")
    sys.exit(EXIT_FINDINGS if errors else 0)


@main.command()
@click.argument("directory")
@click.option(
    "--out",
    "out_dir",
    required=True,
    metavar="DIRECTORY",
    help="The directory, or an object store's URL, for the snapshot.",
)
@click.option("--at-mark", type=click.Choice(["last"]), help="Compact to the last snapshot mark (the default).")
@click.option("--offset", type=click.IntRange(1), help="Compact to this end offset instead, the end of a batch.")
@_proof_options
@_spark_options
@_common
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

    The result is the same file that the controllers write at that offset. DIRECTORY is a node's data directory, or its
    @metadata directory.
    """
    if at_mark and offset is not None:
        raise click.UsageError("--at-mark and --offset exclude each other")
    with _session(master, shuffle_partitions, (directory,)) as (spark, step):
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


class _Place(click.ParamType[Any]):
    """An offset or a time."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from snapshots.offline.history.place import parse_place

        try:
            return parse_place(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)


@main.command()
@click.argument("directory")
@click.option("--out", "out_dir", required=True, type=click.Path(file_okay=False), help="The directory of the tables.")
@click.option("--tables", "names", help="Comma-separated; default: all tables, or those that the directory has.")
@click.option("--since", type=_Place(), help="Leave out what ended before this offset or time (UTC).")
@click.option("--until", type=_Place(), help="End at this offset or time (UTC); default: the last proven record.")
@click.option("--delta", is_flag=True, help="Also keep a Delta log, so that the tables are Delta tables from now on.")
@_proof_options
@_spark_options
@_common
def history(
    directory: str,
    out_dir: str,
    names: str | None,
    since: "Place | None",
    until: "Place | None",
    delta: bool,
    beside: tuple[str, ...],
    uncommitted: bool,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Turns a log into tables of its history, or adds to them what is new.

    The tables are Parquet files, for questions in Spark SQL: who led a partition, which broker was fenced and why, who
    changed a config. DIRECTORY is a node's data directory, or its @metadata directory.
    """
    with _needing("spark"):
        from snapshots.offline.history.place import EVERYWHERE
        from snapshots.offline.history.tables import TABLES
    wanted = tuple(TABLES) if names is None else tuple(names.split(","))
    unknown = [name for name in wanted if name not in TABLES]
    if unknown:
        raise click.UsageError(f"there is no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    with _session(master, shuffle_partitions, (directory,)) as (spark, step):
        from snapshots.offline.history.output import HistoryRefused
        from snapshots.offline.history.run import make_history
        from snapshots.offline.history.summary import lines_of, summary

        try:
            result = make_history(
                spark, directory, out_dir, wanted=wanted, since=since, until=until or EVERYWHERE, beside=beside,
                uncommitted=uncommitted, delta=delta, progress=step,
            )  # fmt: skip
        except HistoryRefused as e:
            raise Failed(str(e)) from None
    if output == "json":
        click.echo(json.dumps(summary(result), indent=2))
    else:
        click.echo("\n".join(lines_of(result)))


@main.command()
@click.argument("directory")
@click.option("--batches", is_flag=True, help="One line per batch instead of one per record.")
@click.option("--from-offset", type=click.IntRange(0), default=0, show_default=True)
@click.option("--to-offset", type=click.IntRange(0), help="Exclusive.")
@click.option("--limit", type=click.IntRange(1), help="Print at most this many lines.")
@click.option(
    "--all", "beyond", is_flag=True, help="Also print batches above the durable end, which may be half written."
)
@click.option(
    "--format", "log_format", type=click.Choice(["auto", "own", "kafka"]), default="auto", show_default=True,
    help="Whose log it is: metaquorum's own, or Apache Kafka's. auto: as its first bytes say.",
)  # fmt: skip
@_common
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
    shown = Shown(batches, from_offset, to_offset, beyond, output == "json")
    try:
        with _needing("spark"):
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


@main.command()
@click.option("--out", "out_dir", required=True, type=click.Path(file_okay=False), help="The directory for both files.")
@_common
def bundle(out_dir: str, output: str) -> None:
    """Writes the files for spark-submit: a program, and a zip with the modules that it imports.

    The machines of the Spark cluster need no metaquorum, but the packages that the command prints.
    """
    try:
        written = write_bundle(out_dir)
    except OSError as e:
        raise Failed(f"the bundle was not written: {e}; choose another directory") from None
    if output == "json":
        found = {
            "schema_version": SCHEMA_VERSION,
            "program": str(written.program),
            "modules": str(written.modules),
            "needs": NEEDED,
            "command": written.command,
        }
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"{written.program}\n{written.modules}")
        click.echo(f"packages that each machine needs: {', '.join(NEEDED)}\n{written.command}")


@contextmanager
def _session(
    master: str | None, shuffle_partitions: int, directories: Iterable[str]
) -> "Iterator[tuple[SparkSession, Callable[[str], None]]]":
    """Start a Spark session, and a function that shows progress on stderr."""
    from snapshots.offline.session import prepare, start_session

    try:
        with _needing("spark"):
            prepare()
    except JavaNotFound as e:
        raise Failed(str(e)) from None
    with shown_progress() as step:
        step("starting Spark")
        spark = start_session(master, shuffle_partitions=shuffle_partitions)
        try:
            with failing_in_one_line():
                from snapshots.offline.inputs import records_in

                step.reads(spark, records_in(directories))
                yield spark, step
        finally:
            spark.stop()


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Turn an error of the log or the disk into one line and exit code 1, even if a Spark task met it.

    Spark wraps the error of a task into tracebacks of the worker and of the JVM. The worker's `LogFormatError` in it
    names the place. Any other error is a mistake in the job, and keeps its traceback.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except (LogFormatError, OSError) as e:
        raise Failed(str(e)) from None
    except PySparkException as e:
        found = _WORKERS_LOG_ERROR.search(str(e))
        if found is None:
            raise
        raise Failed(f"{found['reason']}; the job stopped there, and wrote nothing") from None


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Say what to install if a package that the job needs is missing, or cannot be loaded."""
    try:
        yield
    except ModuleNotFoundError as e:
        raise Failed(f"the package {e.name} is missing; install it from a checkout: pip install '.[{extra}]'") from None
    except ImportError as e:  # for example, the package is for another Python, or a library of the system is missing
        reason = " ".join(str(e).split())
        raise Failed(
            f"the package {_not_loaded(e)} cannot be loaded: {reason}; nothing was done; install it anew from a checkout: "
            f"pip install --force-reinstall '.[{extra}]'"
        ) from None


def _not_loaded(error: ImportError) -> str:
    """Return the module that raised `error`, or that lacks a name. For a library `pyarrow.lib` the error's own name is "lib"."""
    if error.name in sys.modules:
        return error.name
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals["__name__"])


def _print_audit(result: "AuditResult", report: str | None, baseline_file: str) -> None:
    from snapshots.offline.audit.findings import Severity
    from snapshots.offline.audit.run import baseline_lines, lines_of

    rows = [("NODE", "START", "END", "DURABLE", "EPOCH", "BATCHES", "RECORDS", "CHAIN")]
    for log in result.logs:
        numbers = result.nodes.get(log.node)
        shown = (
            ("-",) * 5 if numbers is None
            else (numbers.end_offset, numbers.last_epoch, numbers.batches, numbers.records, numbers.chain.hex()[:16])
        )  # fmt: skip
        end, *rest = map(str, shown)
        durable = "-" if log.durable_end is None else str(log.durable_end)
        rows.append((log.node, str(log.start_offset), end, durable, *rest))  # type: ignore[arg-type]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    click.echo()
    for line in lines_of(result):
        click.echo(line)
    if result.fold is not None and result.snapshots:
        count = sum(snapshot.end in result.fold.digests for snapshot in result.snapshots)
        click.echo(f"state: replayed from the log of {result.reference}, compared with {count} snapshots")
    for line in baseline_lines(result, baseline_file):
        click.echo(line)
    errors, warnings = result.count(Severity.ERROR), result.count(Severity.WARNING)
    click.echo("clean" if result.is_clean else f"{errors} errors, {warnings} warnings")
    if report:
        click.echo(f"report: {report}")


if __name__ == "__main__":
    main()
