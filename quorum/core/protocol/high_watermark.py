"""The commit rule (Raft 5.3, 5.4.2): how far the log is on a majority's disks, and whether that may be called committed.

    voter ends   9  7  7  5  4      of five, the third largest is 7: three voters hold everything below 7

That number alone is not enough. Raft's figure 8: a record of an older epoch may stand on a majority and still be
overwritten by a leader whose log ends in a later epoch. It is safe once a record of the *current* epoch above it is on a
majority, because then nobody without it wins an election. So a leader moves its high watermark to `end` only if the
record at `end - 1` is of its own epoch. An end equal to the epoch's start is one record short of that.

Arithmetic only. Who asks is `leader.advance_high_watermark`; a follower is told by its leader
(`follower.on_log_grown`). Both move it in `QuorumState.raise_high_watermark`.
"""

from collections.abc import Iterable

from metadata_log.format.ids import Offset


def majority_end(ends: Iterable[Offset | None], voter_count: int) -> Offset | None:
    """The largest offset below which a majority of `voter_count` voters holds everything; None if there is no such.

    `ends` are the durable ends of the voters that have spoken (exclusive); None, or a voter that is left out, has not.
    """
    known = sorted((end for end in ends if end is not None), reverse=True)
    assert len(known) <= voter_count, "an end of somebody who does not vote"
    majority = voter_count // 2 + 1
    return known[majority - 1] if len(known) >= majority else None


def leader_high_watermark(
    ends: Iterable[Offset | None], voter_count: int, *, epoch_start_offset: Offset, current: Offset | None
) -> Offset | None:
    """The new high watermark of a leader whose epoch's first record is at `epoch_start_offset`; None: it does not move.

    It never moves back: after a change of the voter set a majority of the new voters may hold less than is committed.
    """
    end = majority_end(ends, voter_count)
    if end is None or end <= epoch_start_offset:
        return None
    if current is not None and end <= current:
        return None
    return end
