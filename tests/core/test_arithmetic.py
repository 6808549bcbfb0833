"""The core's arithmetic compared with dumb twins, which compute the same results the long way."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.protocol.divergence import Diverging, Valid, judge_fetch, truncation_point
from quorum.core.protocol.high_watermark import leader_high_watermark, majority_end
from quorum.core.protocol.progress import newest_of_majority
from tests.core.fake_log import FakeLog
from tests.core.solo import log_of

ENDS = st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=7)


def dumb_majority_end(ends: list[int | None], voter_count: int) -> int | None:
    """Tries every offset with every majority."""
    majority = voter_count // 2 + 1
    found = None
    for offset in range(14):
        for group in combinations(ends, majority):
            if all(end is not None and end >= offset for end in group):
                found = offset
    return found


@given(ENDS)
def test_majority_end(ends: list[int | None]) -> None:
    """The end is the largest offset below which some majority holds every record."""
    assert dumb_majority_end(ends, len(ends)) == majority_end(ends, len(ends))


@given(ENDS, st.integers(0, 12), st.none() | st.integers(0, 12))
def test_leader_high_watermark(ends: list[int | None], epoch_start: int, current: int | None) -> None:
    """R8: the high watermark only moves forward, only past a record of the leader's own epoch, only to a majority's
    end.
    """
    moved = leader_high_watermark(ends, len(ends), epoch_start_offset=epoch_start, current=current)

    possible = dumb_majority_end(ends, len(ends))
    allowed = possible is not None and possible - 1 >= epoch_start and (current is None or possible > current)
    assert (possible if allowed else None) == moved


@given(st.lists(st.none() | st.integers(0, 100), max_size=7), st.integers(1, 4))
def test_newest_of_majority(times: list[int | None], needed: int) -> None:
    """The time is the newest at which `needed` voters had acted, found by counting backwards."""
    dumb = max((t for t in range(101) if sum(time is not None and time >= t for time in times) >= needed), default=None)

    assert dumb == newest_of_majority(times, needed)


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[FakeLog, FakeLog]:
    """Two logs as left by Raft: a common beginning, then records of different leaders."""
    common = sorted(draw(st.lists(st.integers(1, 4), max_size=6)))
    base = common[-1] if common else 0
    # No epoch has two leaders. So above the common part the logs share no epoch, except the last common one, which one
    # log may continue.
    odd = sorted(draw(st.lists(st.sampled_from([base + 1, base + 3, base + 5]), max_size=5)))
    even = sorted(draw(st.lists(st.sampled_from([base or 1, base + 2, base + 4]), max_size=5)))
    mine, theirs = (odd, even) if draw(st.booleans()) else (even, odd)
    return log_of(*common, *mine), log_of(*common, *theirs)


def common_end(one: FakeLog, other: FakeLog) -> int:
    """Compares record by record."""
    end = 0
    for mine, theirs in zip(one.batches, other.batches, strict=False):
        if mine.chain != theirs.chain:
            break
        end = mine.end_offset
    return end


@given(two_logs())
def test_a_follower_arrives_at_the_common_prefix(logs: tuple[FakeLog, FakeLog]) -> None:
    """Each round of fetch and truncation cuts some records, and the rounds end exactly where both logs agree."""
    leader, follower = logs
    agreed = common_end(leader, follower)
    for _ in range(20):
        shape = follower.shape()
        verdict = judge_fetch(
            leader.shape(),
            fetch_offset=shape.end,
            last_fetched_epoch=shape.last_epoch,
            chain=follower.chain,
            chain_at_offset=leader.chain_at(shape.end),
        )
        if isinstance(verdict, Valid):
            break
        assert isinstance(verdict, Diverging)
        cut = truncation_point(shape, verdict.end)
        assert agreed <= cut < shape.end
        follower.truncate(cut)

    assert agreed == follower.end


@given(two_logs())
def test_a_divergence_names_a_place_in_the_leaders_log(logs: tuple[FakeLog, FakeLog]) -> None:
    """The place is the end of one of the leader's epochs, or the very beginning."""
    leader, follower = logs
    end = leader.shape().end_of_epoch(follower.shape().last_epoch)

    assert end == OffsetAndEpoch(0, 0) or leader.epoch_below(end.offset) == end.epoch
