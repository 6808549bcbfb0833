"""The table of elections, made on the driver: the winner, the reason, and the silence of the log before. Example:
1. the last batch of epoch 1 ends at offset 40, and its time is 18:30:00;
2. a control record at offset 40 names node 2 as the leader of epoch 2, and its time is 18:30:07;
3. the row of epoch 2 has the leader 2, the previous leader 1, and a gap of 7,000 ms.
"""

from typing import TYPE_CHECKING

from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.records import LeaderChange
from snapshots.offline.history.folding.intervals import event
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.log_rows import BATCH
from snapshots.offline.history.survey import SmallRows
from snapshots.offline.history.tables import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def election_rows(
    small: SmallRows, rows: "DataFrame", begin: Step, end: Offset, last: tuple[Epoch, NodeId] | None
) -> tuple[list[Row], tuple[Epoch, NodeId] | None]:
    """Return the rows of `elections` below `end`, and the last election."""
    from pyspark.sql import functions as f

    newest = f.max(f.struct("step", "time_ms")).alias("newest")
    epochs = rows.where(f.col("entity") == BATCH).groupBy("epoch").agg(newest).collect()
    ends = {row["newest"]["step"]: row["newest"]["time_ms"] for row in epochs} | {begin.offset: begin.time_ms}
    found: list[Row] = []
    for (step, record), offset in zip(small.control, small.control_offsets, strict=True):
        if not isinstance(record, LeaderChange) or step.offset > end or offset < begin.offset:
            continue
        before = ends.get(offset) if offset > 0 else None
        found.append(
            event(
                step, epoch=step.epoch, leader_id=record.leader_id, voters=[*record.voters],
                granting_voters=[*record.granting_voters], previous_epoch=None if last is None else last[0],
                previous_leader=None if last is None else last[1], why=_why(record, last),
                gap_ms=None if before is None else step.time_ms - before,
            )
        )  # fmt: skip
        last = (step.epoch, record.leader_id)
    return found, last


def _why(record: LeaderChange, last: tuple[Epoch, NodeId] | None) -> str:
    """Return what the log knows about the reason of an election. The record names the voters that granted their votes; a
    leader that grants its vote to another one was alive.
    """
    if last is None:
        return "first_known"
    previous = last[1]
    if previous == record.leader_id:
        return "same_leader"
    if previous not in record.voters:
        return "leader_removed"
    return "leader_gave_way" if previous in record.granting_voters else "leader_silent"
