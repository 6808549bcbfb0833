"""One test per sentence of KIP-595, 630, 853 and 996, and of the rules for following and giving up a leader."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.protocol.effects import (
    ElectionState,
    HighWatermarkAdvanced,
    InstallSnapshot,
    Reply,
    ReplyWithBatches,
    SaveElectionState,
    SendRequest,
    StopNode,
    WriteSnapshotChunk,
)
from quorum.core.protocol.inputs import (
    Appended,
    Failure,
    PeerRefused,
    RequestFailed,
    Resign,
    ShutDown,
    SnapshotInstalled,
)
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.voters import VOTERS_MAX
from quorum.core.roles import Role
from tests.core.cluster import Cluster, voters_of
from tests.core.situations import fetch_reply, follower, leader, requests, working_leader
from tests.core.solo import Solo, fetch_in, key, log_of, none_of, only

# --- KIP-595: parked fetches -------------------------------------------------------------------------------------------


def test_a_parked_fetch_is_answered_after_its_wait() -> None:
    """A long poll: silence for `max_wait_ms`, then an empty answer."""
    solo = working_leader()

    assert none_of(Reply, solo.wait(149))
    assert len([e for e in solo.wait(1) if isinstance(e, Reply)]) == 2


def test_a_parked_fetch_is_answered_when_the_high_watermark_moves() -> None:
    """So a follower learns of a commit soon, and not with the next record only."""
    solo = working_leader()
    solo.append()
    solo.fetch(2, high_watermark=4)  # moves the high watermark to 5, and is answered
    solo.fetch(2, high_watermark=5)  # parked
    effects = solo.fetch(3, high_watermark=4)

    assert fetch_reply(effects).high_watermark == 5


def test_a_newer_fetch_replaces_the_parked_one() -> None:
    """A leader parks one fetch per replica, and answers the older one."""
    solo = working_leader()
    effects = solo.fetch(2, high_watermark=4)

    assert only(Reply, effects).reply_to == solo.reply_to - 2  # the first fetch of node 2: node 3's came between
    assert len([e for e in solo.append() if isinstance(e, ReplyWithBatches)]) == 2


def test_parked_fetches_hear_when_leadership_ends() -> None:
    """KIP-595, KAFKA-10677."""
    solo = working_leader()
    effects = solo.step(Resign(3))
    replies = [e.response for e in effects if isinstance(e, Reply)]

    assert [r.error for r in replies] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert solo.role() is Role.RESIGNED


# --- KIP-595: the end of a leadership
# ----------------------------------------------------------------------------------


def test_a_leader_without_a_quorum_resigns() -> None:
    """Check-quorum (KAFKA-15489): a leader which is cut off must not lead for ever."""
    solo = working_leader()

    solo.wait(solo.config.check_quorum_ms - 1)
    assert solo.core.is_leading
    solo.wait(1)
    assert solo.role() is Role.RESIGNED


def test_fetches_without_progress_do_not_keep_a_leader() -> None:
    """KAFKA-15911: a follower unable to write, asking for the same offset again and again, makes no quorum."""
    solo = working_leader()
    solo.append()
    for _ in range(20):
        solo.wait(100)
        if solo.core.is_leading:
            solo.fetch(2, 4, high_watermark=4)
            solo.fetch(3, 4, high_watermark=4)

    assert not solo.core.is_leading


def test_an_idle_cluster_keeps_its_leader() -> None:
    """A follower at the last end reported to it has nothing left to fetch."""
    solo = working_leader()
    for _ in range(30):
        solo.wait(100)
        solo.fetch(2, high_watermark=4)

    assert solo.core.is_leading


def test_observers_do_not_keep_a_leader() -> None:
    """KIP-595: only voters count."""
    solo = working_leader()
    for _ in range(30):
        solo.wait(100)
        if solo.core.is_leading:
            solo.fetch(7, high_watermark=4)

    assert not solo.core.is_leading


def test_snapshot_pieces_are_progress() -> None:
    """A follower downloading a snapshot makes progress, whatever its offset."""
    solo = working_leader()
    for position in range(30):
        solo.wait(100)
        solo.request(FetchSnapshotRequest(key(2), 3, 1, OffsetAndEpoch(2, 1), position, 100))

    assert solo.core.is_leading


def test_a_leader_that_resigns_names_its_successors() -> None:
    """KIP-595: the voters, longest log first. The leader repeats EndQuorumEpoch until each voter has answered."""
    solo = working_leader()
    solo.append()
    solo.fetch(3, high_watermark=4)
    effects = solo.step(Resign(3))
    ends = requests(effects, EndQuorumEpochRequest)

    assert [end.destination for end in ends] == [2, 3]
    assert ends[0].request == EndQuorumEpochRequest(key(1), 3, (key(3), key(2)))
    solo.step(RequestFailed(2, ends[0].request, Failure.TIMED_OUT))
    assert [e.destination for e in requests(solo.wait(100), EndQuorumEpochRequest)] == [2]


def test_resigning_from_an_epoch_that_is_over_does_nothing() -> None:
    """A state machine's late request must not end a later leadership."""
    solo = working_leader()

    assert solo.step(Resign(2)) == []
    assert solo.core.is_leading


