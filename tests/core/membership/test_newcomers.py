"""A new voter must fit the cluster: the core asks for the judgement, and waits or refuses."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.effects import AppendControl
from quorum.core.protocol.newcomer import Unfit
from tests.core.cluster import directory
from tests.core.membership.test_membership_sentences import add, with_observer
from tests.core.membership.voter_changes import answer, answers, appended
from tests.core.solo import Solo, none_of


def judged(judgements: dict[ReplicaKey, Unfit]) -> Solo:
    """A working leader with an observer, node 4, and these judgements."""
    solo = with_observer()
    solo.core._state.judge_newcomer = judgements.get
    return solo


def key(generation: int = 0) -> ReplicaKey:
    return ReplicaKey(4, directory(4, generation))


def test_the_leader_waits_for_a_newcomer_that_may_fit_later() -> None:
    """The controller has caught up, and registers its features a moment later: the leader appends the set then."""
    judgements = {key(): Unfit("controller 4 to register", may_pass=True)}
    solo = judged(judgements)
    asked = solo.request(add())
    assert not answers(asked) and none_of(AppendControl, asked)
    judgements.clear()
    assert appended(solo.fetch(4, high_watermark=4)) == (1, 2, 3, 4)


def test_a_newcomer_that_never_fits_is_told_what_was_missing() -> None:
    solo = judged({key(): Unfit("controller 4 to register", may_pass=True)})
    solo.request(add(timeout_ms=300))
    said = answer(solo.wait(300))
    assert (said.error, said.offset) == (ErrorCode.REQUEST_TIMED_OUT, None)
    assert said.message == "waited 300 ms for controller 4 to register; nothing was done"


def test_a_newcomer_that_cannot_fit_is_refused() -> None:
    """At once, and also if the judgement changes while the leader waits for the newcomer."""
    judgements = {key(): Unfit("controller 4 lacks level 2", may_pass=False), key(1): Unfit("not this one", False)}
    solo = judged(judgements)
    said = answer(solo.request(add()))
    assert (said.error, said.message) == (ErrorCode.UNSUPPORTED_VERSION, "controller 4 lacks level 2; nothing was done")

    final = judgements.pop(key())
    judgements[key()] = Unfit("controller 4 to register", may_pass=True)
    assert not answers(solo.request(add()))
    judgements[key()] = final
    effects = solo.fetch(4, high_watermark=4)
    assert answer(effects).error is ErrorCode.UNSUPPORTED_VERSION and none_of(AppendControl, effects)
