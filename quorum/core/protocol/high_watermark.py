"""The commit rule (Raft 5.3, 5.4.2): the end held by a majority's disks, and whether records below are committed.

    voter ends   9  7  7  5  4      of five voters, the third largest end is 7: three voters hold everything below 7

The majority's end alone is not enough. In Raft's figure 8, a majority holds a record of an older epoch, and a leader
with a log ending in a later epoch still overwrites the record. A record is safe once a majority holds a later record of
the *current* epoch, because a candidate without the later record cannot win. So a leader raises its high watermark to
`end` only if the record at `end - 1` is of its own epoch:

    1. Leader 1, epoch 3, has records of epoch 2 up to offset 7, and its own first record at 7.
    2. Voter 2 fetches at 7: leader and voter hold everything below 7. The epoch's start is 7, so nothing is committed.
    3. Voter 2 fetches at 8: both hold the record of epoch 3. The high watermark becomes 8.

This file is arithmetic only. A leader calls `leader.advance_high_watermark`; a follower learns the high watermark from
its leader (`follower.on_log_grown`). Both change it in `QuorumState.raise_high_watermark`.
"""

from collections.abc import Iterable

from metadata_log.format.ids import Offset


def majority_end(ends: Iterable[Offset | None], voter_count: int) -> Offset | None:
    """The largest offset below which a majority of `voter_count` voters holds every record; None: no such offset.

    `ends` are the known durable ends of voters, exclusive. None, or a missing voter: the end is not known.
    """
    known = sorted([end for end in ends if end is not None], reverse=True)
    assert len(known) <= voter_count, "an end of a replica that is no voter"
    majority = voter_count // 2 + 1
    return known[majority - 1] if len(known) >= majority else None


def leader_high_watermark(
    ends: Iterable[Offset | None], voter_count: int, *, epoch_start_offset: Offset, current: Offset | None
) -> Offset | None:
    """The new high watermark of a leader with its epoch's first record at `epoch_start_offset`; None: no change.

    The high watermark never moves back: after a change of the voter set, a majority of the new set may hold less.
    """
    end = majority_end(ends, voter_count)
    if end is None or end <= epoch_start_offset:
        return None
    if current is not None and end <= current:
        return None
    return end
