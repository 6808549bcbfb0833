"""Comparing two logs: the leader judges each fetch by the follower's (offset, epoch, chain) (KIP-595, KIP-630).

Raft's log matching: two logs with a record of the same epoch at the same offset agree on all earlier records. A
follower sends the end of its log and the epoch of its last record, and the leader looks for this place in its own epoch
table. If the place is not there, the leader names the end of the largest epoch not later than the follower's; the
follower truncates and fetches again. Each round skips at least one epoch.

    leader    1 1 1 4 4 5        epoch table (1,0) (4,3) (5,5)
    follower  1 1 1 3 3 3 3

    1. The follower fetches at offset 7 with epoch 3. The leader has no epoch 3 and answers "epoch 1 ends at 3".
    2. The follower truncates to 3 and fetches at offset 3 with epoch 1.
    3. The leader has epoch 1 below offset 3: the logs agree.

The chain is a second witness, unknown to KRaft. At equal (offset, epoch), log matching says that the histories are
equal. If the hashes differ, a disk or a program has returned wrong data, and no node may truncate for such a reason.
"""

from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape


@dataclass(frozen=True, slots=True)
class Valid:
    """The follower's log is a prefix of the leader's."""


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's log is no prefix of the leader's.

    Both may agree up to `end`: the end of the largest epoch not later.
    """

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class UseSnapshot:
    """The leader's log no longer holds the requested records."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ChainMismatch:
    """Equal (offset, epoch), different histories."""


Verdict: TypeAlias = Valid | Diverging | UseSnapshot | ChainMismatch


def judge_fetch(
    shape: LogShape, *, fetch_offset: Offset, last_fetched_epoch: Epoch, chain: bytes, chain_at_offset: bytes | None
) -> Verdict:
    """The leader's verdict on a log ending at `fetch_offset` with a last record of `last_fetched_epoch`.

    `chain_at_offset` is the leader's own chain at `fetch_offset`; None without a batch boundary there.
    """
    if fetch_offset == 0 and chain_at_offset is not None and chain_at_offset != chain:
        # Another genesis is another cluster. A snapshot would hide the difference and absorb the foreign node.
        return ChainMismatch()
    snapshot = shape.snapshot
    if snapshot is not None:
        # An empty log gets a snapshot even if the leader's log still reaches back to 0: snapshots exist for this
        # purpose.
        if fetch_offset == 0 or fetch_offset < shape.start.offset:
            return UseSnapshot(snapshot)
        if last_fetched_epoch < shape.start.epoch:
            return UseSnapshot(snapshot)
        if fetch_offset == shape.start.offset and last_fetched_epoch != shape.start.epoch:
            return UseSnapshot(snapshot)
    else:
        assert shape.start.offset == 0, f"the log starts at {shape.start} and no snapshot covers what is before"
    if shape.epoch_below(fetch_offset) == last_fetched_epoch:
        return Valid() if chain_at_offset == chain else ChainMismatch()
    return Diverging(shape.end_of_epoch(last_fetched_epoch))


def truncation_point(shape: LogShape, diverging: OffsetAndEpoch) -> Offset:
    """The offset for truncating a follower's log when the leader's largest epoch not later than the follower's ends at
    `diverging`.

    A follower without records of that epoch truncates to the end of its own largest epoch below. Otherwise both logs
    agree up to the lesser end of that epoch.
    """
    mine = shape.end_of_epoch(diverging.epoch)
    return min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset
