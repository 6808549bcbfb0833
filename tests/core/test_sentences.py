"""One test per sentence of the Raft paper's section 5 (reads: the dissertation's 6.4) and of KIP-595, 630, 853 and 996.

Stories that need several nodes to be understood are in `scripts/`, tables in `test_votes` and `test_fetch_validation`.
"""

from dataclasses import replace

import pytest

from metadata_log.batch import Batch
from metadata_log.errors import ErrorCode
from metadata_log.ids import OffsetAndEpoch
from metadata_log.records import LeaderChange, Voters
from quorum.core.effects import (
    AppendBatches,
    AppendControl,
    Effect,
    ElectionState,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeadershipChanged,
    ReadsConfirmed,
    Reply,
    ReplyWithBatches,
    SaveElectionState,
    SendRequest,
    StopNode,
    TruncateLog,
    WriteSnapshotChunk,
)
from quorum.core.inputs import (
    Appended,
    ConfirmReads,
    Failure,
    PeerRefused,
    RequestFailed,
    Resign,
    ShutDown,
    SnapshotInstalled,
    TimerFired,
)
from quorum.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.progress import FOREVER_MS
from quorum.core.roles import Role
from tests.core.cluster import Cluster, voters_of
from tests.core.fake_log import FakeLog
from tests.core.solo import Solo, fetch_in, key, log_of, none_of, only

# --- helpers -----------------------------------------------------------------------------------------------------------


def leader(voters: int = 3) -> Solo:
    """Leads epoch 3 with nothing committed in it; its log is 1 1 3 (LeaderChange) 3 (Voters)."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), voters=voters)
    solo.elect()
    return solo


def working_leader() -> Solo:
    """The same, committed to its end, both followers parked there."""
    solo = leader()
    for node_id in (2, 3):
        solo.fetch(node_id)
    for node_id in (2, 3):
        solo.fetch(node_id, high_watermark=solo.log.end)
    assert solo.core.high_watermark == solo.log.end == 4
    return solo


def follower(*epochs: int) -> tuple[Solo, FetchRequest]:
    """Follows node 2 in epoch 3; its first fetch is on its way."""
    solo = Solo(epochs=epochs, election=ElectionState(3, None, None))
    return solo, solo.follow(2)


def requests(effects: list[Effect], kind: type) -> list[SendRequest]:
    return [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, kind)]


def batches_after(log: FakeLog, *epochs: int) -> tuple[Batch, ...]:
    """What a leader with the same log and these records more would send."""
    twin = FakeLog()
    twin.append_batches(tuple(log.batches))
    return tuple(twin.append(epoch) for epoch in epochs)


def fetch_reply(effects: list[Effect]) -> FetchResponse:
    """The answer to the newest fetch: it comes last."""
    response = [effect for effect in effects if isinstance(effect, Reply)][-1].response
    assert isinstance(response, FetchResponse)
    return response


# --- Raft 5.1: epochs ----------------------------------------------------------------------------------------------------


def test_a_leader_that_hears_of_a_higher_epoch_steps_down() -> None:
    """Raft 5.1: whoever finds that its epoch is out of date becomes a follower at once (KIP-595: unattached)."""
    solo = working_leader()
    effects = solo.request(VoteRequest(key(2), key(1), 9, 3, 99, pre_vote=False))

    assert solo.core.role is Role.UNATTACHED
    assert only(LeadershipChanged, effects) == LeadershipChanged(9, None, leading=False)
    # The new epoch is on disk before anybody hears of it, and the parked fetches hear of it too.
    assert isinstance(effects[0], SaveElectionState)
    errors = [e.response.error for e in effects if isinstance(e, Reply) and isinstance(e.response, FetchResponse)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_a_reply_of_an_older_epoch_is_ignored() -> None:
    """Raft 5.1: what comes from an older epoch says nothing any more, not even an acknowledgement."""
    solo, fetch = follower(1, 1)
    stale = FetchResponse(ErrorCode.NONE, 2, 2, fetch.number, high_watermark=2, batches=batches_after(solo.log, 2))

    assert solo.respond(2, fetch, stale) == []
    assert solo.core.high_watermark is None


def test_a_reply_of_a_higher_epoch_is_taken_in_with_its_leader() -> None:
    """Raft 5.1, KIP-595: follow the leader that it names, or nobody."""
    solo, fetch = follower(1, 1)
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, 3, fetch.number))

    assert only(SaveElectionState, effects).state == ElectionState(5, None, 3)
    assert only(SendRequest, effects).destination == 3

    solo, fetch = follower(1, 1)
    solo.respond(2, fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, None, fetch.number))
    assert (solo.core.role, solo.core.epoch) == (Role.UNATTACHED, 5)


# --- Raft 5.2: elections -----------------------------------------------------------------------------------------------


def test_a_candidate_raises_its_epoch_votes_for_itself_and_asks() -> None:
    """Raft 5.2: all of that durable before the first request for a vote leaves."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    effects = solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))

    assert effects[0] == SaveElectionState(ElectionState(3, key(1), None))
    votes = requests(effects, VoteRequest)
    assert [vote.destination for vote in votes] == [2, 3]
    assert votes[0].request == VoteRequest(key(1), key(2), 3, 1, 2, pre_vote=False)


