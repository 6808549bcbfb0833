"""Two histories at one place: tests for `quorum.core.disputes`. No node truncates; a third voter decides."""

import random

import pytest

from metadata_log.format.errors import ErrorCode
from quorum.core.protocol.effects import Effect, ElectionState, Reply, SendRequest, StopNode, TruncateLog
from quorum.core.protocol.inputs import AnswerRefused, Failure, RequestFailed, ResponseReceived
from quorum.core.protocol.messages import (
    ChainRequest,
    ChainResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
)
from quorum.core.roles import Role
from tests.core.cluster import Cluster, Node
from tests.core.solo import Solo, fetch_in, key, log_of, none_of, only, problem_texts
from tests.core.test_chaos import turn

OTHER = b"another history.................."[:32]


def questions(effects: list[Effect]) -> dict[int, ChainRequest]:
    """The voters asked for their chains."""
    return {
        e.destination: e.request for e in effects if isinstance(e, SendRequest) and isinstance(e.request, ChainRequest)
    }


def says(solo: Solo, node_id: int, request: ChainRequest, chain: bytes | None) -> list[Effect]:
    return solo.respond(node_id, request, ChainResponse(ErrorCode.NONE, solo.core.epoch, None, chain, 9, 9))


def disputed(voters: int = 3) -> tuple[Solo, dict[int, ChainRequest]]:
    """Node 1 follows 2, whose history at the end of node 1's log differs."""
    solo = Solo(epochs=(1, 1), voters=voters, election=ElectionState(3, None, None))
    fetch = solo.follow()
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.CHAIN_MISMATCH, 3, 2, fetch.number))
    assert none_of(StopNode, effects) and none_of(TruncateLog, effects)
    return solo, questions(effects)


def accused(voters: int = 3) -> tuple[Solo, dict[int, ChainRequest]]:
    """Node 1 leads, and node 2 fetches with another history."""
    solo = Solo(epochs=(1, 1), voters=voters)
    solo.elect()
    return solo, questions(solo.request(lying_fetch(solo)))


def lying_fetch(solo: Solo, node_id: int = 2) -> FetchRequest:
    end, epoch = solo.log.end, solo.core.epoch
    return FetchRequest(key(node_id), epoch, 1, end, epoch, OTHER, 0, 150, 100)


def test_a_follower_asks_every_other_voter_at_the_end_of_its_log() -> None:
    """At an equal (offset, epoch) no node truncates, because the wrong party is not known yet."""
    _, asked = disputed(5)
    assert sorted(asked) == [2, 3, 4, 5]
    assert {(request.offset, request.epoch) for request in asked.values()} == {(2, 1)}


def test_the_odd_follower_stops_and_says_where() -> None:
    """A majority has one history, and this node has another."""
    solo, asked = disputed()
    assert none_of(StopNode, says(solo, 2, asked[2], OTHER)), "one voter's word is no majority's"
    reason = only(StopNode, says(solo, 3, asked[3], OTHER)).reason
    assert "offset 2, epoch 1" in reason and "nodes 2, 3" in reason and OTHER.hex()[:16] in reason


def test_a_leader_that_a_majority_contradicts_is_not_followed_but_deposed() -> None:
    """The third voter has this node's history, so this node campaigns as if the leader were gone."""
    solo, asked = disputed()
    says(solo, 2, asked[2], OTHER)
    effects = says(solo, 3, asked[3], solo.log.chain) + solo.wait(200)
    assert none_of(StopNode, effects) and solo.core.role is Role.PROSPECTIVE
    assert "a majority has this node's" in problem_texts(solo.core)


def test_no_third_answer_moves_nobody() -> None:
    """The third voter is away, or its log ends earlier.

    Each mismatch repeats the question, and the problem is reported.
    """
    solo, asked = disputed()
    says(solo, 2, asked[2], OTHER)
    solo.step(RequestFailed(3, asked[3], Failure.TIMED_OUT))
    fetch = fetch_in(solo.wait(100))
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.CHAIN_MISMATCH, 3, 2, fetch.number))
    assert sorted(questions(effects)) == [3]
    effects = says(solo, 3, questions(effects)[3], None)
    assert none_of(StopNode, effects) and "neither node moves" in problem_texts(solo.core)
    assert solo.core.role is Role.FOLLOWER and solo.log.end == 2


def test_two_voters_cannot_decide() -> None:
    """One word stands against another: an operator has to decide."""
    solo, asked = disputed(2)
    effects = says(solo, 2, asked[2], OTHER) + solo.wait(2_000)
    assert none_of(StopNode, effects) and none_of(TruncateLog, effects) and problem_texts(solo.core)


def test_a_dispute_is_over_when_the_logs_agree() -> None:
    """A new leader has this node's history."""
    solo, _ = disputed()
    solo.good_answer(fetch_in(solo.wait(100)))
    assert not problem_texts(solo.core)


def test_an_accused_leader_asks_too_and_goes_on_if_a_majority_has_its_history() -> None:
    """The accuser gets the same testimony, and stops."""
    solo, asked = accused()
    assert sorted(asked) == [2, 3]
    says(solo, 2, asked[2], OTHER)
    effects = says(solo, 3, asked[3], solo.log.chain)
    assert solo.core.is_leading and none_of(StopNode, effects)
    assert "node 2" in problem_texts(solo.core)
    solo.fetch(2)
    assert not problem_texts(solo.core)