def test_a_resigned_leader_goes_on_in_the_next_epoch() -> None:
    """R1: a node never leads one epoch twice.

    After an election timeout the node may campaign again, in the next epoch.
    """
    solo = Solo(epochs=(1, 1), election=ElectionState(3, key(1), 1))
    assert solo.role() is Role.RESIGNED
    solo.wait(500)

    assert (solo.core.role, solo.core.epoch, solo.core.voted_for) == (Role.PROSPECTIVE, 4, None)


def test_a_leader_repeats_itself_to_silent_voters_only() -> None:
    """KIP-595: BeginQuorumEpoch goes to voters silent for half the fetch timeout."""
    solo = leader()
    silent = 0
    for _ in range(8):
        effects = solo.wait(100)
        solo.fetch(2, high_watermark=4)
        silent += len(requests(effects, BeginQuorumEpochRequest))
        assert all(e.destination == 3 for e in requests(effects, BeginQuorumEpochRequest))

    assert silent == 2


def test_a_voter_above_its_leaders_epoch_costs_one_election() -> None:
    """A voter in a higher durable epoch cannot go back.

    The leader learns of the epoch by the answer to BeginQuorumEpoch.
    """
    solo = working_leader()
    begin = BeginQuorumEpochRequest(key(1), key(3), 3)
    solo.respond(3, begin, BeginQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 6, None))

    assert (solo.core.role, solo.core.epoch) == (Role.UNATTACHED, 6)


def test_shutting_down_hands_over_and_starts_nothing_new() -> None:
    """KIP-595: a leader names its successors; a follower just stops fetching."""
    solo = working_leader()
    assert len(requests(solo.step(ShutDown()), EndQuorumEpochRequest)) == 2
    solo.wait(5000)
    assert solo.role() is Role.RESIGNED

    solo, fetch = follower(1)
    solo.step(ShutDown())
    assert none_of(SendRequest, solo.good_answer(fetch))
    assert solo.core.next_deadline_ms() is None


# --- following, and giving up -------------------------------------------------------------------------------------------


def test_an_unanswered_fetch_is_repeated_after_a_back_off() -> None:
    """Raft 5.5: for ever, but never in a busy loop."""
    solo, fetch = follower(1)
    assert solo.step(RequestFailed(2, fetch, Failure.BROKEN)) == []
    assert none_of(SendRequest, solo.wait(solo.config.retry_backoff_ms - 1))

    again = fetch_in(solo.wait(1))
    solo.step(RequestFailed(2, again, Failure.BROKEN))
    assert none_of(SendRequest, solo.wait(2 * solo.config.retry_backoff_ms - 1))
    fetch_in(solo.wait(1))


def test_a_follower_gives_up_on_a_silent_leader() -> None:
    """Raft 5.2, KIP-595: after the fetch timeout, the better successor first. With KIP-996 a pre-vote follows."""
    for rank, successors in enumerate([(1, 3), (3, 1)]):
        solo, fetch = follower(1)
        solo.good_answer(fetch, successors=successors)
        solo.wait(solo.config.fetch_timeout_ms + rank * solo.config.successor_wait_ms - 1)
        assert solo.role() is Role.FOLLOWER
        solo.wait(1)
        assert solo.role() is Role.PROSPECTIVE


