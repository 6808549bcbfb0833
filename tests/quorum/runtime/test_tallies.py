"""What a running controller measures of itself."""

import contextlib
from pathlib import Path
from typing import Final

import pytest

from quorum.runtime.commit_meter import WAITING_MAX, CommitMeter
from quorum.runtime.protocol.tallies import Tallies
from service_kit.process.tallies import Histogram
from tests.quorum.runtime.quorum_of_three import quorum_of_three, until


def observed(meter_seconds: Histogram) -> list[float]:
    return [round(each.sum, 6) for each in meter_seconds.series.values()]


def test_a_commit_is_measured_from_the_turn_that_appended_to_the_turn_that_applied() -> None:
    """Once for a turn, however many records it appended. The log's end when the node became active is nobody's append."""
    seconds = Histogram((0.001, 0.01))
    meter = CommitMeter(seconds)
    meter.note(False, 10, 10, 0)
    meter.note(True, 10, 10, 1_000)
    meter.note(True, 15, 10, 2_000)
    meter.note(True, 17, 10, 3_000)
    assert seconds.count == 0
    meter.note(True, 17, 15, 6_000)
    assert observed(seconds) == [0.004]
    meter.note(True, 17, 17, 7_000)
    assert observed(seconds) == [0.008] and seconds.count == 2


def test_what_a_leader_could_not_commit_before_it_was_deposed_is_not_measured() -> None:
    """Nobody knows what became of it; and without a majority the meter does not grow without bound."""
    seconds = Histogram((0.001,))
    meter = CommitMeter(seconds)
    for end in range(2 * WAITING_MAX):
        meter.note(True, end, 0, end)
    assert len(meter._waiting) == WAITING_MAX
    meter.note(False, 2 * WAITING_MAX, 0, 1)
    meter.note(True, 2 * WAITING_MAX, 2 * WAITING_MAX, 2)
    assert seconds.count == 0


QUIET: Final = {
    "outside_elections": "no partition loses its ISR here; tests/quorum/runtime/active/test_story.py",
    "brokers_fenced": "no broker is fenced here; tests/quorum/runtime/active/test_story.py",
    "transactions": "no request is large here; tests/quorum/runtime/active/test_transactions.py",
}
"""The tallies that a healthy quorum need not fill, each with its reason and the test that fills it."""


def empty(tallies: Tallies) -> set[str]:
    """The names of the tallies to which nothing was added."""
    counts = {name: each.count if isinstance(each, Histogram) else each.total for name, each in vars(tallies).items()}
    return {name for name, count in counts.items() if count == 0}


@pytest.mark.slow
async def test_a_quorum_at_work_fills_every_tally(tmp_path: Path) -> None:
    """Turns, flushes and fetches are measured everywhere, commits, snapshots and the election on the leader."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        active = next(each for each in quorum.loops.values() if each.status().is_active)
        await active.create_snapshot("so that something is committed", 5_000)
        for loop in quorum.loops.values():
            assert loop.tallies.turn_seconds.count > 0 and loop.tallies.flush_seconds.count > 0
        assert active.tallies.commit_seconds.count > 0
        assert sum(active.tallies.fetch_seconds.series["voter",].counts) > 0
        assert active.tallies.elections.total >= active.tallies.elections_won.total == 1
        with contextlib.suppress(TimeoutError):  # other threads add to some tallies, a little later
            await until(lambda: not empty(active.tallies) - QUIET.keys())
        assert not (missing := empty(active.tallies) - QUIET.keys()), (
            f"nothing adds to {missing} in a healthy quorum; if that is right, name it in QUIET, with the test that fills it"
        )
        assert not (unknown := QUIET.keys() - vars(active.tallies).keys()), f"QUIET names {unknown}, which is no tally"
