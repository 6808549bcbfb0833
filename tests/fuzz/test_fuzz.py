"""A fixed slice of the fuzzer's inputs, and every input that was once answered wrongly; `make fuzz INPUTS=1000000` runs more."""

import json
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.mutation import mutated
from tests.fuzz.running import CPU_SECONDS_MAX, chunks, judge, run
from tests.fuzz.target import ACCEPTED, Target
from tests.fuzz.targets import targets

INPUTS = 20_000
NEVER_ACCEPTED = {"AdminService.AddVoter": "REQUEST_TIMED_OUT"}
"""What no sample is answered but with this. An operator's new voter is acknowledged when it is committed, for which another voter
has to fetch it; and while a call lasts there is nobody here but the node that is asked."""
REGRESSIONS = [
    (each["target"], each["input"]) for each in json.loads((Path(__file__).parent / "regressions.json").read_text())
]


@pytest.mark.slow
def test_a_slice_of_inputs_is_answered() -> None:
    """Whatever is read from a disk or the network: an answer or a typed refusal, soon and in little memory."""
    tallies = run(chunks(list(targets()), INPUTS, seed=1))
    assert [str(failure) for tally in tallies.values() for failure in tally.failures] == []
    assert tallies.keys() == targets().keys()
    assert all(len(tally.outcomes) > 1 for tally in tallies.values() if targets()[tally.target].refuses), tallies


@pytest.mark.parametrize("name", list(targets()))
def test_what_is_not_hurt_is_accepted(name: str) -> None:
    """Else the inputs would never come past the first check. (Some samples are only there to be mixed with others.)"""
    target = targets()[name]
    outcomes = {target.outcome(sample) for sample in target.samples}
    if name in NEVER_ACCEPTED:
        assert NEVER_ACCEPTED[name] in outcomes
        assert ACCEPTED not in outcomes, "it need not stand in that list any more"
    else:
        assert ACCEPTED in outcomes


@pytest.mark.parametrize(("name", "data"), REGRESSIONS)
def test_an_input_that_was_once_answered_wrongly(name: str, data: str) -> None:
    """Each was a bug; most have a test of their own beside the code that was mended, which says more."""
    _, wrong = judge(targets()[name], bytes.fromhex(data))
    assert wrong is None


def test_one_seed_is_one_row_of_inputs() -> None:
    samples = [bytes(range(200)), b"another"]
    first, second = ([mutated(Random(number), samples) for number in range(200)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 150


def _endless(_: bytes) -> None:
    while True:
        pass


def _greedy(_: bytes) -> None:
    bytearray(100 << 20)


def _careless(data: bytes) -> None:
    assert data[0] < 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("take", "verdict"), [(_endless, "!TookTooLong"), (_greedy, "!TooMuchMemory"), (_careless, "!AssertionError")]
)
def test_a_bad_reader_is_noticed(take: object, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No end, an allocation that nobody has checked, or an error that nobody has promised."""
    monkeypatch.setattr("tests.fuzz.running.CPU_SECONDS_MAX", 0.02)
    assert CPU_SECONDS_MAX >= 1
    target = Target("bad", lambda: [b"\x09"], take)  # type: ignore[arg-type]
    outcome, story = judge(target, b"\x09", watched=True)
    assert outcome == verdict
    assert story
