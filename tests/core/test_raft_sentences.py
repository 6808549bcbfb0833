"""One test per sentence of the Raft paper's section 5, and of the dissertation's 6.4 on reads.

Stories with several nodes are in `scripts/`; tables are in `test_votes` and `test_fetch_validation`.
"""

from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import LeaderChange, Voters
from quorum.core.protocol.effects import (
    AppendBatches,
    AppendControl,
    Effect,
    ElectionState,
    HighWatermarkAdvanced,
    LeadershipChanged,
    ReadsConfirmed,
    Reply,
    ReplyWithBatches,
    SaveElectionState,
    SendRequest,
    StopNode,
    TruncateLog,
)
from quorum.core.protocol.inputs import (
    ConfirmReads,
    TimerFired,
)
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.progress import FOREVER_MS
from quorum.core.roles import Role
from tests.core.cluster import voters_of
from tests.core.situations import batches_after, fetch_reply, follower, leader, requests, working_leader
from tests.core.solo import Solo, fetch_in, key, log_of, none_of, only

# --- Raft 5.1: epochs ----------------------------------------------------------------------------------------------------


def test_a_leader_that_hears_of_a_higher_epoch_steps_down() -> None:
    """Raft 5.1: a node with an outdated epoch becomes a follower at once (KIP-595: unattached)."""
    solo = working_leader()
    effects = solo.request(VoteRequest(key(2), key(1), 9, 3, 99, pre_vote=False))

    assert solo.core.role is Role.UNATTACHED
    assert only(LeadershipChanged, effects) == LeadershipChanged(9, None, leading=False)
    # The new epoch is on disk before any message names it, and parked fetches are answered, too.
    assert isinstance(effects[0], SaveElectionState)
    errors = [e.response.error for e in effects if isinstance(e, Reply) and isinstance(e.response, FetchResponse)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_a_reply_of_an_older_epoch_is_ignored() -> None:
    """Raft 5.1: a message of an older epoch has no effect, not even as an acknowledgement."""
    solo, fetch = follower(1, 1)
    stale = FetchResponse(ErrorCode.NONE, 2, 2, fetch.number, high_watermark=2, batches=batches_after(solo.log, 2))

    assert solo.respond(2, fetch, stale) == []
    assert solo.core.high_watermark is None


def test_a_reply_of_a_higher_epoch_is_taken_in_with_its_leader() -> None:
    """Raft 5.1, KIP-595: the node follows the named leader, or none."""
    solo, fetch = follower(1, 1)
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, 3, fetch.number))

    assert only(SaveElectionState, effects).state == ElectionState(5, None, 3)
    assert only(SendRequest, effects).destination == 3

    solo, fetch = follower(1, 1)
    solo.respond(2, fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, None, fetch.number))
    assert (solo.core.role, solo.core.epoch) == (Role.UNATTACHED, 5)


# --- Raft 5.2: elections -----------------------------------------------------------------------------------------------