def test_no_list_of_successors_makes_a_follower_wait_for_minutes() -> None:
    """A faulty leader names 1,000 successors, and dies: the follower waits as for the largest quorum, 1.3 seconds more."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=tuple(range(1_000, 2_000)))
    solo.wait(solo.config.fetch_timeout_ms + VOTERS_MAX * solo.config.successor_wait_ms - 1)
    assert solo.role() is Role.FOLLOWER
    solo.wait(1)
    assert solo.role() is Role.PROSPECTIVE


def test_a_refused_reconnect_is_suspicion() -> None:
    """Fast failover: the successor of rank i campaigns i waits after the leader's process was seen gone."""
    for rank, successors in enumerate([(1, 3), (3, 1)]):
        solo, fetch = follower(1)
        solo.good_answer(fetch, successors=successors)
        solo.step(PeerRefused(2))
        if rank:
            solo.wait(rank * solo.config.successor_wait_ms - 1)
            assert solo.role() is Role.FOLLOWER
        solo.wait(rank)
        assert solo.role() is Role.PROSPECTIVE


def test_a_suspicious_follower_grants_pre_votes() -> None:
    """Fast failover: otherwise the first successor would wait for the others' fetch timeouts."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=(3, 1))
    ask = VoteRequest(key(3), key(1), 3, 1, 1, pre_vote=True)
    refused = only(Reply, solo.request(ask)).response
    solo.step(PeerRefused(2))
    granted = only(Reply, solo.request(ask)).response

    assert isinstance(refused, VoteResponse) and isinstance(granted, VoteResponse)
    assert (refused.vote_granted, granted.vote_granted) == (False, True)


def test_a_good_answer_clears_suspicion() -> None:
    """Fast failover: the leader is alive after all (a certificate was rotated, a proxy restarted)."""
    solo, fetch = follower(1)
    fetch = fetch_in(solo.good_answer(fetch, successors=(3, 1)))
    solo.step(PeerRefused(2))
    solo.good_answer(fetch, successors=(3, 1))
    solo.wait(solo.config.fetch_timeout_ms)

    assert solo.role() is Role.FOLLOWER


def test_a_suspicious_prospective_asks_again_until_the_others_have_noticed() -> None:
    """Fast failover: a refusing voter has not noticed the failure yet."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=(1, 3))
    solo.step(PeerRefused(2))
    asked = next(r for r in requests(solo.wait(0), VoteRequest) if r.destination == 3)
    assert isinstance(asked.request, VoteRequest)
    solo.respond(3, asked.request, VoteResponse(ErrorCode.NONE, 3, 2, vote_granted=False))
    assert solo.role() is Role.PROSPECTIVE

    again = [r.destination for r in requests(solo.wait(solo.config.retry_backoff_ms), VoteRequest)]
    assert again == [3]


def test_a_paused_leader_is_not_suspected() -> None:
    """Silence and a broken connection are no refusal: a slow leader keeps its followers."""
    solo, fetch = follower(1)
    fetch = fetch_in(solo.good_answer(fetch, successors=(1, 3)))
    solo.step(RequestFailed(2, fetch, Failure.BROKEN))
    solo.step(PeerRefused(3))
    solo.wait(300)

    assert solo.role() is Role.FOLLOWER


def test_a_leader_that_says_it_does_not_lead_is_gone() -> None:
    """No leader returns in its epoch, so the follower has nothing to wait for."""
    solo, fetch = follower(1)
    fetch = fetch_in(solo.good_answer(fetch, successors=(1, 3)))
    solo.respond(2, fetch, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, None, fetch.number))
    solo.wait(1)

    assert solo.role() is Role.PROSPECTIVE


# --- KIP-996: pre-vote ----------------------------------------------------------------------------------------------


def test_a_pre_vote_changes_nothing_on_disk() -> None:
    """KIP-996: neither the sender's epoch nor any voter's vote."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    effects = solo.wait(500)

    assert solo.role() is Role.PROSPECTIVE
    assert none_of(SaveElectionState, effects)
    assert solo.core.epoch == 2


def test_a_pre_vote_of_a_higher_epoch_is_not_taken_in() -> None:
    """KIP-996 as used here: a hypothetical question moves no epoch, so no leader loses its office."""
    solo = working_leader()
    effects = solo.request(VoteRequest(key(2), key(1), 9, 3, 99, pre_vote=True))

    assert none_of(SaveElectionState, effects)
    assert (solo.core.epoch, solo.core.is_leading) == (3, True)


def test_a_refused_prospective_goes_back_to_its_leader() -> None:
    """KIP-996: a majority still hears the leader, so the trouble was this node's own."""
    solo, fetch = follower(1)
    solo.good_answer(fetch)
    for asked in requests(solo.wait(solo.config.fetch_timeout_ms), VoteRequest):
        assert isinstance(asked.request, VoteRequest)
        solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 3, 2, vote_granted=False))

    assert (solo.core.role, solo.core.leader_id, solo.core.epoch) == (Role.FOLLOWER, 2, 3)


def test_the_order_of_succession_outlives_a_lost_pre_vote() -> None:
    """Otherwise all voters would campaign at the same moment in the second round, and split the vote."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=(3, 1))
    solo.step(PeerRefused(2))
    solo.wait(solo.config.successor_wait_ms)
    assert solo.role() is Role.PROSPECTIVE
    while solo.role() is Role.PROSPECTIVE:
        solo.wait(1)
    assert solo.role() is Role.FOLLOWER
    solo.step(PeerRefused(2))
    solo.wait(solo.config.successor_wait_ms - 1)
    assert solo.role() is Role.FOLLOWER
    solo.wait(1)

    assert solo.role() is Role.PROSPECTIVE


def test_a_candidate_that_has_lost_starts_over_with_pre_votes() -> None:
    """KIP-996: in the raised epoch, which the candidate does not raise again before a majority agrees."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 3)
    solo.wait(500)

    assert solo.core.role in (Role.PROSPECTIVE, Role.UNATTACHED)
    assert solo.core.epoch == 3


def test_a_restarted_candidate_keeps_its_vote_and_pre_votes_first() -> None:
    """R2: the vote survives the process. KIP-996: the epoch is not raised a second time without a pre-vote."""
    solo = Solo(epochs=(1,), election=ElectionState(4, key(1), None))
    solo.wait(500)

    assert (solo.core.role, solo.core.epoch, solo.core.voted_for) == (Role.PROSPECTIVE, 4, key(1))


def test_a_pre_vote_may_be_granted_from_an_older_epoch() -> None:
    """Otherwise a node alone in a higher epoch could never win."""
    solo = Solo(epochs=(1,), election=ElectionState(7, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 5, None, vote_granted=True))

    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 8)


# --- KIP-630: snapshots ------------------------------------------------------------------------------------------------


def redirected() -> tuple[Solo, FetchSnapshotRequest]:
    """A follower sent to snapshot 9@2, and its first request for the snapshot."""
    solo, fetch = follower()
    answer = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, high_watermark=9, snapshot=OffsetAndEpoch(9, 2))
    sent = only(SendRequest, solo.respond(2, fetch, answer)).request
    assert isinstance(sent, FetchSnapshotRequest)
    return solo, sent


def chunk(request: FetchSnapshotRequest, data: bytes, size: int = 10) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(ErrorCode.NONE, 3, 2, request.number, size, request.position, data)


def test_a_snapshot_is_fetched_by_position_and_installed() -> None:
    """KIP-630: piece by piece. Then the log starts at the snapshot's end, and all records below are committed."""
    solo, request = redirected()
    effects = solo.respond(2, request, chunk(request, bytes(6)))
    assert isinstance(effects[0], WriteSnapshotChunk)
    request = only(SendRequest, effects).request  # type: ignore[assignment]
    assert request.position == 6
    effects = solo.respond(2, request, chunk(request, bytes(4)))
    assert [type(e) for e in effects] == [WriteSnapshotChunk, InstallSnapshot]

    # During the installation the node does not campaign, and only asks whether its leader is alive.
    asked = [effect.request for effect in requests(solo.wait(3000), FetchSnapshotRequest)]
    assert [request.position for request in asked if isinstance(request, FetchSnapshotRequest)] == [10]
    assert solo.role() is Role.FOLLOWER
    solo.log.install(OffsetAndEpoch(9, 2), bytes(32))
    effects = solo.step(SnapshotInstalled(solo.log.shape(), voters_of(1, 2, 3)))
    assert only(HighWatermarkAdvanced, effects).high_watermark == 9
    assert fetch_in(effects).fetch_offset == 9


def test_a_snapshot_that_is_gone_is_asked_for_anew() -> None:
    """KIP-630: the leader has a newer snapshot, named in the answer to a fetch."""
    solo, request = redirected()
    gone = FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, 3, 2, request.number)
    solo.respond(2, request, gone)

    assert fetch_in(solo.wait(solo.config.retry_backoff_ms)).fetch_offset == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"position": 1},
        {"data": bytes(11)},
        {"data": b""},
    ],
)
def test_a_piece_that_does_not_fit_is_not_written(bad: dict[str, object]) -> None:
    """Bytes from the network are checked before they are written."""
    solo, request = redirected()

    assert solo.respond(2, request, replace(chunk(request, bytes(6)), **bad)) == []  # type: ignore[arg-type]


def test_a_stale_snapshot_is_not_installed() -> None:
    """S6, R10: no committed record is ever given up for a snapshot."""
    solo, fetch = follower(1, 1, 1)
    fetch = fetch_in(solo.good_answer(fetch, high_watermark=3))
    answer = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, high_watermark=3, snapshot=OffsetAndEpoch(2, 1))

    assert "below the high watermark" in only(StopNode, solo.respond(2, fetch, answer)).reason


# --- KIP-853: the voter set ---------------------------------------------------------------------------------------------


def test_a_voter_set_counts_as_soon_as_it_is_appended() -> None:
    """KIP-853: before its commit, and for its own commit, too."""
    solo = working_leader()
    end = solo.log.end
    solo.log.append(3, voters_of(1, 2, 3, 4, 5))
    solo.log.flush()
    solo.step(Appended(solo.log.shape(), solo.log.voter_records(end)))
    assert solo.core.voters.ids == (1, 2, 3, 4, 5)
    solo.fetch(2)
    assert solo.core.high_watermark == end

    solo.fetch(4)
    assert solo.core.high_watermark == end + 1


def test_a_voter_set_that_is_cut_away_counts_no_more() -> None:
    """KIP-853: the set is a function of the log."""
    log = log_of(1)
    log.append(1, voters_of(1, 2, 3))
    log.append(2, voters_of(1, 2, 3, 4, 5))
    log.flush()
    solo = Solo(log=log, election=ElectionState(3, None, None))
    assert len(solo.core.voters) == 5
    fetch = solo.follow(2)
    solo.respond(2, fetch, FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, diverging=OffsetAndEpoch(2, 1)))

    assert solo.core.voters.ids == (1, 2, 3)


def test_a_leader_that_is_removed_does_not_count_itself_and_leaves() -> None:
    """KIP-853: the leader replicates its own removal to a majority of the others, then steps down."""
    solo = working_leader()
    end = solo.log.end
    solo.log.append(3, voters_of(2, 3))
    solo.log.flush()
    solo.step(Appended(solo.log.shape(), solo.log.voter_records(end)))
    solo.fetch(2)
    assert solo.core.is_leading
    assert solo.core.high_watermark == end
    effects = solo.fetch(3)

    assert only(HighWatermarkAdvanced, effects).high_watermark == end + 1
    assert solo.role() is Role.RESIGNED


# --- several nodes
# -------------------------------------------------------------------------------------------------------


def test_a_healthy_majority_keeps_its_leader() -> None:
    """L4: a node cut off, paused or restarted again and again never costs the others their leader."""
    cluster = Cluster(3, seed=5).boot_all()
    leader_node = cluster.elect()
    epoch = leader_node.up.epoch
    victim = next(node for node in cluster.nodes.values() if node is not leader_node)
    for _ in range(3):
        cluster.cut(victim.id)
        cluster.run(2500)
        cluster.heal()
        cluster.run(700)
        victim.paused = True
        cluster.run(2500)
        cluster.resume(victim.id)
        cluster.run(700)
        cluster.crash(victim.id)
        victim.boot_up()
        cluster.run(1500)

    assert cluster.leader is leader_node
    assert leader_node.up.epoch == epoch


def test_failover_takes_a_few_round_trips() -> None:
    """P1: from the crash of any leader to a committed record of the next epoch."""
    for seed in range(10):
        cluster = Cluster(3, seed=seed).boot_all()
        crashed = cluster.elect()
        cluster.run(300)
        before_ms = cluster.now_ms
        cluster.crash(crashed.id)
        cluster.elect()

        assert cluster.now_ms - before_ms <= 15
