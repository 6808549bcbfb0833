"""One test per sentence of KIP-853 (changes of the voter set) and of Raft 3.10 (transfer), as built here."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID, ReplicaKey
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.core.membership.change_rules import TIMEOUT_MS_MAX, majority_would_be_live
from quorum.core.protocol.effects import AppendControl, Effect, ElectionState, ReadsConfirmed, Reply
from quorum.core.protocol.inputs import ConfirmReads, Resign, ShutDown
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchResponse,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from quorum.core.protocol.voters import ENDPOINTS_MAX, NAME_CHARS_MAX, VOTERS_MAX, VoterHistory, VoterSet
from quorum.core.roles import Role
from tests.core.cluster import directory, voter, voters_of
from tests.core.membership.voter_changes import ELSEWHERE, answer, answers, appended
from tests.core.situations import follower, leader, requests, working_leader
from tests.core.solo import Solo, fetch_in, key, log_of, none_of, only


def add(node_id: int = 4, *, timeout_ms: int = 1000, early: bool = False) -> AddVoterRequest:
    return AddVoterRequest(voter(node_id), ack_when_committed=not early, timeout_ms=timeout_ms)


def remove(node_id: int, generation: int = 0) -> RemoveVoterRequest:
    return RemoveVoterRequest(ReplicaKey(node_id, directory(node_id, generation)), timeout_ms=1000)


def update(node_id: int = 3, epoch: int = 3) -> UpdateVoterRequest:
    return UpdateVoterRequest(voter(node_id)._replace(endpoints=ELSEWHERE), epoch, timeout_ms=1000)


def transfer(target: int | None = 2) -> TransferLeadershipRequest:
    return TransferLeadershipRequest(target, timeout_ms=1000)


EVERY_KIND: tuple[QuorumChangeRequest, ...] = (add(), remove(3), update(), transfer())


def with_observer(node_id: int = 4) -> Solo:
    """A working leader with an observer, node 4, at the leader's end."""
    solo = working_leader()
    solo.fetch(node_id)
    solo.fetch(node_id, high_watermark=4)
    return solo


# --- refusals, which change nothing
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", EVERY_KIND)
def test_whoever_does_not_lead_names_the_leader(request_: QuorumChangeRequest) -> None:
    """Only the leader changes the voter set."""
    solo, _ = follower(1, 1)
    said = answer(solo.request(request_))
    assert (said.error, said.leader_id, said.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 3)


@pytest.mark.parametrize("request_", EVERY_KIND)
def test_a_node_that_shuts_down_begins_nothing(request_: QuorumChangeRequest) -> None:
    solo, _ = follower(1, 1)
    solo.step(ShutDown())
    assert answer(solo.request(request_)).error is ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("request_", [add(), remove(3), update()])
def test_nothing_changes_before_the_leader_has_committed_in_its_epoch(request_: QuorumChangeRequest) -> None:
    """A former leader's set may still return until a majority holds a record of this epoch (Ongaro, 2015)."""
    solo = leader()
    effects = solo.request(request_)

    assert answer(effects).error is ErrorCode.NOT_READY
    assert none_of(AppendControl, effects)


def strange(**fields: object) -> AddVoterRequest:
    return AddVoterRequest(voter(4)._replace(**fields), ack_when_committed=True, timeout_ms=1000)  # type: ignore[arg-type]


def at(host: str = "c4", port: int = 9093, listener: str = "CONTROLLER") -> tuple[Endpoint, ...]:
    return (Endpoint(listener, host, port),)