def test_a_candidate_raises_its_epoch_votes_for_itself_and_asks() -> None:
    """Raft 5.2: epoch and vote are durable before the first vote request leaves."""
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
    """Raft 5.2: an answer belongs to its own request."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[:2]
    first, second = (r.request for r in asked)
    assert isinstance(first, VoteRequest) and isinstance(second, VoteRequest)
    solo.respond(asked[0].destination, first, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 3)
    # The second pre-vote arrives late; so does a real vote of an earlier epoch.
    solo.respond(asked[1].destination, second, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    old = replace(second, epoch=2, pre_vote=False)
    solo.respond(asked[1].destination, old, VoteResponse(ErrorCode.NONE, 3, None, vote_granted=True))

    assert solo.core.role is Role.CANDIDATE


def test_a_candidate_that_hears_of_the_leader_of_its_epoch_follows_it() -> None:
    """Raft 5.2: another candidate has won."""
    solo = Solo(epochs=(1,), election=ElectionState(2, None, None))
    asked = requests(solo.wait(500), VoteRequest)[0]
    assert isinstance(asked.request, VoteRequest)
    solo.respond(asked.destination, asked.request, VoteResponse(ErrorCode.NONE, 2, None, vote_granted=True))
    effects = solo.request(BeginQuorumEpochRequest(key(3), key(1), 3))

    assert (solo.core.role, solo.core.leader_id) == (Role.FOLLOWER, 3)
    assert only(SaveElectionState, effects).state == ElectionState(3, key(1), 3)  # the vote stays


def test_election_timeouts_are_random() -> None:
    """Raft 5.2: otherwise all voters would campaign at once, for ever."""
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
    """Raft 5.2, election safety: two leaders are impossible.

    If they exist, the node can trust none of its knowledge.
    """
    solo, _ = follower(1)
    effects = solo.request(BeginQuorumEpochRequest(key(3), key(1), 3))

    assert "two leaders" in only(StopNode, effects).reason
    assert solo.core.next_deadline_ms() is None
    assert solo.step(TimerFired()) == []

    solo = leader()
    assert not none_of(StopNode, solo.request(BeginQuorumEpochRequest(key(3), key(1), 3)))


def test_a_lone_voter_elects_itself_at_once() -> None:
    """Raft 5.2: a single voter is a majority. After a restart, too, in a new epoch."""
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
    """KIP-595: the first record of an epoch names leader, voters and granting voters; the first leader also writes the
    voter set.
    """
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    effects = solo.elect()
    records = [e.record for e in effects if isinstance(e, AppendControl)]
    kinds = [type(e) for e in effects]

    assert isinstance(records[0], LeaderChange)
    assert records[0].leader_id == 1
    assert records[0].voters == (1, 2, 3)
    assert len(records[0].granting_voters) == 2
    assert records[1:] == [voters_of(1, 2, 3)]
    # First the vote is durable, then the epoch is opened, then announced, then sent.
    assert kinds.index(SaveElectionState) < kinds.index(AppendControl) < kinds.index(LeadershipChanged)
    assert kinds.index(LeadershipChanged) < kinds.index(SendRequest)


def test_voters_in_the_log_are_not_written_again() -> None:
    """KIP-853: from the first leader on, the log itself defines the voters."""
    log = log_of(1)
    log.append(1, voters_of(1, 2, 3))
    log.flush()
    solo = Solo(log=log, election=ElectionState(2, None, None))

    assert not any(isinstance(e, AppendControl) and isinstance(e.record, Voters) for e in solo.elect())


def test_a_leader_sends_what_it_has_not_flushed_and_counts_itself_when_it_has() -> None:
    """Raft 5.3 with parallel fsyncs: a record is committed once a majority's *disks* hold it (R8)."""
    solo = working_leader()
    solo.auto_flush = False
    effects = solo.append()
    assert len([e for e in effects if isinstance(e, ReplyWithBatches)]) == 2
    effects = solo.fetch(2, high_watermark=4)

    assert none_of(HighWatermarkAdvanced, effects)
    assert only(HighWatermarkAdvanced, solo.flush()).high_watermark == 5


def test_an_epoch_start_is_not_a_commit() -> None:
    """Raft 5.4.2: a majority with logs up to the epoch's start has none of its records (KAFKA-12619)."""
    solo = leader()
    for node_id in (2, 3):
        solo.fetch(node_id, 2)
    assert solo.core.high_watermark is None
    # One record of the epoch on a majority commits all records below.
    solo.fetch(2, 3)
    assert solo.core.high_watermark == 3


def test_a_new_leaders_high_watermark_is_unknown() -> None:
    """KIP-595: the leader may have known a high watermark as a follower, but must prove one in its own epoch."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch, high_watermark=2)
    assert (solo.core.high_watermark, solo.core.role) == (2, Role.FOLLOWER)
    solo.wait(2000)
    solo.request(VoteRequest(key(3), key(1), 8, 3, 9, pre_vote=False))
    solo.elect()

    assert solo.core.high_watermark is None
    assert fetch_reply(solo.fetch(2, wait_ms=0)).high_watermark in (None, 4)


def test_a_followers_high_watermark_goes_no_further_than_the_reply_has_shown() -> None:
    """R9: the lesser of the leader's and the end verified by *this* reply; never the mere end of the log."""
    solo, fetch = follower(1, 1)
    effects = solo.good_answer(fetch, batches=batches_after(solo.log, 3), high_watermark=9)

    assert only(HighWatermarkAdvanced, effects).high_watermark == 3
    # The high watermark never falls.
    effects = solo.good_answer(fetch_in(effects), high_watermark=1)
    assert none_of(HighWatermarkAdvanced, effects)
    assert solo.core.high_watermark == 3


def test_a_fetch_leaves_when_the_log_is_on_disk() -> None:
    """R12: a fetch is an acknowledgement, so it follows the fsync and starts at the flushed end."""
    solo, fetch = follower(1, 1)
    solo.auto_flush = False
    effects = solo.good_answer(fetch, batches=batches_after(solo.log, 3))
    assert not none_of(AppendBatches, effects)
    assert none_of(SendRequest, effects)

    assert fetch_in(solo.flush()).fetch_offset == 3


def test_only_the_awaited_answer_is_taken() -> None:
    """One fetch in flight: a late or repeated answer would append twice, or acknowledge deleted records."""
    solo, first = follower(1, 1)
    batches = batches_after(solo.log, 3)
    second = fetch_in(solo.good_answer(first, batches=batches))

    assert solo.good_answer(first, batches=batches) == []
    assert solo.good_answer(second._replace(number=second.number + 1)) == []
    assert solo.respond(3, second, FetchResponse(ErrorCode.NONE, 3, 2, second.number)) == []
    third = fetch_in(solo.good_answer(second))
    assert third.number == second.number + 1
    # Not even if the batches fit: the answer belongs to an earlier request.
    assert solo.good_answer(second, batches=batches_after(solo.log, 3)) == []


def test_batches_that_do_not_continue_the_log_are_left_alone() -> None:
    """Raft 5.3, the consistency check: no gap, no overlap, no epoch from the future."""
    for bad in (
        batches_after(log_of(1, 1, 1), 3),
        batches_after(log_of(1), 3),
        batches_after(log_of(1, 1), 4),
        batches_after(log_of(1, 1), 3, 2),
    ):
        solo, fetch = follower(1, 1)
        assert none_of(AppendBatches, solo.good_answer(fetch, batches=bad))


def test_an_acknowledgement_beyond_the_leaders_end_diverges() -> None:
    """KIP-595: no follower can hold records the leader lacks; the follower holds other records."""
    solo = working_leader()
    ahead = FetchRequest(key(2), 3, 1, 9, 3, bytes(32), 0, 150, 100)

    assert fetch_reply(solo.request(ahead)).diverging == OffsetAndEpoch(4, 3)
    assert solo.core.high_watermark == 4


def test_a_follower_does_not_cut_below_its_high_watermark() -> None:
    """R10: every leader's log holds all committed records; a node claiming otherwise is no leader."""
    solo, fetch = follower(1, 1, 2)
    fetch = fetch_in(solo.good_answer(fetch, high_watermark=3))
    diverging = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, diverging=OffsetAndEpoch(2, 1))
    effects = solo.respond(2, fetch, diverging)

    assert none_of(TruncateLog, effects)
    assert "below the high watermark" in only(StopNode, effects).reason


# --- Raft 6.4: reads --------------------------------------------------------------------------------------------------


def tokens(effects: list[Effect]) -> dict[int, int]:
    """reply_to -> the token carried by the reply."""
    return {
        e.reply_to: e.response.read_token
        for e in effects
        if isinstance(e, Reply | ReplyWithBatches) and isinstance(e.response, FetchResponse)
    }


def test_a_read_waits_for_an_echo_of_what_was_sent_after_it() -> None:
    """Raft 6.4: an answer to a request sent before the read proves nothing about the present."""
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
    """Raft 6.4: before its first commit, the leader does not know the committed records."""
    solo = leader()
    assert solo.step(ConfirmReads(1)) == []
    token = max(tokens(solo.fetch(2, 2)).values())
    assert none_of(
        ReadsConfirmed, solo.fetch(2, 2, read_token=token)
    )  # the voter follows, but no record of this epoch is committed
    solo.fetch(2)
    token = max(tokens(solo.fetch(2, high_watermark=0)).values())

    assert only(ReadsConfirmed, solo.fetch(2, high_watermark=4, read_token=token)).token == 1


def test_a_token_that_was_never_given_counts_for_nothing() -> None:
    """The token is from a reply of another leader, or of an earlier process of this one."""
    solo = working_leader()
    solo.step(ConfirmReads(1))

    assert none_of(ReadsConfirmed, solo.fetch(2, high_watermark=4, read_token=10_000))


def test_the_newest_round_began_when_its_replies_left() -> None:
    """A paused leader finds old fetches in its receive queue; such fetches must not renew a lease."""
    solo = working_leader()
    token = tokens(solo.wait(150))[solo.reply_to - 1]  # node 2's token; node 3's token proves nothing about node 2
    left_ms = solo.now_ms
    solo.now_ms += 10_000  # paused
    solo.fetch(2, high_watermark=4, read_token=token)

    assert solo.core.last_quorum_round_began_ms == left_ms
