"""Makes a report: audits the logs, makes or continues the history of the first one, and writes the page."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from snapshots.offline.audit.result import AuditResult
from snapshots.offline.audit.run import audit
from snapshots.offline.history.run import make_history
from snapshots.offline.history.storage.directory import StoreRefused
from snapshots.offline.report.facts import Facts, read_facts
from snapshots.offline.report.page import report_html
from snapshots.offline.writable import write_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Report(NamedTuple):
    """The contents of the page."""

    audit: AuditResult
    history: Facts


def _say_nothing(_: str) -> None:
    """Show no progress."""


def write_report(
    spark: "SparkSession",
    directories: Sequence[str],
    path: str,
    history_dir: str | None = None,
    *,
    uncommitted: bool = False,
    progress: Callable[[str], None] = _say_nothing,
    audited: AuditResult | None = None,
) -> Report:
    """Write the page to `path`, a local path or a URL. The directories are those of nodes of one cluster.

    The history ends where the files prove that the log is committed; with `uncommitted`, where it is durable. `history_dir` None:
    the tables are thrown away. `audited`: the audit, if it was done already.

    Raises:
        HistoryRefused: no history can be made, or the one in `history_dir` cannot go on; the page was not written.
        LogFormatError: a directory has no log, or it has records that this release cannot read.
        StoreRefused: the page could not be written; the text says that the tables are complete.
        OSError: the page could not be written, and no tables were to be kept.
    """
    audited = audited or audit(spark, directories, progress)
    with ExitStack() as stack:
        out = history_dir or stack.enter_context(tempfile.TemporaryDirectory(prefix="metaquorum-history-"))
        make_history(spark, directories[0], out, beside=directories[1:], uncommitted=uncommitted, progress=progress)
        progress("asking the history")
        facts = read_facts(spark, out)
    progress("writing the page")
    try:
        write_text(path, report_html(audited, facts))
    except OSError as e:
        if history_dir is None:
            raise
        raise StoreRefused(
            f"{e}. The page was not written, and the tables in {history_dir} are complete. Repair the cause, and run the command "
            "again"
        ) from None
    return Report(audited, facts)