def test_a_vote_counts_once() -> None:
    """Raft 5.2: a majority of the voters, not of the replies."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None), voters=5)
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    for _ in range(4):
        solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))

    assert solo.core.role is Role.PROSPECTIVE


def test_a_vote_of_an_earlier_epoch_is_not_counted() -> None:
    """Raft 5.2: an answer belongs to the question that it answers."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[:2]
    first, second = (r.request for r in asked)
    assert isinstance(first, VoteRequest) and isinstance(second, VoteRequest)
    solo.respond(asked[0].destination, first, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 3)
    # The second pre-vote comes late; so does a real vote of an epoch that is over.
    solo.respond(asked[1].destination, second, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    old = replace(second, epoch=2, pre_vote=False)
    solo.respond(asked[1].destination, old, VoteResponse(ErrorCode.NONE, 3, None, vote_granted=True))

    assert solo.core.role is Role.CANDIDATE


def test_a_candidate_that_hears_of_the_leader_of_its_epoch_follows_it() -> None:
    """Raft 5.2: somebody else has won."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    effects = solo.request(BeginQuorumEpochRequest(key(3), key(1), 3))

    assert (solo.core.role, solo.core.leader_id) == (Role.FOLLOWER, 3)
    assert only(SaveElectionState, effects).state == ElectionState(3, key(1), 3)  # the vote stays


def test_election_timeouts_are_random() -> None:
    """Raft 5.2: or all would run at once, for ever."""
    deadlines = set()
    for seed in range(20):
        solo = Solo(seed=seed)
        while solo.core.role is Role.UNATTACHED:
            solo.wait(1)
        deadlines.add(solo.now_ms - 1000)

    config = Solo().config
    assert len(deadlines) > 10
    assert config.election_timeout_min_ms <= min(deadlines) <= max(deadlines) <= config.election_timeout_max_ms


def test_a_second_leader_in_one_epoch_stops_the_node() -> None:
    """Raft 5.2, election safety: there can't be two; if there are, nothing that this node knows can be trusted."""
    solo, _ = follower(1)
    effects = solo.request(BeginQuorumEpochRequest(key(3), key(1), 3))

    assert "two leaders" in only(StopNode, effects).reason
    assert solo.core.next_deadline_ms() is None
    assert solo.step(TimerFired()) == []

    solo = leader()
    assert not none_of(StopNode, solo.request(BeginQuorumEpochRequest(key(3), key(1), 3)))


def test_a_lone_voter_elects_itself_at_once() -> None:
    """Raft 5.2: a majority of one is there already. After a restart too, in a new epoch."""
    solo = Solo(voters=1)
    assert only(AppendControl, [e for e in solo.started if e != AppendControl(1, voters_of(1))]).epoch == 1
    assert solo.core.high_watermark == solo.log.end

    again = Solo(voters=1, log=solo.log, election=ElectionState(1, key(1), 1))
    assert again.core.is_leading
    assert again.core.epoch > 1
    assert again.core.next_deadline_ms() is None
    assert again.core.last_quorum_round_began_ms == FOREVER_MS


# --- Raft 5.3: replication ---------------------------------------------------------------------------------------------


def test_an_epoch_opens_with_a_leader_change() -> None:
    """KIP-595: the first record of an epoch names leader, voters and who voted; the first of all also writes down the voters."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    effects = solo.elect()
    records = [e.record for e in effects if isinstance(e, AppendControl)]
    kinds = [type(e) for e in effects]

    assert isinstance(records[0], LeaderChange)
    assert records[0].leader_id == 1
    assert records[0].voters == (1, 2, 3)
    assert len(records[0].granting_voters) == 2
    assert records[1:] == [voters_of(1, 2, 3)]
    # Durable, then opened, then announced, then told.
    assert kinds.index(SaveElectionState) < kinds.index(AppendControl) < kinds.index(LeadershipChanged)
    assert kinds.index(LeadershipChanged) < kinds.index(SendRequest)


def test_voters_in_the_log_are_not_written_again() -> None:
    """KIP-853: the log speaks for itself from its first leader on."""
    log = log_of(1)
    log.append(1, voters_of(1, 2, 3))
    log.flush()
    solo = Solo(log=log, election=ElectionState(2, None, None))

    assert not any(isinstance(e, AppendControl) and isinstance(e.record, Voters) for e in solo.elect())


def test_a_leader_sends_what_it_has_not_flushed_and_counts_itself_when_it_has() -> None:
    """Raft 5.3 with the fsyncs in parallel: a record is committed when a majority's *disks* have it (R8)."""
    solo = working_leader()
    solo.auto_flush = False
    effects = solo.append()
    assert len([e for e in effects if isinstance(e, ReplyWithBatches)]) == 2
    effects = solo.fetch(2, high_watermark=4)

    assert none_of(HighWatermarkAdvanced, effects)
    assert only(HighWatermarkAdvanced, solo.flush()).high_watermark == 5


def test_an_epoch_start_is_not_a_commit() -> None:
    """Raft 5.4.2: a majority that stands just at the start of the epoch has none of its records (KAFKA-12619)."""
    solo = leader()
    for node_id in (2, 3):
        solo.fetch(node_id, 2)
    assert solo.core.high_watermark is None
    # One record of the epoch on a majority carries everything below it along.
    solo.fetch(2, 3)
    assert solo.core.high_watermark == 3


def test_a_new_leaders_high_watermark_is_unknown() -> None:
    """KIP-595: it may have known one as a follower, but what it says must be proven in its own epoch."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch, high_watermark=2)
    assert solo.core.high_watermark == 2
    solo.wait(2000)
    solo.request(VoteRequest(key(3), key(1), 8, 3, 9, pre_vote=False))
    solo.elect()

    assert solo.core.high_watermark is None
    assert fetch_reply(solo.fetch(2, wait_ms=0)).high_watermark in (None, 4)


def test_a_followers_high_watermark_goes_no_further_than_the_reply_has_shown() -> None:
    """R9: min(leader's, end verified by *this* reply); never what merely lies in the log."""
    solo, fetch = follower(1, 1)
    effects = solo.good_answer(fetch, batches=batches_after(solo.log, 3), high_watermark=9)

    assert only(HighWatermarkAdvanced, effects).high_watermark == 3
    # It never falls.
    effects = solo.good_answer(fetch_in(effects), high_watermark=1)
    assert none_of(HighWatermarkAdvanced, effects)
    assert solo.core.high_watermark == 3


def test_a_fetch_leaves_when_the_log_is_on_disk() -> None:
    """R12: the fetch is the acknowledgement, so it follows the fsync and starts at the flushed end."""
    solo, fetch = follower(1, 1)
    solo.auto_flush = False
    effects = solo.good_answer(fetch, batches=batches_after(solo.log, 3))
    assert not none_of(AppendBatches, effects)
    assert none_of(SendRequest, effects)

    assert fetch_in(solo.flush()).fetch_offset == 3


def test_only_the_awaited_answer_is_taken() -> None:
    """One fetch in flight: a late or repeated answer would append twice, or acknowledge what is gone."""
    solo, first = follower(1, 1)
    batches = batches_after(solo.log, 3)
    second = fetch_in(solo.good_answer(first, batches=batches))

    assert solo.good_answer(first, batches=batches) == []
    assert solo.good_answer(replace(second, number=second.number + 1)) == []
    assert solo.respond(3, second, FetchResponse(ErrorCode.NONE, 3, 2, second.number)) == []
    third = fetch_in(solo.good_answer(second))
    assert third.number == second.number + 1
    # Not even if it would fit: it was given to a question that is over.
    assert solo.good_answer(second, batches=batches_after(solo.log, 3)) == []


def test_batches_that_do_not_continue_the_log_are_left_alone() -> None:
    """Raft 5.3, the consistency check: neither a gap, nor an overlap, nor an epoch from the future."""
    for bad in (
        batches_after(log_of(1, 1, 1), 3),
        batches_after(log_of(1), 3),
        batches_after(log_of(1, 1), 4),
        batches_after(log_of(1, 1), 3, 2),
    ):
        solo, fetch = follower(1, 1)
        assert none_of(AppendBatches, solo.good_answer(fetch, batches=bad))


def test_an_acknowledgement_beyond_the_leaders_end_diverges() -> None:
    """KIP-595: nobody can hold what the leader has not; that follower holds something else."""
    solo = working_leader()
    ahead = FetchRequest(key(2), 3, 1, 9, 3, bytes(32), 0, 150, 100)

    assert fetch_reply(solo.request(ahead)).diverging == OffsetAndEpoch(4, 3)
    assert solo.core.high_watermark == 4


def test_a_follower_does_not_cut_below_its_high_watermark() -> None:
    """R10: what is committed is in every leader's log; one that says otherwise is none."""
    solo, fetch = follower(1, 1, 2)
    fetch = fetch_in(solo.good_answer(fetch, high_watermark=3))
    diverging = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, diverging=OffsetAndEpoch(2, 1))
    effects = solo.respond(2, fetch, diverging)

    assert none_of(TruncateLog, effects)
    assert "below the high watermark" in only(StopNode, effects).reason


def test_a_chain_mismatch_stops_the_follower() -> None:
    """At an equal (offset, epoch) nobody truncates: it is not known who is wrong."""
    solo, fetch = follower(1, 1)
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.CHAIN_MISMATCH, 3, 2, fetch.number))
    assert "another history" in only(StopNode, effects).reason

    solo = working_leader()
    wrong = FetchRequest(key(2), 3, 1, 4, 3, bytes(32), 0, 150, 100)
    assert fetch_reply(solo.request(wrong)).error is ErrorCode.CHAIN_MISMATCH


