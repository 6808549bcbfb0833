"""Do two logs agree? The leader judges each fetch by the (offset, epoch, chain) that it states (KIP-595, KIP-630).

Raft's log matching: two logs that hold a record of the same epoch at the same offset agree on everything before it. So a
follower states the end of its log and the epoch of its last record, and the leader looks that place up in its own epoch
table. If it is not there, the leader names the end of the largest epoch that is not later, the follower cuts back, and
asks again; each round skips at least one epoch.

    leader    1 1 1 4 4 5        epochs (1,0) (4,3) (5,5)
    follower  1 1 1 3 3 3 3      asks: offset 7, epoch 3 -> "epoch 1 ends at 3" -> cuts to 3, asks: offset 3, epoch 1 -> valid

The chain is one more witness that KRaft does not have. At equal (offset, epoch) log matching says that the histories are
the same; if their hashes differ, somebody's disk or code has lied, and nobody may truncate on the strength of that.
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
    """The follower's log is none; the two may agree up to `end`, the end of the largest epoch that is not later."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class UseSnapshot:
    """What the follower asks for is no longer in the log."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ChainMismatch:
    """Equal (offset, epoch), different history."""


Verdict: TypeAlias = Valid | Diverging | UseSnapshot | ChainMismatch


def judge_fetch(
    shape: LogShape, *, fetch_offset: Offset, last_fetched_epoch: Epoch, chain: bytes, chain_at_offset: bytes | None
) -> Verdict:
    """The leader's verdict on a log that ends at `fetch_offset`, its last record being of `last_fetched_epoch`.

    `chain_at_offset` is the leader's own chain there, None where it has no batch boundary.
    """
    if fetch_offset == 0 and chain_at_offset is not None and chain_at_offset != chain:
        # Another genesis is another cluster. Our snapshot would hide that, and make one of us of whoever asks.
        return ChainMismatch()
    snapshot = shape.snapshot
    if snapshot is not None:
        # An empty log is served from a snapshot even where the log still reaches back to 0: that is what it is for.
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
    """Where a follower cuts its log, told that the leader's largest epoch not later than its own ends at `diverging`.

    If the follower has no record of that epoch, it cuts at the end of its own largest epoch below it; otherwise the two
    agree up to the lesser of the two ends of that epoch.
    """
    mine = shape.end_of_epoch(diverging.epoch)
    return min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset
