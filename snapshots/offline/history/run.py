"""Turns the log of one node into the tables of its history, or adds to them what is new.

    1  begin     the baseline of the last run; else the snapshot below the log; else the empty image
    2  survey    is the log whole, does it continue the baseline's chain, which records took effect?
    3  brokers   their states: on the driver, for all tasks
    4  pass      entity by entity, in parallel: rows of all tables
    5  write     staged files, then the baseline

The job only reads the node's directory, live or copied. The directory of the tables must be one that driver and workers share, or
the URL of an object store.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metadata_log.format.ids import Offset
from snapshots.offline.committed import Committed, committed_end
from snapshots.offline.history import delta_log, engine, survey, tables
from snapshots.offline.history.begin import (
    Begin,
    End,
    begin_of,
    check_history,
    end_of,
    limit_of,
    reaching_back,
    since_of,
)
from snapshots.offline.history.elections import election_rows
from snapshots.offline.history.folding.broker_history import BrokerHistory
from snapshots.offline.history.folding.steps import Steps, steps_of
from snapshots.offline.history.folding.task import Task
from snapshots.offline.history.growth import growth_rows
from snapshots.offline.history.log_source import SPLIT_BYTES, read_log
from snapshots.offline.history.output import (
    Baseline,
    HistoryRefused,
    check_alone,
    locked,
    place_of,
    prepare,
    publish,
    read_baseline,
    remove_old,
    write_baseline,
)
from snapshots.offline.history.place import EVERYWHERE, Place
from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.tables import Row
from snapshots.offline.history.writer import write_rows
from snapshots.offline.inputs import NodeLog, find_logs, lies_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str], object]


class History(NamedTuple):
    """The result of a run."""

    out: TablesDirectory
    begin: Offset
    """The offset from which this run has read the log."""
    baseline: Baseline
    rows: dict[str, tuple[int, int]]
    """For each table, how many rows this run has added that are final, and how many are open now."""
    waiting: int
    """How many records of an open transaction are left for the next run."""
    committed: Committed | None
    """The proof behind the end; None if the log was read without one."""


class _Run(NamedTuple):
    """One run, after its two ends are known."""

    begin: Begin
    end: End
    rows: "DataFrame"
    small: survey.SmallRows
    steps: Steps
    names: tuple[str, ...]
    since: Offset


def make_history(
    spark: "SparkSession",
    directory: str,
    out_dir: str,
    *,
    wanted: Iterable[str] = tuple(tables.TABLES),
    since: Place | None = None,
    until: Place = EVERYWHERE,
    beside: Sequence[str] = (),
    uncommitted: bool = False,
    delta: bool = False,
    progress: Progress = str,
    split_bytes: int = SPLIT_BYTES,
) -> History:
    """Write or continue the tables in `out_dir`, a local path or a URL that `ReadOnlyDirectory` knows.

    The log is read up to `until`, and no further than its files, and those of the other controllers in `beside`, prove that it is
    committed; with `uncommitted` as far as it is durable. With `delta` the tables are Delta tables from now on.

    Raises:
        HistoryRefused: the log is damaged, nothing proves a record, the log has another history than the tables, another run
            writes them, or the tables cannot go on.
        LogFormatError: the directory has no log, or the log has records that this release cannot read.
        StoreRefused: the store of the tables did. A task's error is Spark's, with this one in its text.
    """
    out = place_of(out_dir)
    logs = find_logs([directory, *beside])
    if any(lies_in(str(out), each) for each in logs):
        raise HistoryRefused(f"{out} lies in the directory of a node, where no job writes; choose another directory")
    with out.explaining_errors():
        last = read_baseline(out)
    log = reaching_back(logs[0], last)
    names = _agreed(last, tuple(sorted(set(wanted))), since)
    begin = begin_of(log, last)
    committed = None if uncommitted else committed_end(logs)
    limit = limit_of(log, begin, committed)
    progress("reading the log")
    rows = read_log(
        spark, log.path, since=begin.step.offset, until=limit, base=begin.base, split_bytes=split_bytes
    ).persist()
    try:
        run = _look(log, begin, rows, names, since, until)
        with out.explaining_errors(), locked(out, last):
            return _make(spark, run, out, log.node, progress, delta=delta)._replace(committed=committed)
    finally:
        rows.unpersist()


def _look(
    log: NodeLog, begin: Begin, rows: "DataFrame", names: tuple[str, ...], since: Place | None, until: Place
) -> _Run:
    """Look at the whole log once, and return the run.

    Raises:
        HistoryRefused: the log is not whole, or has another history than the tables.
        LogFormatError: the log has records that this release cannot read.
    """
    survey.check_whole(rows, log.path, begin.step.offset, log.start_offset)
    small = survey.small_rows(rows)
    check_history(log, begin, rows, small)
    end = end_of(begin, rows, small, until)
    survey.check_readable(small, end.step.offset)
    steps = steps_of(small.markers, small.dropped(), end.step.offset)
    return _Run(begin, end, rows, small, steps, names, since_of(begin, rows, since))


def _agreed(last: Baseline | None, wanted: tuple[str, ...], since: Place | None) -> tuple[str, ...]:
    """Return the tables of this run.

    Raises:
        HistoryRefused: the directory has other tables, or tables that begin elsewhere.
    """
    if last is None:
        return wanted
    if set(wanted) not in (set(last.tables), set(tables.TABLES)):
        raise HistoryRefused(
            f"the directory has the tables {', '.join(last.tables)}; choose another directory for others"
        )
    if since is not None:
        raise HistoryRefused("the directory has tables already, and they go on where they end: leave --since out")
    return last.tables


def _make(
    spark: "SparkSession", run: _Run, out: TablesDirectory, node: str, progress: Progress, *, delta: bool
) -> History:
    begin, end, last = run.begin, run.end, run.begin.last
    if last is not None and delta_log.has_log(out):
        delta_log.commit(out, run.names, last.run)  # the last run may have died before
    input_rows = run.rows if last is None else engine.with_state(spark, run.rows, out, last)
    progress("the states of brokers")
    brokers, ended = engine.broker_pass(
        input_rows, run.steps, begin.step, () if last is None else last.brokers, goes_on=last is not None
    )
    timelines = brokers.timelines()
    task = Task(
        run.steps, begin.step, last is not None, *timelines, run.small.every_topic, frozenset(run.names), run.since
    )
    progress("topics, partitions and other entities")
    staging = prepare(out, begin.run - 1)
    written, counts, state_rows = engine.large_pass(spark, input_rows, task, staging, begin.run)
    progress("elections and growth")
    elections, election = election_rows(
        run.small, run.rows, begin.step, end.step.offset, None if last is None else last.election
    )
    grown, growth = _growth(run, input_rows, counts, brokers)
    small_tables: Mapping[str, list[Row]] = {
        tables.BROKER_STATES: [*ended, *brokers.open.values()],
        tables.ELECTIONS: elections,
        tables.GROWTH: grown,
    }
    for name in run.names:
        if name in small_tables:
            kept = [row for row in small_tables[name] if _is_after(row, run.since)]
            written[name] = write_rows(staging, begin.run, name, kept)
    progress("writing the baseline")
    baseline = Baseline(
        begin.run,
        node,
        run.names,
        run.since,
        end.step,
        end.chain,
        election,
        growth,
        tuple(brokers.open.values()),
        state_rows,
    )
    check_alone(out, staging, last)
    publish(out, staging, run.names)
    _complete(out, baseline, delta=delta)
    return History(out, begin.step.offset, baseline, written, end.waiting, None)


def _complete(out: TablesDirectory, baseline: Baseline, *, delta: bool) -> None:
    """Let the baseline name the run, and remove what is old now."""
    with out.explaining_errors(
        f"Nobody knows whether run {baseline.run} counts now; run the job again: it goes on from what counts"
    ):
        write_baseline(out, baseline)
    with out.explaining_errors(f"Run {baseline.run} is complete, and old files are left; the next run removes them"):
        if delta or delta_log.has_log(out):
            delta_log.commit(out, baseline.tables, baseline.run)
        remove_old(out, baseline.run)


def _growth(
    run: _Run, input_rows: "DataFrame", counts: Mapping[dt.date, Row], brokers: BrokerHistory
) -> tuple[list[Row], Row]:
    days = survey.batches_by_day(run.rows, run.begin.step.offset, run.end.step.offset)
    for day, more in counts.items():
        days[day] = {**days.get(day, {}), **more}
    last = run.begin.last
    if last is not None:
        return growth_rows(days, brokers.registered_changes, last.growth)
    topics, partitions = (0, 0) if run.begin.base is None else engine.sizes_of_state(input_rows)
    before: dict[str, Any] = {
        "topics": topics, "partitions": partitions, "brokers": brokers.registered_at_begin, "newest": None
    }  # fmt: skip
    return growth_rows(days, brokers.registered_changes, before)


def _is_after(row: Row, since: Offset) -> bool:
    """Return True for a row that is open, or ended above `since`. The rows of `growth` have no offset."""
    ended = row.get("to_offset", row.get("offset"))
    return ended is None or ended > since
