"""Requests of a node on its own behalf: to join, to remove its former self, to move (KIP-853, KIP-1186); and strangers."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.core.protocol.effects import Effect, ElectionState, Reply, SendRequest
from quorum.core.protocol.inputs import Failure, RequestFailed
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from quorum.core.roles import Role
from tests.core.cluster import directory, voter, voters_of
from tests.core.membership.voter_changes import ELSEWHERE, answers, appended
from tests.core.situations import requests
from tests.core.solo import Solo, fetch_in, key, log_of, only

# --- requests of a node on its own behalf
# ------------------------------------------------------------------------------


class Follows:
    """A follower of node 2, the leader of {1,2,3}, with the log 1 1."""

    def __init__(
        self,
        me: ReplicaKey = key(4),  # noqa: B008 -- a value
        *,
        auto_join: bool = True,
        endpoints: tuple[Endpoint, ...] = ELSEWHERE,
    ) -> None:
        self.solo = Solo(
            epochs=(1, 1), election=ElectionState(3, None, None), me=me, auto_join=auto_join, endpoints=endpoints
        )
        self._asked = self.solo.follow(2)

    def hears(self, *records: Voters | None, high_watermark: int) -> list[QuorumChangeRequest]:
        """The leader sends these records. Returns the node's next request on its own behalf."""
        twin = log_of()
        twin.append_batches(tuple(self.solo.log.batches))
        batches = tuple(twin.append(3, record) for record in records)
        effects = self.solo.good_answer(self._asked, batches=batches, high_watermark=high_watermark)
        self._asked = fetch_in(effects)
        return wishes(effects)


def wishes(effects: list[Effect]) -> list[QuorumChangeRequest]:
    kinds = (AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest)
    return [e.request for e in effects if isinstance(e, SendRequest) and isinstance(e.request, kinds)]


def test_who_has_caught_up_asks_to_be_let_in() -> None:
    """KIP-1186: a node still behind does not ask, because the leader would only wait for it."""
    node = Follows()
    assert not node.hears(None, high_watermark=4)
    (wish,) = node.hears(None, high_watermark=4)

    timeout_ms = node.solo.config.request_timeout_ms
    assert wish == AddVoterRequest(Voter(*key(4), ELSEWHERE), ack_when_committed=True, timeout_ms=timeout_ms)
    assert not node.hears(high_watermark=4), "one request at a time"


def test_nobody_joins_who_was_not_told_to() -> None:
    assert not Follows(auto_join=False).hears(high_watermark=2)
    assert not Follows(endpoints=()).hears(high_watermark=2)


def test_a_former_self_goes_first() -> None:
    """Two voters never share an id: remove (1, old), then add (1, new)."""
    node = Follows(ReplicaKey(1, directory(1, generation=1)))
    solo = node.solo
    (wish,) = node.hears(high_watermark=2)
    assert wish == RemoveVoterRequest(key(1), solo.config.request_timeout_ms)

    solo.respond(2, wish, QuorumChangeResponse(ErrorCode.NONE, 3, 2, "committed", 2))
    node.hears(voters_of(2, 3), high_watermark=3)
    (wish,) = wishes(solo.wait(solo.config.retry_backoff_ms))
    assert isinstance(wish, AddVoterRequest)
    assert wish.voter.directory_id == directory(1, generation=1)


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "not answered"])
def test_who_is_not_let_in_asks_again_later_each_time(refused: bool) -> None:
    node = Follows()
    solo = node.solo
    (wish,) = node.hears(high_watermark=2)
    period_ms = solo.config.fetch_timeout_ms
    for wait_ms in (period_ms, 2 * period_ms, 4 * period_ms, 8 * period_ms, 8 * period_ms):
        if refused:
            solo.respond(2, wish, QuorumChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 3, 2, "another is going on"))
        else:
            solo.step(RequestFailed(2, wish, Failure.TIMED_OUT))
        asked_at_ms = solo.now_ms + wait_ms
        repeated: list[QuorumChangeRequest] = []
        while solo.now_ms < asked_at_ms:
            assert not repeated
            assert not node.hears(high_watermark=2)
            repeated = wishes(solo.wait(min(100, asked_at_ms - solo.now_ms)))
        assert repeated == [wish]


