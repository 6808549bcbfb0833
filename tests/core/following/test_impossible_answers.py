"""Answers with numbers that no node can mean: each counts as a missing answer, and the node asks again."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.protocol.effects import Effect, ElectionState, HighWatermarkAdvanced, SaveElectionState, TruncateLog
from quorum.core.protocol.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, VoteRequest, VoteResponse
from quorum.core.roles import Role
from tests.core.situations import follower, requests
from tests.core.solo import Solo, fetch_in, none_of

GOOD = FetchResponse(ErrorCode.NONE, 3, 2, 0, high_watermark=0, log_end=2)

IMPOSSIBLE = [
    GOOD._replace(leader_id=-1),
    GOOD._replace(high_watermark=-1),
    GOOD._replace(log_end=-1),
    GOOD._replace(diverging=OffsetAndEpoch(-5, 1)),
    GOOD._replace(diverging=OffsetAndEpoch(1, -1)),
    GOOD._replace(snapshot=OffsetAndEpoch(-1, 1)),
    GOOD._replace(snapshot=OffsetAndEpoch(5, -1)),
]


def is_harmless(effects: list[Effect]) -> bool:
    """True if nothing on disk changes, and nothing is committed."""
    return all(none_of(kind, effects) for kind in (SaveElectionState, TruncateLog, HighWatermarkAdvanced))


@pytest.mark.parametrize("answer", IMPOSSIBLE)
def test_a_follower_ignores_the_answer_and_fetches_again(answer: FetchResponse) -> None:
    """Even if the answer comes from its leader, which a fault may have reached."""
    solo, fetch = follower(1, 1)
    effects = solo.respond(2, fetch, answer._replace(number=fetch.number))
    assert is_harmless(effects) and not requests(effects, FetchRequest), effects

    effects = solo.wait(solo.config.retry_backoff_ms)
    again = fetch_in(effects)
    assert (again.fetch_offset, again.number) == (2, fetch.number + 1)
    assert not requests(effects, FetchSnapshotRequest)
    solo.good_answer(again, high_watermark=2)
    assert (solo.core.role, solo.core.high_watermark) == (Role.FOLLOWER, 2)


def test_a_leader_with_a_negative_id_is_not_followed() -> None:
    """The id would be saved in `quorum-state`, and no later start could read that file: the node's vote would be lost.

    1. Node 1 is in epoch 2 and asks the voters for a leader, and later for pre-votes.
    2. Answers name node -7 as the leader of epoch 3. Node 1 stays in epoch 2.
    """
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    effects = solo.wait(1)
    asked = fetch_in(solo.started + effects)
    target = requests(solo.started + effects, FetchRequest)[0].destination
    answer = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, -7, asked.number)
    assert is_harmless(solo.respond(target, asked, answer))

    vote = requests(solo.wait(600), VoteRequest)[0]
    assert isinstance(vote.request, VoteRequest)
    assert is_harmless(solo.respond(vote.destination, vote.request, VoteResponse(ErrorCode.NONE, 3, -7, False)))
    assert (solo.core.epoch, solo.core.leader_id) == (2, None)