REFUSED = [
    ("it votes", add(3), ErrorCode.DUPLICATE_VOTER, "3/"),
    ("another disk of a voter", strange(node_id=3), ErrorCode.DUPLICATE_VOTER, "remove the old voter first"),
    ("no directory id", strange(directory_id=ZERO_UUID), ErrorCode.INVALID_REQUEST, "directory_id"),
    ("a short directory id", strange(directory_id=b"4"), ErrorCode.INVALID_REQUEST, "directory_id"),
    ("negative id", strange(node_id=-1), ErrorCode.INVALID_REQUEST, "node_id"),
    ("no endpoint", strange(endpoints=()), ErrorCode.INVALID_REQUEST, "endpoints"),
    ("endpoints", strange(endpoints=at() * (ENDPOINTS_MAX + 1)), ErrorCode.INVALID_REQUEST, str(ENDPOINTS_MAX)),
    ("long host", strange(endpoints=at("h" * (NAME_CHARS_MAX + 1))), ErrorCode.INVALID_REQUEST, str(NAME_CHARS_MAX)),
    ("no host", strange(endpoints=at("")), ErrorCode.INVALID_REQUEST, "host"),
    ("no listener", strange(endpoints=at(listener="")), ErrorCode.INVALID_REQUEST, "listener"),
    ("port 0", strange(endpoints=at(port=0)), ErrorCode.INVALID_REQUEST, "port 0"),
    ("port 65536", strange(endpoints=at(port=65_536)), ErrorCode.INVALID_REQUEST, "port 65536"),
    ("static only", strange(kraft_version_max=0), ErrorCode.INVALID_REQUEST, "kraft.version"),
    ("too new", strange(kraft_version_min=2, kraft_version_max=3), ErrorCode.INVALID_REQUEST, "kraft.version"),
    ("no time", add(timeout_ms=0), ErrorCode.INVALID_REQUEST, "timeout_ms"),
    ("all the time", add(timeout_ms=TIMEOUT_MS_MAX + 1), ErrorCode.INVALID_REQUEST, str(TIMEOUT_MS_MAX)),
    ("nobody", remove(9), ErrorCode.VOTER_NOT_FOUND, "{1,2,3}"),
    ("its other disk", remove(3, generation=1), ErrorCode.VOTER_NOT_FOUND, "{1,2,3}"),
    ("a short id", RemoveVoterRequest(ReplicaKey(3, b"3"), 1000), ErrorCode.INVALID_REQUEST, "directory_id"),
    ("an older epoch", update(epoch=2), ErrorCode.FENCED_LEADER_EPOCH, "3"),
    ("a later epoch", update(epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH, "3"),
    ("an observer moves", update(4), ErrorCode.VOTER_NOT_FOUND, "{1,2,3}"),
    (
        "moves nowhere",
        UpdateVoterRequest(voter(3)._replace(endpoints=()), 3, 1000),
        ErrorCode.INVALID_REQUEST,
        "endpoints",
    ),
    ("transfer to nobody", transfer(9), ErrorCode.VOTER_NOT_FOUND, "{1,2,3}"),
    ("transfer to an observer", transfer(4), ErrorCode.VOTER_NOT_FOUND, "{1,2,3}"),
]


@pytest.mark.parametrize(("request_", "error", "word"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_refusal_says_why_and_changes_nothing(request_: QuorumChangeRequest, error: ErrorCode, word: str) -> None:
    solo = with_observer()
    before = (solo.core.epoch, solo.core.role, solo.core.voter_history, solo.log.end, solo.core.next_deadline_ms())
    effects = solo.request(request_)
    said = answer(effects)

    assert (said.error, said.offset) == (error, None)
    assert word in said.message and said.message.endswith("nothing was done")
    assert len(effects) == 1
    after = (solo.core.epoch, solo.core.role, solo.core.voter_history, solo.log.end, solo.core.next_deadline_ms())
    assert before == after


def test_the_last_voter_cannot_be_removed() -> None:
    """KIP-853: the new set would be empty."""
    solo = Solo(voters=1)
    solo.flush()
    effects = solo.request(remove(1))

    assert answer(effects).error is ErrorCode.VOTER_NOT_FOUND
    assert none_of(AppendControl, effects)


def test_there_is_room_for_so_many_voters() -> None:
    """A set of the largest size with the longest names fits into one batch."""
    longest = tuple(Endpoint("L" * NAME_CHARS_MAX, "h" * NAME_CHARS_MAX, 65_535) for _ in range(ENDPOINTS_MAX))
    record = Voters(tuple(Voter(n, directory(n), longest) for n in range(VOTERS_MAX)))
    assert log_of().append(1, record).is_control

    solo = Solo(voters=VOTERS_MAX)
    solo.elect()
    for node_id in range(2, VOTERS_MAX + 1):
        solo.fetch(node_id)
    assert solo.core.high_watermark == solo.log.end
    said = answer(solo.request(add(VOTERS_MAX + 1)))
    assert (said.error, str(VOTERS_MAX) in said.message) == (ErrorCode.INVALID_REQUEST, True)


def test_no_change_that_a_majority_would_not_see() -> None:
    """In {1,2,3}, node 3 is silent. Removing 2 would leave {1,3}, and node 1 alone could commit nothing any more."""
    solo = working_leader()
    solo.wait(solo.config.check_quorum_ms - 100)
    solo.fetch(2, high_watermark=4)
    solo.wait(200)
    effects = solo.request(remove(2))

    assert answer(effects).error is ErrorCode.NOT_READY
    assert "{1,3}" in answer(effects).message
    assert none_of(AppendControl, effects)
    assert appended(solo.request(remove(3))) == (1, 2)


def test_majorities_that_would_be_live() -> None:
    voters = VoterSet(voters_of(1, 2, 3, 4).voters)
    assert majority_would_be_live(voters, {key(1), key(2), key(4)})
    assert not majority_would_be_live(voters, {key(1), key(2), key(9)})
    assert not majority_would_be_live(voters, {key(1), key(2), ReplicaKey(3, directory(3, 1))})


def test_who_may_be_stopped_without_stopping_the_quorum() -> None:
    """A voter which is silent, or behind, does not count as a remaining voter."""
    solo = with_observer()
    assert [solo.core.keeps_majority_without({n}) for n in (1, 2, 3, 4)] == [True] * 4
    assert solo.core.keeps_majority_without({2, 3}) is False

    solo.append()
    for _ in range(3):
        solo.wait(solo.config.check_quorum_ms // 2)
        solo.fetch(2)
        solo.fetch(3, 4)
    assert solo.core.keeps_majority_without({3}) is True
    assert solo.core.keeps_majority_without({2}) is False
    assert follower(1, 1)[0].core.keeps_majority_without({2}) is None


def test_two_machines_under_one_id_are_not_told_apart_by_removing_one() -> None:
    """The owner of a new disk asks to remove its former self.

    If the former self is healthy, the configuration is wrong.
    """
    solo = working_leader()
    solo.fetch(3, generation=1)
    effects = solo.request(remove(3))
    assert answer(effects).error is ErrorCode.NOT_READY
    assert "two machines" in answer(effects).message

    for _ in range(3):
        solo.wait(solo.config.check_quorum_ms // 2)
        solo.fetch(2, high_watermark=4)
        solo.fetch(3, generation=1)
    assert appended(solo.request(remove(3))) == (1, 2)


# --- one at a time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [add(5), remove(3), update(), transfer()])
def test_nothing_else_while_a_change_waits(request_: QuorumChangeRequest) -> None:
    """KIP-853: at most one change is pending."""
    solo = with_observer()
    assert not answers(solo.request(add(9)))  # node 9 has never fetched
    effects = solo.request(request_)

    assert answer(effects).error is ErrorCode.REQUEST_TIMED_OUT
    assert "adding controller 9" in answer(effects).message
    assert none_of(AppendControl, effects)


def test_no_change_before_the_last_one_is_committed() -> None:
    """Two uncommitted sets may differ by two voters, and their majorities need not share a voter."""
    solo = with_observer()
    solo.request(add(4, timeout_ms=500))
    assert answer(solo.wait(500)).error is ErrorCode.REQUEST_TIMED_OUT
    for node_id in (2, 4):
        solo.fetch(node_id, 4)  # alive, but without the record

    said = answer(solo.request(remove(3)))
    assert (said.error, said.offset) == (ErrorCode.REQUEST_TIMED_OUT, None)
    assert "not committed" in said.message


# --- adding ------------------------------------------------------------------------------------------------------------


def test_a_new_set_is_in_force_at_once_and_committed_by_its_own_majority() -> None:
    """KIP-853: three of {1,2,3,4}; two of the old three are no longer enough."""
    solo = with_observer()
    effects = solo.request(add())
    assert appended(effects) == (1, 2, 3, 4)
    assert solo.core.voters.ids == (1, 2, 3, 4)
    assert not answers(effects)

    assert not answers(solo.fetch(2))
    assert solo.core.high_watermark == 4
    said = answer(solo.fetch(4))
    assert (said.error, said.offset) == (ErrorCode.NONE, 4)
    assert solo.core.high_watermark == 5


def test_an_early_answer_comes_with_the_append() -> None:
    """`ack_when_committed` is false (AddRaftVoter v1)."""
    solo = with_observer()
    effects = solo.request(add(early=True))

    assert answer(effects).error is ErrorCode.NONE
    assert answer(effects).offset == 4
    assert next(type(e) for e in effects if isinstance(e, AppendControl | Reply)) is AppendControl
    assert solo.core.high_watermark == 4
    solo.fetch(2)
    assert not answers(solo.fetch(4))


def test_a_newcomer_is_waited_for() -> None:
    """A new controller must have reached the leader's end lately.

    A controller known only by name would delay every commit.
    """
    solo = working_leader()
    solo.append()
    assert not answers(solo.request(add()))
    effects = solo.fetch(4, 0)
    assert none_of(AppendControl, effects)
    effects = solo.fetch(4)
    assert appended(effects) == (1, 2, 3, 4)


def test_a_newcomer_that_has_gone_silent_is_waited_for_too() -> None:
    """The controller had caught up once, and may be switched off by now."""
    solo = with_observer()
    for _ in range(3):
        solo.wait(solo.config.check_quorum_ms // 2)
        solo.fetch(2, high_watermark=4)
    assert none_of(AppendControl, solo.request(add(timeout_ms=100)))
    assert "to fetch" in answer(solo.wait(100)).message


@pytest.mark.parametrize(("stands_at", "word"), [(None, "to fetch"), (2, "ends at 2 of 4")])
def test_the_answer_says_what_was_waited_for(stands_at: int | None, word: str) -> None:
    solo = working_leader()
    solo.request(add(timeout_ms=300))
    if stands_at is not None:
        solo.fetch(4, stands_at)
    assert not answers(solo.wait(299))
    said = answer(solo.wait(1))

    assert (said.error, said.offset) == (ErrorCode.REQUEST_TIMED_OUT, None)
    assert word in said.message
    assert solo.core.voters.ids == (1, 2, 3)
    assert appended(solo.request(remove(3))) == (1, 2)


def test_the_set_stays_changed_when_the_time_is_over() -> None:
    """KIP-853: the record is in the log, and only an election may remove the record."""
    solo = with_observer()
    solo.request(add(timeout_ms=300))
    said = answer(solo.wait(300))

    assert (said.error, said.offset) == (ErrorCode.REQUEST_TIMED_OUT, 4)
    assert "may yet be committed" in said.message
    assert solo.core.voters.ids == (1, 2, 3, 4)
    solo.fetch(2)
    solo.fetch(4)
    assert solo.core.high_watermark == 5
    assert appended(solo.request(remove(3))) == (1, 2, 4)


def test_a_change_that_still_waits_ends_with_the_term() -> None:
    solo = working_leader()
    solo.request(add())
    said = answer(solo.step(Resign(3)))

    assert (said.error, said.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert said.message.endswith("nothing was done")


def test_a_change_that_is_written_may_outlive_its_leader() -> None:
    """REQUEST_TIMED_OUT: the change may have happened."""
    solo = with_observer()
    solo.request(add())
    said = answer(solo.request(BeginQuorumEpochRequest(key(2), key(1), 4)))

    assert (said.error, said.offset, said.leader_id) == (ErrorCode.REQUEST_TIMED_OUT, 4, 2)
    assert solo.core.voters.ids == (1, 2, 3, 4)


# --- removing ----------------------------------------------------------------------------------------------------------


def test_a_removed_voter_is_an_observer() -> None:
    """The leader answers the removed voter as before, and does not count its fetches."""
    solo = working_leader()
    assert appended(solo.request(remove(3))) == (1, 2)
    assert not answers(solo.fetch(3))
    assert solo.core.high_watermark == 4
    assert answer(solo.fetch(2)).error is ErrorCode.NONE
    assert [(s.node_id, s.is_voter) for s in solo.core.replicas()] == [(1, True), (2, True), (3, False)]


def test_a_removed_voter_that_was_never_heard_of_is_forgotten() -> None:
    solo = leader()
    solo.fetch(2)
    solo.fetch(2, high_watermark=4)
    assert appended(solo.request(remove(3))) == (1, 2)
    assert [s.node_id for s in solo.core.replicas()] == [1, 2]


def test_a_leader_that_is_removed_leads_on_until_that_is_committed() -> None:
    """KIP-853: the leader does not count itself. After the commit the leader answers, and only then steps down."""
    solo = working_leader()
    assert appended(solo.request(remove(1))) == (2, 3)
    solo.fetch(2)
    assert (solo.core.high_watermark, solo.core.role) == (4, Role.LEADER)
    effects = solo.fetch(3)

    assert answer(effects).error is ErrorCode.NONE
    assert solo.role() is Role.RESIGNED
    kinds = [type(e.response) if isinstance(e, Reply) else type(getattr(e, "request", None)) for e in effects]
    assert kinds.index(QuorumChangeResponse) < kinds.index(EndQuorumEpochRequest)
    solo.wait(5000)
    assert solo.role() is Role.UNATTACHED  # an observer does not campaign


def test_a_smaller_set_may_have_confirmed_a_read_already() -> None:
    """In {1,2}, node 2 is gone. Node 1 alone is a majority of {1}, and no further fetch will arrive."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), voters=2)
    solo.elect()
    solo.fetch(2)
    solo.fetch(2, high_watermark=4)
    assert none_of(ReadsConfirmed, solo.step(ConfirmReads(7)))
    assert only(ReadsConfirmed, solo.request(remove(2))).token == 7


# --- updating ----------------------------------------------------------------------------------------------------------


def test_a_voter_moves() -> None:
    solo = working_leader()
    effects = solo.request(update())
    assert appended(effects) == (1, 2, 3)
    assert solo.core.voters.voters[2].endpoints == ELSEWHERE
    assert answer(solo.fetch(2)).error is ErrorCode.NONE


def test_a_voter_that_is_there_already_has_not_moved() -> None:
    """Nothing is written."""
    solo = working_leader()
    effects = solo.request(UpdateVoterRequest(voter(3), 3, 1000))

    assert (answer(effects).error, answer(effects).offset) == (ErrorCode.NONE, None)
    assert none_of(AppendControl, effects)


# --- repetitions -------------------------------------------------------------------------------------------------------


def committed(solo: Solo, request: QuorumChangeRequest, *voters: int) -> int:
    """The offset at which the change was committed."""
    effects = solo.request(request)
    for node_id in voters:
        effects = [*effects, *solo.fetch(node_id)]
    said = answer(effects)
    assert said.error is ErrorCode.NONE and said.offset is not None, said
    return said.offset


def test_a_repeated_request_is_not_done_again_after_it_was_undone() -> None:
    """Another operator has removed controller 4 meanwhile. By the present set alone, the leader would add it again."""
    solo = with_observer()
    since = solo.log.end
    added = committed(solo, add(), 2, 3)
    committed(solo, remove(4), 2, 3)
    end = solo.log.end

    again = answer(solo.request(replace(add(), since=since)))
    assert (again.error, again.offset, solo.log.end) == (ErrorCode.NONE, added, end)

    solo.fetch(4)
    solo.fetch(4)
    assert appended(solo.request(replace(add(), since=end))) == (1, 2, 3, 4), "a request made after the removal is new"


def test_a_repeated_removal_finds_itself_done() -> None:
    solo = with_observer()
    since = solo.log.end
    removed = committed(solo, remove(3), 2)
    assert answer(solo.request(remove(3))).error is ErrorCode.VOTER_NOT_FOUND, "without an id, a new request"
    again = answer(solo.request(replace(remove(3), since=since)))
    assert (again.error, again.offset) == (ErrorCode.NONE, removed)


def test_what_was_so_before_the_first_attempt_is_no_repetition() -> None:
    """The voter voted, or did not vote, when the client looked: its request is wrong, and is refused each time."""
    solo = with_observer()
    for request, error in ((add(3), ErrorCode.DUPLICATE_VOTER), (remove(4), ErrorCode.VOTER_NOT_FOUND)):
        for _ in range(2):
            assert answer(solo.request(replace(request, since=solo.log.end))).error is error


def test_a_repetition_under_another_disk_is_another_request() -> None:
    """The directory id is a part of the goal."""
    solo = with_observer()
    since = solo.log.end
    committed(solo, add(), 2, 3)
    other_disk = replace(strange(directory_id=directory(4, 1)), since=since)
    assert answer(solo.request(other_disk)).error is ErrorCode.DUPLICATE_VOTER


def test_a_repetition_waits_for_the_commit_of_the_first_attempt() -> None:
    """Until then the set may be taken back. REQUEST_TIMED_OUT without an offset: this attempt has done nothing."""
    solo = with_observer()
    since = solo.log.end
    solo.request(add())
    again = answer(solo.request(replace(add(), since=since)))
    assert (again.error, again.offset) == (ErrorCode.REQUEST_TIMED_OUT, None)


def test_voter_sets_that_are_forgotten_decide_nothing() -> None:
    """The client saw less than the log that this node has, so the change may stand below it. 0: the client has not looked."""
    history = VoterHistory.from_snapshot(voters_of(1, 2, 3), 40, [(50, voters_of(1, 2, 3, 4))])
    assert history.changed_at(key(4), 40, to_voter=True) == 50
    assert history.changed_at(key(4), 51, to_voter=True) is None
    assert history.changed_at(key(3), 40, to_voter=True) is None, "it was a voter before"

    solo = with_observer()
    end = solo.log.end
    for request in (add(), remove(3)):
        said = answer(solo.request(replace(request, since=0)))
        assert (said.error, said.offset) == (ErrorCode.REQUEST_ID_EXPIRED, None)
    assert solo.log.end == end


def test_a_new_leader_is_what_a_repeated_transfer_wanted() -> None:
    """Without a target: else each repetition would move the leadership once more."""
    solo = working_leader()
    began = solo.core.epoch_start_offset
    assert began is not None
    said = answer(solo.request(replace(transfer(None), since=began)))
    assert (said.error, solo.core.role) == (ErrorCode.NONE, Role.LEADER)
    solo.request(replace(transfer(None), since=began + 1))
    assert solo.role() is Role.RESIGNED


# --- transfer ----------------------------------------------------------------------------------------------------------


def ended(effects: list[Effect]) -> tuple[int, ...]:
    """The successors as ranked by the resigning leader."""
    sent = requests(effects, EndQuorumEpochRequest)
    ranks = {tuple(k.node_id for k in e.request.preferred_successors) for e in sent}  # type: ignore[union-attr]
    (successors,) = ranks
    return successors


@pytest.mark.parametrize(("target", "order"), [(2, (2, 3)), (3, (3, 2)), (None, (2, 3))])
def test_the_chosen_one_is_the_first_successor(target: int | None, order: tuple[int, ...]) -> None:
    """Raft 3.10.

    Refusals of parked fetches name the same order; otherwise the first node to hear would campaign first.
    """
    solo = working_leader()
    effects = solo.request(transfer(target))

    assert answer(effects).error is ErrorCode.NONE
    assert solo.role() is Role.RESIGNED
    assert ended(effects) == order
    refused = [e.response for e in effects if isinstance(e, Reply) and isinstance(e.response, FetchResponse)]
    assert [(each.error, each.successors) for each in refused] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, order)] * 2


def test_followers_run_in_the_order_that_the_refusal_names() -> None:
    """Not in the order of the last good answer, which had this node first."""
    solo, request = follower(1, 1)
    request = fetch_in(solo.good_answer(request, successors=(1, 3), high_watermark=2))
    solo.respond(
        2, request, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, None, request.number, successors=(3, 1))
    )

    solo.wait(solo.config.successor_wait_ms - 1)
    assert solo.role() is Role.FOLLOWER
    solo.wait(1)
    assert solo.role() is Role.PROSPECTIVE


def test_leading_already_is_no_transfer() -> None:
    solo = working_leader()
    effects = solo.request(transfer(1))
    assert answer(effects).error is ErrorCode.NONE
    assert solo.core.is_leading


def test_a_silent_voter_is_no_target() -> None:
    solo = working_leader()
    for _ in range(3):
        solo.wait(solo.config.check_quorum_ms // 2)
        solo.fetch(2, high_watermark=4)
    said = answer(solo.request(transfer(3)))
    assert (said.error, said.message.split(";")[0]) == (
        ErrorCode.INVALID_REQUEST,
        "controller 3 has not fetched from this leader lately",
    )


def test_a_voter_whose_log_is_damaged_is_no_target() -> None:
    """A damaged voter would not campaign, so the leader skips it; if named as the target, the refusal says why.

    After the repair the voter is a target again.
    """
    solo = working_leader()
    solo.fetch(2, high_watermark=4, damaged=True)
    said = answer(solo.request(transfer(2)))
    assert (said.error, said.message) == (
        ErrorCode.INVALID_REQUEST,
        "controller 2 would not lead: its log is damaged, or its disk is full; nothing was done",
    )
    assert solo.core.is_leading
    solo.fetch(3, high_watermark=4, damaged=True)
    assert answer(solo.request(transfer(None))).error is ErrorCode.INVALID_REQUEST
    solo.fetch(3, high_watermark=4)
    effects = solo.request(transfer(None))
    assert answer(effects).error is ErrorCode.NONE
    assert ended(effects) == (3, 2)


def test_a_voter_that_would_not_run_is_the_last_of_the_successors() -> None:
    """Also for a resigning leader: the others would wait for the voter in vain."""
    solo = working_leader()
    solo.append()
    solo.fetch(2, damaged=True)
    assert ended(solo.step(Resign(solo.core.epoch))) == (3, 2), "although 2 is further"


def test_a_voter_whose_image_is_the_odd_one_is_no_target() -> None:
    solo = working_leader()
    solo.core.carry_verdict(key(2), image_differs=True)
    assert "its image differs" in answer(solo.request(transfer(2))).message


def test_a_voter_that_applies_nothing_any_more_is_no_target_and_the_last_of_the_successors() -> None:
    """Such a voter would win and never answer a client. It reports the end of its image, without a digest."""
    solo = working_leader()
    solo.append()
    solo.fetch(2, applied_offset=3)
    assert "stopped applying" in answer(solo.request(transfer(2))).message
    assert ended(solo.step(Resign(solo.core.epoch))) == (3, 2), "although 2 is further"


def test_a_target_must_hold_what_was_there_when_it_was_asked_for() -> None:
    """The leader waits for the target and meanwhile accepts proposals.

    After the timeout the leader continues to lead.
    """
    solo = working_leader()
    solo.append()
    assert not answers(solo.request(transfer(2)))
    assert not answers(solo.fetch(3))
    solo.wait(900)
    solo.fetch(3)
    effects = solo.wait(100)

    assert answer(effects).error is ErrorCode.REQUEST_TIMED_OUT
    assert "controller 2" in answer(effects).message
    assert solo.core.is_leading


def test_a_target_that_could_win_without_it_is_waited_for_all_the_same() -> None:
    """No voter has the newest record yet, so none would refuse node 2; but the sender of the transfer may have written
    the record.
    """
    solo = working_leader()
    solo.wait(solo.config.fetch_wait_ms)
    solo.append()
    assert not answers(solo.request(transfer(2)))
    assert not answers(solo.fetch(2, 4))
    assert answer(solo.fetch(2, 5)).error is ErrorCode.NONE


def test_under_load_the_target_is_level_when_a_majority_cannot_refuse_it() -> None:
    """The leader has one more record.

    Node 3 was sent the record before node 2 fetched, and would refuse 2; next time node 2 fetches first.
    """
    solo = working_leader()
    solo.append()  # [4,5) is on its way to both
    solo.request(transfer(2))
    solo.log.append(3)
    solo._appended(5)
    solo.fetch(3, 5)  # is answered with [5,6)
    assert not answers(solo.fetch(2, 5))
    assert solo.core.is_leading

    solo.append()
    effects = solo.fetch(2, 6)
    assert answer(effects).error is ErrorCode.NONE
    assert ended(effects)[0] == 2