def test_who_was_removed_does_not_come_back_by_itself() -> None:
    """An operator wanted the removal. (As far as the node's log knows.)"""
    node = Follows()
    assert not node.hears(voters_of(1, 2, 3, 4), voters_of(1, 2, 3), high_watermark=4)
    assert not wishes(node.solo.wait(600))


def test_a_voter_that_has_moved_says_so() -> None:
    """KIP-853: UpdateVoter with the current epoch, whether or not the node joins by itself."""
    node = Follows(key(1), auto_join=False)
    (wish,) = node.hears(high_watermark=2)
    moved = voter(1)._replace(endpoints=ELSEWHERE)
    assert wish == UpdateVoterRequest(moved, epoch=3, timeout_ms=node.solo.config.request_timeout_ms)
    assert not Follows(key(1), endpoints=voter(1).endpoints).hears(high_watermark=2)


def test_a_leader_that_has_moved_writes_so_itself() -> None:
    """After its first commit in the epoch, and without another change in progress."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), endpoints=ELSEWHERE)
    solo.elect()
    assert solo.core.voters.voters[0] == voter(1)
    effects = solo.fetch(2)
    assert appended(effects) == (1, 2, 3)
    assert solo.core.voters.voters[0].endpoints == ELSEWHERE
    assert not answers(effects + solo.fetch(2) + solo.fetch(3))
    assert solo.core.high_watermark == solo.log.end == 5


# --- strangers ---------------------------------------------------------------------------------------------------------


def test_a_leader_that_nobody_has_named_is_asked_and_not_believed() -> None:
    """All voters may have been replaced while this node was away.

    Their leader sends BeginQuorumEpoch; only its answers count.
    """
    solo = Solo(epochs=(1, 1), election=ElectionState(1, None, None))
    effects = solo.request(BeginQuorumEpochRequest(key(7), key(1), 9))

    response = only(Reply, effects).response
    assert response.error is ErrorCode.INVALID_VOTER_KEY
    assert (solo.core.epoch, solo.core.role) == (1, Role.UNATTACHED)
    failed = only(SendRequest, solo.started)
    effects = solo.step(RequestFailed(failed.destination, failed.request, Failure.TIMED_OUT))
    (asked,) = requests(effects + solo.wait(solo.config.retry_backoff_ms), FetchRequest)
    assert asked.destination == 7


def test_a_node_whose_leader_is_gone_asks_whoever_knocks() -> None:
    """Otherwise the node would return to its old leader again and again, and ask no other node."""
    solo = Solo(epochs=(1, 1), election=ElectionState(1, None, 2))
    solo.request(BeginQuorumEpochRequest(key(7), key(1), 9))
    assert (solo.core.epoch, solo.core.role) == (1, Role.FOLLOWER)
    failed = only(SendRequest, solo.started)
    solo.step(RequestFailed(failed.destination, failed.request, Failure.TIMED_OUT))

    asked = requests(solo.wait(3000), FetchRequest)
    assert 7 in [each.destination for each in asked]


def test_a_stranger_that_knows_another_disk_is_not_asked() -> None:
    solo = Solo(epochs=(1, 1), election=ElectionState(1, None, None))
    solo.request(BeginQuorumEpochRequest(key(7), ReplicaKey(1, directory(1, 1)), 9))
    failed = only(SendRequest, solo.started)
    effects = solo.step(RequestFailed(failed.destination, failed.request, Failure.TIMED_OUT))
    (asked,) = requests(effects + solo.wait(solo.config.retry_backoff_ms), FetchRequest)
    assert asked.destination in (2, 3)


def test_a_new_controller_asks_whom_its_configuration_names_too() -> None:
    """The first voters may all be gone.

    The new controller's log names no other node, and no node knows the controller.
    """
    solo = Solo(me=key(9), also_ask=(7, 9))
    effects, asked = solo.started, set()
    for _ in range(40):
        sent = only(SendRequest, effects)
        asked.add(sent.destination)
        effects = solo.step(RequestFailed(sent.destination, sent.request, Failure.REFUSED))
        effects += solo.wait(60_000)
    assert asked == {1, 2, 3, 7}