# --- KIP-595: parked fetches -------------------------------------------------------------------------------------------


def test_a_parked_fetch_is_answered_after_its_wait() -> None:
    """A long poll: silence for `max_wait_ms`, then an empty answer."""
    solo = working_leader()

    assert none_of(Reply, solo.wait(149))
    assert len([e for e in solo.wait(1) if isinstance(e, Reply)]) == 2


def test_a_parked_fetch_is_answered_when_the_high_watermark_moves() -> None:
    """So that a follower learns of a commit at once, and not with the next record."""
    solo = working_leader()
    solo.append()
    solo.fetch(2, high_watermark=4)  # moves it to 5, and is answered
    solo.fetch(2, high_watermark=5)  # parked
    effects = solo.fetch(3, high_watermark=4)

    assert fetch_reply(effects).high_watermark == 5


def test_a_newer_fetch_replaces_the_parked_one() -> None:
    """One per replica; the old one is not left hanging."""
    solo = working_leader()
    effects = solo.fetch(2, high_watermark=4)

    assert only(Reply, effects).reply_to == solo.reply_to - 2  # the one before: node 3 came between
    assert len([e for e in solo.append() if isinstance(e, ReplyWithBatches)]) == 2


def test_parked_fetches_hear_when_leadership_ends() -> None:
    """KIP-595, KAFKA-10677."""
    solo = working_leader()
    effects = solo.step(Resign(3, "a test"))
    replies = [e.response for e in effects if isinstance(e, Reply)]

    assert [r.error for r in replies] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert solo.core.role is Role.RESIGNED


# --- KIP-595: how a term ends -----------------------------------------------------------------------------------------


def test_a_leader_without_a_quorum_resigns() -> None:
    """Check-quorum (KAFKA-15489): a leader that is cut off must not believe for ever that it leads."""
    solo = working_leader()

    solo.wait(solo.config.check_quorum_ms - 1)
    assert solo.core.is_leading
    solo.wait(1)
    assert solo.core.role is Role.RESIGNED


def test_fetches_without_progress_do_not_keep_a_leader() -> None:
    """KAFKA-15911: a follower that asks for the same again and again, because it cannot write it, is no quorum."""
    solo = working_leader()
    solo.append()
    for _ in range(20):
        solo.wait(100)
        if solo.core.is_leading:
            solo.fetch(2, 4, high_watermark=4)
            solo.fetch(3, 4, high_watermark=4)

    assert not solo.core.is_leading


def test_an_idle_cluster_keeps_its_leader() -> None:
    """A follower that stands at the end that it was last told has nothing to get further with."""
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
    """A follower that downloads a snapshot is getting further, whatever its offset says."""
    solo = working_leader()
    for position in range(30):
        solo.wait(100)
        solo.request(FetchSnapshotRequest(key(2), 3, 1, OffsetAndEpoch(2, 1), position, 100))

    assert solo.core.is_leading


def test_a_leader_that_resigns_names_its_successors() -> None:
    """KIP-595: the voters, the furthest first; it says so until each has heard it."""
    solo = working_leader()
    solo.append()
    solo.fetch(3, high_watermark=4)
    effects = solo.step(Resign(3, "a test"))
    ends = requests(effects, EndQuorumEpochRequest)

    assert [end.destination for end in ends] == [2, 3]
    assert ends[0].request == EndQuorumEpochRequest(key(1), 3, (key(3), key(2)))
    solo.step(RequestFailed(2, ends[0].request, Failure.TIMED_OUT))
    assert [e.destination for e in requests(solo.wait(100), EndQuorumEpochRequest)] == [2]


def test_resigning_from_an_epoch_that_is_over_does_nothing() -> None:
    """A late wish of a state machine must not end somebody's next term."""
    solo = working_leader()

    assert solo.step(Resign(2, "late")) == []
    assert solo.core.is_leading


def test_a_resigned_leader_goes_on_in_the_next_epoch() -> None:
    """R1: it never leads one epoch twice. After an election timeout it may run again, an epoch later."""
    solo = Solo(epochs=(1, 1), election=ElectionState(3, key(1), 1))
    assert solo.core.role is Role.RESIGNED
    solo.wait(500)

    assert (solo.core.role, solo.core.epoch, solo.core.voted_for) == (Role.PROSPECTIVE, 4, None)


def test_a_leader_repeats_itself_to_silent_voters_only() -> None:
    """KIP-595: BeginQuorumEpoch to whoever has been silent for half the fetch timeout."""
    solo = leader()
    silent = 0
    for _ in range(8):
        effects = solo.wait(100)
        solo.fetch(2, high_watermark=4)
        silent += len(requests(effects, BeginQuorumEpochRequest))
        assert all(e.destination == 3 for e in requests(effects, BeginQuorumEpochRequest))

    assert silent == 2


def test_a_voter_above_its_leaders_epoch_costs_one_election() -> None:
    """A node that is durably above cannot go back; the leader hears of it in the answer to BeginQuorumEpoch, and steps down."""
    solo = working_leader()
    begin = BeginQuorumEpochRequest(key(1), key(3), 3)
    solo.respond(3, begin, BeginQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 6, None))

    assert (solo.core.role, solo.core.epoch) == (Role.UNATTACHED, 6)


def test_shutting_down_hands_over_and_starts_nothing_new() -> None:
    """KIP-595: a leader says who should go on; a follower just stops asking."""
    solo = working_leader()
    assert len(requests(solo.step(ShutDown()), EndQuorumEpochRequest)) == 2
    solo.wait(5000)
    assert solo.core.role is Role.RESIGNED

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
    """Raft 5.2, KIP-595: after the fetch timeout; with KIP-996 it asks for pre-votes then. The better successor first."""
    for rank, successors in enumerate([(1, 3), (3, 1)]):
        solo, fetch = follower(1)
        solo.good_answer(fetch, successors=successors)
        solo.wait(solo.config.fetch_timeout_ms + rank * solo.config.successor_wait_ms - 1)
        assert solo.core.role is Role.FOLLOWER
        solo.wait(1)
        assert solo.core.role is Role.PROSPECTIVE


def test_a_refused_reconnect_is_suspicion() -> None:
    """Fast failover: the successor of rank i runs i waits after the leader's process was seen gone."""
    for rank, successors in enumerate([(1, 3), (3, 1)]):
        solo, fetch = follower(1)
        solo.good_answer(fetch, successors=successors)
        solo.step(PeerRefused(2))
        if rank:
            solo.wait(rank * solo.config.successor_wait_ms - 1)
            assert solo.core.role is Role.FOLLOWER
        solo.wait(rank)
        assert solo.core.role is Role.PROSPECTIVE


def test_a_suspicious_follower_grants_pre_votes() -> None:
    """Fast failover: or the first successor would wait for the others' fetch timeouts."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=(3, 1))
    ask = VoteRequest(key(3), key(1), 3, 1, 1, pre_vote=True)
    refused = only(Reply, solo.request(ask)).response
    solo.step(PeerRefused(2))
    granted = only(Reply, solo.request(ask)).response

    assert isinstance(refused, VoteResponse) and isinstance(granted, VoteResponse)
    assert (refused.vote_granted, granted.vote_granted) == (False, True)


def test_a_good_answer_clears_suspicion() -> None:
    """Fast failover: the leader is there after all (a certificate was rotated, a proxy restarted)."""
    solo, fetch = follower(1)
    fetch = fetch_in(solo.good_answer(fetch, successors=(3, 1)))
    solo.step(PeerRefused(2))
    solo.good_answer(fetch, successors=(3, 1))
    solo.wait(solo.config.fetch_timeout_ms)

    assert solo.core.role is Role.FOLLOWER


def test_a_suspicious_prospective_asks_again_until_the_others_have_noticed() -> None:
    """Fast failover: a refusal says that the other has not seen it yet."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=(1, 3))
    solo.step(PeerRefused(2))
    asked = next(r for r in requests(solo.wait(0), VoteRequest) if r.destination == 3)
    assert isinstance(asked.request, VoteRequest)
    solo.respond(3, asked.request, VoteResponse(ErrorCode.NONE, 3, 2, vote_granted=False))
    assert solo.core.role is Role.PROSPECTIVE

    again = [r.destination for r in requests(solo.wait(solo.config.retry_backoff_ms), VoteRequest)]
    assert again == [3]


def test_a_paused_leader_is_not_suspected() -> None:
    """Silence and a broken connection are no refusal: a leader that is only slow keeps its followers."""
    solo, fetch = follower(1)
    fetch = fetch_in(solo.good_answer(fetch, successors=(1, 3)))
    solo.step(RequestFailed(2, fetch, Failure.BROKEN))
    solo.step(PeerRefused(3))
    solo.wait(300)

    assert solo.core.role is Role.FOLLOWER


def test_a_leader_that_says_it_does_not_lead_is_gone() -> None:
    """A leader never comes back in its epoch, so there is nothing to wait for."""
    solo, fetch = follower(1)
    fetch = fetch_in(solo.good_answer(fetch, successors=(1, 3)))
    solo.respond(2, fetch, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, None, fetch.number))
    solo.wait(1)

    assert solo.core.role is Role.PROSPECTIVE


# --- KIP-996: pre-vote ----------------------------------------------------------------------------------------------


def test_a_pre_vote_changes_nothing_on_disk() -> None:
    """KIP-996: neither the asker's epoch nor anybody's vote."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    effects = solo.wait(500)

    assert solo.core.role is Role.PROSPECTIVE
    assert none_of(SaveElectionState, effects)
    assert solo.core.epoch == 2


def test_a_pre_vote_of_a_higher_epoch_is_not_taken_in() -> None:
    """KIP-996 as it is used here: a question in the conditional moves nobody's epoch, so it costs no leader its office."""
    solo = working_leader()
    effects = solo.request(VoteRequest(key(2), key(1), 9, 3, 99, pre_vote=True))

    assert none_of(SaveElectionState, effects)
    assert (solo.core.epoch, solo.core.is_leading) == (3, True)


def test_a_refused_prospective_goes_back_to_its_leader() -> None:
    """KIP-996: a majority still hears the leader, so it was this node's own trouble."""
    solo, fetch = follower(1)
    solo.good_answer(fetch)
    for asked in requests(solo.wait(solo.config.fetch_timeout_ms), VoteRequest):
        assert isinstance(asked.request, VoteRequest)
        solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 3, 2, vote_granted=False))

    assert (solo.core.role, solo.core.leader_id, solo.core.epoch) == (Role.FOLLOWER, 2, 3)


def test_the_order_of_succession_outlives_a_lost_pre_vote() -> None:
    """Or in the second round all would run at the same moment, and split the vote."""
    solo, fetch = follower(1)
    solo.good_answer(fetch, successors=(3, 1))
    solo.step(PeerRefused(2))
    solo.wait(solo.config.successor_wait_ms)
    assert solo.core.role is Role.PROSPECTIVE
    while solo.core.role is Role.PROSPECTIVE:
        solo.wait(1)
    assert solo.core.role is Role.FOLLOWER
    solo.step(PeerRefused(2))
    solo.wait(solo.config.successor_wait_ms - 1)
    assert solo.core.role is Role.FOLLOWER
    solo.wait(1)

    assert solo.core.role is Role.PROSPECTIVE


def test_a_candidate_that_has_lost_starts_over_with_pre_votes() -> None:
    """KIP-996: in the epoch that it has raised, which it does not raise again before a majority would have it."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 3)
    solo.wait(500)

    assert solo.core.role in (Role.PROSPECTIVE, Role.UNATTACHED)
    assert solo.core.epoch == 3


def test_a_restarted_candidate_keeps_its_vote_and_pre_votes_first() -> None:
    """R2: the vote outlives the process. KIP-996: the epoch is not raised a second time for nothing."""
    solo = Solo(epochs=(1,), election=ElectionState(4, key(1), None))
    solo.wait(500)

    assert (solo.core.role, solo.core.epoch, solo.core.voted_for) == (Role.PROSPECTIVE, 4, key(1))


def test_a_pre_vote_may_be_granted_from_an_older_epoch() -> None:
    """Or a node that alone stands in a higher epoch could never win, and never be won over either."""
    solo = Solo(epochs=(1,), election=ElectionState(7, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 5, None, vote_granted=True))

    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 8)


# --- KIP-630: snapshots ------------------------------------------------------------------------------------------------


def redirected() -> tuple[Solo, FetchSnapshotRequest]:
    """A follower that was sent to snapshot 9@2, and its first request for it."""
    solo, fetch = follower()
    answer = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, high_watermark=9, snapshot=OffsetAndEpoch(9, 2))
    sent = only(SendRequest, solo.respond(2, fetch, answer)).request
    assert isinstance(sent, FetchSnapshotRequest)
    return solo, sent


def chunk(request: FetchSnapshotRequest, data: bytes, size: int = 10) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(ErrorCode.NONE, 3, 2, request.number, size, request.position, data)


def test_a_snapshot_is_fetched_by_position_and_installed() -> None:
    """KIP-630: piece by piece, then the log starts at its end, and all below that is committed."""
    solo, request = redirected()
    effects = solo.respond(2, request, chunk(request, bytes(6)))
    assert isinstance(effects[0], WriteSnapshotChunk)
    request = only(SendRequest, effects).request  # type: ignore[assignment]
    assert request.position == 6
    effects = solo.respond(2, request, chunk(request, bytes(4)))
    assert [type(e) for e in effects] == [WriteSnapshotChunk, InstallSnapshot]

    # While it is being installed, the node neither fetches nor runs.
    solo.wait(3000)
    assert solo.core.role is Role.FOLLOWER
    solo.log.install(OffsetAndEpoch(9, 2), bytes(32))
    effects = solo.step(SnapshotInstalled(solo.log.shape(), voters_of(1, 2, 3)))
    assert only(HighWatermarkAdvanced, effects).high_watermark == 9
    assert fetch_in(effects).fetch_offset == 9


def test_a_snapshot_that_is_gone_is_asked_for_anew() -> None:
    """KIP-630: the leader has a newer one; a fetch says which."""
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
    """What comes from outside is checked before it is written."""
    solo, request = redirected()

    assert solo.respond(2, request, replace(chunk(request, bytes(6)), **bad)) == []  # type: ignore[arg-type]


def test_a_stale_snapshot_is_not_installed() -> None:
    """S6, R10: nothing committed is ever given up for a snapshot."""
    solo, fetch = follower(1, 1, 1)
    fetch = fetch_in(solo.good_answer(fetch, high_watermark=3))
    answer = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, high_watermark=3, snapshot=OffsetAndEpoch(2, 1))

    assert "below the high watermark" in only(StopNode, solo.respond(2, fetch, answer)).reason


# --- KIP-853: the voter set ---------------------------------------------------------------------------------------------


def test_a_voter_set_counts_as_soon_as_it_is_appended() -> None:
    """KIP-853: uncommitted, and for its own commit too."""
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
    """KIP-853: it brings its own removal to the majority of the others, then steps down."""
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
    assert solo.core.role is Role.RESIGNED


# --- Raft 6.4: reads --------------------------------------------------------------------------------------------------


def tokens(effects: list[Effect]) -> dict[int, int]:
    """reply_to -> the token that the reply carries."""
    return {
        e.reply_to: e.response.read_token
        for e in effects
        if isinstance(e, Reply | ReplyWithBatches) and isinstance(e.response, FetchResponse)
    }


def test_a_read_waits_for_an_echo_of_what_was_sent_after_it() -> None:
    """Raft 6.4: an answer to a question that was asked before the read proves nothing about now."""
    solo = working_leader()
    old_token = max(tokens(solo.wait(150)).values())
    solo.step(ConfirmReads(1))
    assert none_of(ReadsConfirmed, solo.fetch(2, high_watermark=4, read_token=old_token - 1))
    effects = solo.fetch(3, high_watermark=4, read_token=old_token)
    assert none_of(ReadsConfirmed, effects)
    new_token = tokens(effects)[solo.reply_to]

    assert only(ReadsConfirmed, solo.fetch(3, high_watermark=4, read_token=new_token)).token == 1


def test_parked_fetches_carry_the_token_at_once() -> None:
    """A read costs one round trip, not a long poll."""
    solo = working_leader()

    assert len(tokens(solo.step(ConfirmReads(1)))) == 2


def test_reads_wait_for_the_first_commit_of_the_epoch() -> None:
    """Raft 6.4: before that the leader does not know what is committed."""
    solo = leader()
    assert solo.step(ConfirmReads(1)) == []
    token = max(tokens(solo.fetch(2, 2)).values())
    assert none_of(
        ReadsConfirmed, solo.fetch(2, 2, read_token=token)
    )  # it follows, but nothing of this epoch is committed
    solo.fetch(2)
    token = max(tokens(solo.fetch(2, high_watermark=0)).values())

    assert only(ReadsConfirmed, solo.fetch(2, high_watermark=4, read_token=token)).token == 1


def test_a_token_that_was_never_given_counts_for_nothing() -> None:
    """A reply to another leader, or to another life of this one."""
    solo = working_leader()
    solo.step(ConfirmReads(1))

    assert none_of(ReadsConfirmed, solo.fetch(2, high_watermark=4, read_token=10_000))


def test_the_newest_round_began_when_its_replies_left() -> None:
    """A paused leader finds old fetches at its door; they must not renew anybody's lease."""
    solo = working_leader()
    token = tokens(solo.wait(150))[solo.reply_to - 1]  # node 2's; node 3's is no proof of what node 2 has heard
    left_ms = solo.now_ms
    solo.now_ms += 10_000  # paused
    solo.fetch(2, high_watermark=4, read_token=token)

    assert solo.core.last_quorum_round_began_ms == left_ms


# --- and over several nodes ----------------------------------------------------------------------------------------------


def test_a_healthy_majority_keeps_its_leader() -> None:
    """L4: a node that is cut off, paused or restarted again and again never costs the others their leader."""
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
    """P1: from the crash to a committed record of the next epoch, whoever crashes."""
    for seed in range(10):
        cluster = Cluster(3, seed=seed).boot_all()
        crashed = cluster.elect()
        cluster.run(300)
        before_ms = cluster.now_ms
        cluster.crash(crashed.id)
        cluster.elect()

        assert cluster.now_ms - before_ms <= 15