def test_a_leader_accused_by_a_majority_resigns_and_stops() -> None:
    """The leader's history is the odd one. The leader tells its successors before it stops."""
    solo, asked = accused()
    says(solo, 2, asked[2], OTHER)
    effects = says(solo, 3, asked[3], OTHER)
    kinds = [type(e.request) if isinstance(e, SendRequest) else type(e) for e in effects]
    assert kinds.index(EndQuorumEpochRequest) < kinds.index(StopNode)
    assert not solo.core.is_leading


def test_a_mismatch_acknowledges_nothing_and_is_no_progress() -> None:
    """A replica fetching again and again with another history keeps no leader in office and moves no high watermark."""
    solo = Solo()
    solo.elect()
    for _ in range(20):
        if solo.core.is_leading:
            reply = only(Reply, [e for e in solo.request(lying_fetch(solo)) if isinstance(e, Reply)]).response
            assert reply.error is ErrorCode.CHAIN_MISMATCH
            solo.wait(100)
    assert not solo.core.is_leading and solo.core.high_watermark is None


def test_batches_that_do_not_continue_this_log_are_asked_for_again_and_acknowledge_nothing() -> None:
    """Each batch is intact by its CRC but not chained to this log: the fault is the leader's, not this disk's."""
    solo = Solo(epochs=(1, 1), election=ElectionState(3, None, None))
    fetch, foreign = solo.follow(), log_of(1, 3, 3)
    solo.core.step(
        ResponseReceived(2, fetch, FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, batches=foreign.read(2, 1 << 20))),
        solo.now_ms,
    )
    assert none_of(StopNode, solo.step(AnswerRefused("another chain")))
    assert fetch_in(solo.wait(solo.config.fetch_wait_ms)).fetch_offset == 2


def test_an_observers_word_starts_no_dispute() -> None:
    """Any program may pose as an observer."""
    solo = Solo()
    solo.elect()
    assert not questions(solo.request(lying_fetch(solo, node_id=9)))


# --- a whole quorum ---------------------------------------------------------------------------------------------------


def with_committed(count: int, seed: int = 0) -> tuple[Cluster, Node]:
    """A quorum at rest with a few committed records, and its leader."""
    cluster = Cluster(count, seed=seed).boot_all()
    leader = cluster.elect()
    cluster.propose(leader.id, 5)
    cluster.run(500)
    return cluster, leader


def test_a_follower_whose_history_was_changed_stops_and_the_others_go_on() -> None:
    """The follower returns with a changed record in the middle of its log, and two voters contradict it."""
    cluster, leader = with_committed(3)
    liar = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.crash(liar.id)
    liar.log.rewrite(4)
    liar.boot_up()
    cluster.run(2_000)
    assert liar.stopped is not None and "this node has another history than the quorum" in liar.stopped
    assert leader.up.is_leading
    cluster.propose(leader.id)
    cluster.run(500)
    assert leader.high_watermark == leader.log.end


def test_a_leader_whose_history_was_changed_is_deposed_and_nobody_follows_it() -> None:
    """Both followers contradict the leader, and elect another."""
    cluster, leader = with_committed(3)
    ends = {node.id: node.log.end for node in cluster.nodes.values()}
    leader.lie(4)
    cluster.run(3_000)
    assert leader.stopped is not None and "another history than the quorum" in leader.stopped
    others = [node for node in cluster.nodes.values() if node is not leader]
    assert all(node.stopped is None and node.log.end >= ends[node.id] for node in others)
    assert any(node.up.is_leading for node in others)


def test_with_two_voters_nobody_moves() -> None:
    """Neither voter truncates, stops, or elects the other, so the epochs do not move: an operator has to decide."""
    cluster, leader = with_committed(2)
    end = leader.log.end
    other = next(node for node in cluster.nodes.values() if node is not leader)
    other.lie(4)
    cluster.run(5_000)
    epochs = [node.up.epoch for node in cluster.nodes.values()]
    cluster.run(20_000)
    assert [node.stopped for node in cluster.nodes.values()] == [None, None]
    assert min(node.log.end for node in cluster.nodes.values()) == end
    assert [node.up.epoch for node in cluster.nodes.values()] == epochs
    assert any(node.up.problems for node in cluster.nodes.values())


@pytest.mark.parametrize("seed", range(20))
def test_one_liar_among_faults_harms_nobody_else(seed: int) -> None:
    """Under any other faults only the changed node may stop. The others end with one history, and work."""
    rng = random.Random(seed)
    cluster, _ = with_committed(rng.choice((3, 3, 5)), seed)
    liar = cluster[rng.randint(1, len(cluster.nodes))]
    at = rng.randrange(10)
    for i in range(20):
        start, committed = liar.log.start.offset, min(liar.high_watermark, liar.log.end)
        if i == at and start < committed:
            liar.lie(rng.randrange(start, committed))
        turn(cluster, rng)
        cluster.run(rng.choice((10, 100, 700)))
    cluster.heal()
    honest = [node for node in cluster.nodes.values() if node is not liar]
    for node in cluster.nodes.values():
        node.flush_held = False
        cluster.resume(node.id)
        if node.core is None and node.stopped is None:
            node.boot_up()
        node.want_flush()

    def working() -> list[Node]:
        up = [node for node in cluster.nodes.values() if node.core is not None and node.stopped is None]
        return [node for node in up if node.up.is_leading and node.up.high_watermark is not None]

    assert cluster.run(20_000, until=lambda: bool(working()))
    cluster.propose(max(working(), key=lambda node: node.up.epoch).id)
    cluster.run(5_000)
    assert [node.stopped for node in honest] == [None for _ in honest]
    assert len({node.log.chain for node in honest}) == 1
