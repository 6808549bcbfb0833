"""The end of a table in a log: by default the last record that is proven to be committed.

Example. Controllers 1 and 2 of three have logs up to 130 and 120, of epoch 4, and each has a snapshot at 80.
  1. `path` names controller 1. Its files prove 80, so a table has the records [0, 80).
  2. `beside` names controller 2. Two of three voters hold [0, 120), so the table ends at 120.
  3. `until` = `uncommitted` gives [0, 130), as durable as the log is. Another leader may still replace [120, 130).
  4. `until` = 100 gives [0, 100): a bound that a reader names is the reader's decision.
A log of which nothing is proven is refused: an empty table would look like an empty log.
"""

import json
from collections.abc import Iterable, Mapping

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from snapshots.offline.committed import Committed, committed_ends
from snapshots.offline.inputs import NodeLog, find_logs
from snapshots.offline.reading.options import COMMITTED, END, FLUSHED, UNCOMMITTED

Ends = Mapping[str, Offset | None]
"""The end of each log, by its path; None: the end of the file."""


class NothingProven(LogFormatError):
    """The files do not prove that any record is committed. `reason` is the text without what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f'{reason}; name the directories of other controllers with .option("beside", DIRECTORY), or choose an end with '
            '.option("until", "uncommitted") or an offset'
        )
        self.reason = reason


def ends_of(logs: Iterable[NodeLog], until: str, beside: Iterable[str] = ()) -> Ends:
    """Return the ends that the option `until` names. The directories in `beside` only help to prove what is committed.

    Raises:
        NothingProven: `until` is `committed`, a log has records, and nothing is proven.
        LogFormatError: a file that the proof needs cannot be read.
    """
    logs = tuple(logs)
    if until == COMMITTED:
        proven = committed_ends((*logs, *find_logs(beside)))
        return {log.path: _committed(log, end) for log, end in zip(logs, proven, strict=False)}
    if until.startswith("{"):
        given = json.loads(until)
        return {log.path: int(given[log.path]) if log.path in given else None for log in logs}
    return {log.path: _end(log, until) for log in logs}


def _committed(log: NodeLog, proven: Committed) -> Offset | None:
    if not proven.end and log.segments and log.durable_end != 0:
        raise NothingProven(f"no record of {log.node} is proven to be committed: {proven.proof}")
    return proven.end if log.durable_end is None else min(proven.end, log.durable_end)


def _end(log: NodeLog, until: str) -> Offset | None:
    if until == END:
        return None
    return log.durable_end if until in (FLUSHED, UNCOMMITTED) else int(until)
