"""The two ends of a run: the place from which it goes on, with the proof that the log has the same history there, and its end."""

from typing import TYPE_CHECKING, Final, NamedTuple

from metadata_log.format.ids import Offset
from snapshots.format import snapshot_name
from snapshots.history.log_files import FilesChanged, LogFiles
from snapshots.offline.committed import Committed
from snapshots.offline.compaction import CannotCompact, base_of
from snapshots.offline.history import survey
from snapshots.offline.history.folding.steps import Step, open_at_end
from snapshots.offline.history.output import Baseline, HistoryRefused
from snapshots.offline.history.place import Place
from snapshots.offline.inputs import NodeLog
from snapshots.offline.reading.parts import with_archive
from snapshots.reader import verify_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOWHERE: Final = Step(0, 0, 0)
_ANEW: Final = "make the tables anew in another directory"


class Begin(NamedTuple):
    """The place from which a run goes on."""

    step: Step
    chain: bytes | None
    """The chain of the log there; None at the beginning of a log."""
    base: str | None
    """The snapshot whose records come first."""
    last: Baseline | None
    """The baseline of the run before."""

    @property
    def run(self) -> int:
        """The number of the run that begins here."""
        return 1 if self.last is None else self.last.run + 1


class End(NamedTuple):
    """The end of a run: a place outside of transactions."""

    step: Step
    chain: bytes | None
    waiting: int
    """The number of records of an open transaction, which are left for the next run."""


def reaching_back(log: NodeLog, last: Baseline | None) -> NodeLog:
    """Return the log with archived segments, if they lead from the begin of the run up to the log without a gap. The run
    begins at the baseline, or at the first record of the cluster.

    Raises:
        CorruptLog: a merged file of the archive is damaged.
        HistoryRefused: a segment was deleted meanwhile.
    """
    wanted = 0 if last is None else last.end.offset
    if log.start_offset <= wanted or not log.segments:
        return log
    search, lowest = LogFiles(log.directory).lowest_before(log.start_offset), log.start_offset
    try:
        while True:
            next(search)
    except StopIteration as found:
        lowest = found.value
    except FilesChanged as e:
        raise HistoryRefused(f"{e}; run the job again") from None
    if lowest > wanted:
        return log
    segments = tuple(each for each in with_archive(log).segments if each.base_offset >= lowest)
    return log._replace(segments=segments, start=None)


def begin_of(log: NodeLog, last: Baseline | None) -> Begin:
    """Return the baseline of the last run; else the snapshot below the log; else the beginning of the log.

    Raises:
        HistoryRefused: the log starts above the baseline, or has no snapshot where it starts.
        LogFormatError: the snapshot is damaged.
    """
    if last is not None:
        if log.start_offset > last.end.offset:
            raise HistoryRefused(
                f"the log of {log.node} starts at {log.start_offset}, and the tables end at {last.end.offset}: the part between "
                f"is gone; use the directory of another node, or {_ANEW}"
            )
        return Begin(last.end, last.chain, None, last)
    try:
        base = base_of(log)
    except CannotCompact as e:
        raise HistoryRefused(str(e).split(";")[0] + "; use the directory of another node") from None
    if base is None:
        return Begin(NOWHERE, None, None, None)
    meta = verify_snapshot(log.directory, base)
    return Begin(Step(base.offset, meta.timestamp_ms, base.epoch), meta.chain, snapshot_name(base), None)


def limit_of(log: NodeLog, begin: Begin, committed: Committed | None) -> Offset | None:
    """Return the offset at which the reading ends; None: the end of the log. `committed` None: no proof is wanted.

    The tables of an earlier run may end above what is proven now. Their end is the limit then, so that the chains there can be
    compared. The tables only grow, so a record that another leader may still replace must not be in them.

    Raises:
        HistoryRefused: nothing is proven, and the log has records.
    """
    if committed is None:
        return log.durable_end
    if not committed.end and begin.last is None and log.durable_end != 0:
        raise HistoryRefused(
            f"no record of {log.node} is proven to be committed: {committed.proof}; name the directories of other controllers "
            "with --beside, or accept the risk with --uncommitted"
        )
    limit = committed.end if log.durable_end is None else min(committed.end, log.durable_end)
    return max(limit, begin.step.offset)


def check_history(log: NodeLog, begin: Begin, rows: "DataFrame", small: survey.SmallRows) -> None:
    """Refuse a log with another history below the place where the run begins.

    Raises:
        HistoryRefused: the chain of the log differs there, or the log has dropped a batch that the tables contain.
    """
    if begin.chain is not None:
        offset = begin.step.offset
        chain = survey.chain_at(rows, offset)
        if chain is None and log.start is not None and log.start.start.offset == offset:
            chain = log.start.chain
        if chain is None and begin.last is not None:
            raise HistoryRefused(f"the log of {log.node} does not reach offset {offset}, where the tables end; {_ANEW}")
        if chain is not None and chain != begin.chain:
            what = "the snapshot" if begin.last is None else "the tables"
            raise HistoryRefused(
                f"the log of {log.node} has another history below offset {offset} than {what}; {_ANEW}"
            )
    if begin.last is None:
        return
    for skip in small.skips():
        if skip.dropped_start < begin.step.offset:
            raise HistoryRefused(
                f"an operator has skipped the batch at offset {skip.offset}, and the tables contain its effect; {_ANEW}"
            )


def end_of(begin: Begin, rows: "DataFrame", small: survey.SmallRows, until: Place) -> End:
    """Return the end of the last batch at or below `until`, or of the last one before a transaction that is open there."""
    begin_end = survey.End(begin.step, begin.chain or b"")
    found = survey.end_below(rows, until) or begin_end
    markers = [each for each in small.markers if each.offset < found.step.offset]
    begun = open_at_end(markers, small.dropped())
    end = found if begun is None else survey.end_below(rows, until._replace(offset=begun)) or begin_end
    if end.step.offset <= begin.step.offset:
        end = begin_end
    return End(end.step, end.chain or None, max(0, found.step.offset - end.step.offset))


def since_of(begin: Begin, rows: "DataFrame", since: Place | None) -> Offset:
    """Return the offset at or below which ended intervals, and events, are left out."""
    if begin.last is not None:
        return begin.last.since
    found = None if since is None else survey.end_below(rows, since)
    return 0 if found is None else found.step.offset
