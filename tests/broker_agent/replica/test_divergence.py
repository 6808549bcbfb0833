"""The leader's judgement of a follower's place, and the follower's truncation: compared with two lists of epochs."""

import random

from broker_agent.replica.divergence import Diverged, Refused, Valid, judge_fetch, truncation_point
from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.replica.logs import batch, run, shape_of


def test_equal_epochs_below_an_offset_agree() -> None:
    """Raft's log matching: the same epoch at the same offset."""
    leader = run(1, 1, 1, 4, 4, 5)
    assert judge_fetch(leader, 5, 4) == Valid()
    assert judge_fetch(leader, 0, 0) == Valid()
    assert judge_fetch(leader, 7, 3) == Diverged(OffsetAndEpoch(3, 1))
    assert judge_fetch(leader, 9, 5) == Diverged(OffsetAndEpoch(6, 5)), "the follower has more of the same epoch"


def test_a_place_below_the_log_start_is_out_of_range() -> None:
    """The leader's log begins at 4@3: below, and with earlier epochs, nothing can be compared."""
    leader = shape_of(batch(4, 5, "a"), start=OffsetAndEpoch(4, 3))
    out = Refused(E.OFFSET_OUT_OF_RANGE)
    assert judge_fetch(leader, 3, 3) == out
    assert judge_fetch(leader, 9, 2) == out, "a truncation to an end of epoch 2 would never reach the leader's log"
    assert judge_fetch(leader, 4, 4) == out
    assert judge_fetch(leader, 4, 3) == Valid()
    assert judge_fetch(leader, 9, 4) == Diverged(OffsetAndEpoch(4, 3))


def test_every_pair_of_logs_meets_at_its_longest_common_prefix() -> None:
    """The follower truncates round by round. Dumb twin: compare the lists record by record."""
    rng = random.Random(7)
    rounds_max = 0
    for _ in range(3_000):
        history = sorted(rng.choices(range(1, 6), k=rng.randint(0, 6)))
        last = history[-1] if history else 0
        # After the common history the leader and the follower have records of different leaderships.
        epochs = range(last + 1, last + 9)
        of_leader = set(rng.sample(epochs, 4))
        leader = history + sorted(rng.choices(sorted(of_leader), k=rng.randint(0, 5)))
        follower = history + sorted(rng.choices(sorted(set(epochs) - of_leader), k=rng.randint(0, 5)))
        rounds = 0
        while True:
            shape = run(*follower)
            verdict = judge_fetch(run(*leader), shape.end, shape.last_epoch)
            if isinstance(verdict, Valid):
                break
            assert isinstance(verdict, Diverged)
            end = truncation_point(shape, verdict.end)
            assert end < shape.end, "each round makes progress"
            follower, rounds = follower[:end], rounds + 1
        assert follower == history
        rounds_max = max(rounds_max, rounds)
    assert rounds_max > 1, "some pairs alternate"
