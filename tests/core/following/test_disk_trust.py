"""The rights of a node after a disk fault: tests for `quorum.core.protocol.disk_trust`."""

import random

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.disk_trust import FULL, DiskTrust, Lost
from quorum.core.protocol.effects import ElectionState, Reply, SendRequest
from quorum.core.protocol.inputs import DamageFound, DamageRepaired, DiskFilled, DiskHasRoom
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    ChainRequest,
    ChainResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    VoteRequest,
    VoteResponse,
)
from quorum.core.roles import Role
from tests.core.cluster import Cluster
from tests.core.solo import Solo, fetch_in, key, log_of, none_of, only
from tests.core.test_chaos import turn

DAMAGED = DiskTrust(damaged=True)


def asks_for_vote(solo: Solo, epoch: int, end: int, last_epoch: int, *, pre_vote: bool) -> bool:
    effects = solo.request(VoteRequest(key(2), solo.core.me, epoch, last_epoch, end, pre_vote))
    response = only(Reply, effects).response
    assert isinstance(response, VoteResponse) and response.error is ErrorCode.NONE
    return response.vote_granted


def sent(solo: Solo, fetch: FetchRequest, *epochs: int, high_watermark: int) -> FetchRequest:
    """Answers with a record of each of these epochs. Returns the next fetch."""
    log = log_of(*(solo.log.epoch_below(offset + 1) for offset in range(solo.log.end)))
    start = log.end
    for epoch in epochs:
        log.append(epoch)
    return fetch_in(solo.good_answer(fetch, batches=log.read(start, 1 << 20), high_watermark=high_watermark))


def test_a_damaged_log_votes_with_its_true_end_and_never_runs() -> None:
    """The log has damage inside and a valid chain behind.

    Its end is true, so its vote is correct; but it could not lead.
    """
    solo = Solo(epochs=(1, 1, 1), disk_trust=DAMAGED, election=ElectionState(1, None, None))
    assert none_of(VoteRequest, solo.wait(5_000)) and solo.role() is Role.UNATTACHED
    assert not asks_for_vote(solo, 2, end=2, last_epoch=1, pre_vote=False), "a shorter log"
    assert asks_for_vote(solo, 3, end=3, last_epoch=1, pre_vote=False)


def test_a_voter_with_a_full_disk_votes_and_helps_nobody_to_campaign() -> None:
    """Its vote is correct. But it could not acknowledge a record of the leader that its pre-vote helps to elect."""
    solo = Solo(epochs=(1, 1), election=ElectionState(1, None, None))
    solo.step(DiskFilled())
    assert none_of(VoteRequest, solo.wait(5_000)) and solo.role() is Role.UNATTACHED
    assert not asks_for_vote(solo, 1, end=9, last_epoch=1, pre_vote=True)
    assert asks_for_vote(solo, 2, end=9, last_epoch=1, pre_vote=False)
    solo.step(DiskHasRoom())
    assert asks_for_vote(solo, 2, end=9, last_epoch=1, pre_vote=True) and solo.core.disk_trust == FULL


def test_a_full_disk_elects_no_leader_that_could_not_commit() -> None:
    """With one voter down and one full, nothing can be committed. An elected leader would resign, and be elected again."""
    cluster = Cluster(3).boot_all()
    leader = cluster.elect()
    full, other = (node for node in cluster.nodes.values() if node is not leader)
    cluster.crash(leader.id)
    full.feed(DiskFilled())
    epoch = leader.election.epoch
    assert not cluster.run(20_000, until=lambda: other.election.epoch > epoch), "elected in vain"
    full.feed(DiskHasRoom())
    assert cluster.elect() in (full, other)


def test_a_damaged_follower_acknowledges_and_looks_for_another_leader_when_its_own_is_silent() -> None:
    """The follower asks for no pre-votes. It asks the other voters for a leader."""
    solo = Solo(epochs=(1,), disk_trust=DAMAGED, election=ElectionState(1, None, None))
    fetch = solo.follow()
    assert fetch.replica == solo.core.me
    solo.good_answer(fetch)
    effects = solo.wait(3_000)
    assert not [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, VoteRequest)]
    assert solo.role() is Role.UNATTACHED


def test_a_leader_that_finds_damage_resigns_and_runs_again_when_it_is_mended() -> None:
    """A leader unable to read its own log cannot serve followers."""
    solo = Solo()
    solo.elect()
    epoch = solo.core.epoch
    effects = solo.step(DamageFound())
    assert [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, EndQuorumEpochRequest)]
    assert solo.role() is Role.RESIGNED
    solo.wait(5_000)
    assert solo.role() is Role.UNATTACHED and solo.core.epoch == epoch + 1
    assert "damaged" in solo.core.describe()
    solo.step(DamageRepaired())
    solo.wait(1_000)
    assert solo.role() is Role.PROSPECTIVE and solo.core.disk_trust == FULL


def test_whoever_is_running_when_damage_is_found_stops_running() -> None:
    """A prospective node returns to its former role; a candidate keeps its vote and waits."""
    solo = Solo()
    solo.wait(600)
    assert solo.role() is Role.PROSPECTIVE
    solo.step(DamageFound())
    assert solo.role() is Role.UNATTACHED
    solo = Solo()
    for effect in solo.wait(600):
        if isinstance(effect, SendRequest) and isinstance(effect.request, VoteRequest):
            solo.respond(effect.destination, effect.request, VoteResponse(ErrorCode.NONE, 0, None, vote_granted=True))
            break
    assert solo.role() is Role.CANDIDATE
    solo.step(DamageFound())
    assert solo.role() is Role.UNATTACHED and solo.core.voted_for == solo.core.me


def test_a_lone_voter_with_a_damaged_log_does_not_lead() -> None:
    """Even without other voters, a node must not serve records it cannot read."""
    solo = Solo(epochs=(1,), voters=1, disk_trust=DAMAGED, election=ElectionState(1, None, 1))
    solo.wait(5_000)
    assert not solo.core.is_leading
    solo.step(DamageRepaired())
    solo.wait(1_000)
    assert solo.core.is_leading


def restoring(*epochs: int, end: int, epoch: int) -> Solo:
    return Solo(epochs=epochs, disk_trust=DiskTrust(lost=Lost(end, epoch)), election=ElectionState(epoch, None, None))


def test_whoever_lost_a_durable_tail_neither_votes_nor_runs_nor_acknowledges() -> None:
    """The node may have helped to commit the lost records. Counted again, the node could undo the commit."""
    solo = restoring(1, 1, end=5, epoch=1)
    assert not asks_for_vote(solo, 1, end=9, last_epoch=1, pre_vote=True)
    assert not asks_for_vote(solo, 2, end=9, last_epoch=1, pre_vote=False)
    solo.wait(5_000)
    assert solo.role() is Role.UNATTACHED
    fetch = solo.follow()
    assert fetch.replica.node_id == 1 and fetch.replica != solo.core.me


def test_a_fetch_as_nobody_moves_no_high_watermark_and_keeps_no_leader_in_office() -> None:
    """The leader counts such a fetch under another key, like an observer's."""
    solo = Solo()
    solo.elect()
    solo.fetch(2)
    committed = solo.core.high_watermark
    solo.append()
    stranger = ReplicaKey(3, b"somebody else..!")

    def fetch_as_nobody() -> None:
        chain, epoch = solo.log.chain, solo.core.epoch
        solo.request(FetchRequest(stranger, epoch, 1, solo.log.end, epoch, chain, 0, 0, 1))

    fetch_as_nobody()
    assert solo.core.high_watermark == committed
    for _ in range(20):
        if solo.core.is_leading:
            fetch_as_nobody()
        solo.wait(100)
    assert not solo.core.is_leading


def test_a_lost_tail_is_made_good_when_all_of_it_is_committed_and_durable_again() -> None:
    """The old length is not enough: an old acknowledgement may still be in flight to a leader which would count it."""
    solo = restoring(1, 1, end=4, epoch=1)
    fetch = sent(solo, solo.follow(), 1, 1, high_watermark=3)
    assert (solo.log.end, fetch.replica) == (4, solo.core.fetch_key) and fetch.replica != solo.core.me
    effects = solo.good_answer(fetch, high_watermark=4)
    assert solo.core.disk_trust == FULL
    assert fetch_in(effects).replica == solo.core.me
    assert asks_for_vote(solo, 2, end=4, last_epoch=1, pre_vote=False)


def test_how_much_was_lost_its_leader_knows_better_than_a_note_that_a_power_cut_has_brought_back() -> None:
    """The limit is the end of the leader's log at its first answer: no leader counted the node beyond.

    Later answers do not matter.
    """
    solo = restoring(1, 1, end=3, epoch=1)
    log = log_of(1, 1, 1, 1, 1, 1, 1)
    fetch = fetch_in(solo.good_answer(solo.follow(), batches=log.read(2, 1 << 20)[:2], high_watermark=4, log_end=6))
    assert solo.log.end == solo.core.high_watermark == 4 > 3
    assert solo.core.disk_trust != FULL and fetch.replica != solo.core.me
    assert not asks_for_vote(solo, 2, end=9, last_epoch=1, pre_vote=True)
    fetch = fetch_in(solo.good_answer(fetch, batches=log.read(4, 1 << 20)[:2], high_watermark=6, log_end=7))
    assert solo.log.end == solo.core.high_watermark == 6
    assert solo.core.disk_trust == FULL and fetch.replica == solo.core.me


def test_it_is_not_made_good_before_it_is_durable() -> None:
    """Records without a flush may be lost a second time."""
    solo = restoring(1, 1, end=3, epoch=1)
    solo.auto_flush = False
    fetch, log = solo.follow(), log_of(1, 1)
    log.append(1)
    solo.good_answer(fetch, batches=log.read(2, 1 << 20), high_watermark=3)
    assert solo.core.high_watermark == 3 and solo.core.disk_trust != FULL
    solo.flush()
    assert solo.core.disk_trust == FULL


def test_a_record_of_a_later_epoch_makes_a_lost_tail_good() -> None:
    """The later leader was elected without this node, so the leader holds all records committed before."""
    solo = restoring(1, 1, end=9, epoch=1)
    fetch = fetch_in(solo.request(BeginQuorumEpochRequest(key(2), solo.core.me, 2)))
    assert solo.core.disk_trust != FULL, "to hear of a later epoch is nothing"
    assert sent(solo, fetch, 2, high_watermark=0).replica == solo.core.me


def test_a_lost_tail_that_is_back_at_the_start_is_made_good_at_once() -> None:
    """The process died after the tail was complete, and before the note was removed."""
    assert restoring(1, 2, end=9, epoch=1).core.disk_trust == FULL


def test_a_witness_says_what_is_on_its_disk() -> None:
    """In any role; without testimony if the place has another epoch, no record, or no durable record."""
    solo = Solo(epochs=(1, 1, 2), election=ElectionState(2, None, None))

    def chain_at(offset: int, epoch: int) -> ChainResponse:
        response = only(Reply, solo.request(ChainRequest(key(3), offset, epoch))).response
        assert isinstance(response, ChainResponse)
        return response

    assert chain_at(2, 1).chain == solo.log.chain_at(2) and chain_at(2, 1).end_offset == 3
    assert chain_at(3, 2).chain == solo.log.chain_at(3)
    assert chain_at(3, 1).chain is None and chain_at(4, 2).chain is None
    assert chain_at(-1, 2).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("seed", range(20))
def test_one_bad_disk_among_faults_costs_nothing_that_was_committed(seed: int) -> None:
    """One disk loses durable tails and reports damage at any time.

    The laws hold, and in the end the node is a normal voter.
    """
    rng = random.Random(seed)
    cluster = Cluster(rng.choice((3, 3, 5)), seed=seed).boot_all()
    bad = cluster[rng.randint(1, len(cluster.nodes))]
    losses = 0
    for _ in range(60):
        turn(cluster, rng)
        if bad.core is None and rng.random() < 0.5 and bad.log.end > bad.log.start.offset:
            bad.lose_tail(rng.randrange(bad.log.start.offset, bad.log.end))
            losses += 1
        elif bad.core is not None and not bad.paused and rng.random() < 0.1:
            bad.feed(rng.choice((DamageFound(), DamageRepaired())))
        cluster.run(rng.choice((1, 10, 100, 700)))
    cluster.heal()
    for node in cluster.nodes.values():
        node.flush_held = False
        cluster.resume(node.id)
        if node.core is None:
            node.boot_up()
        node.want_flush()
    bad.feed(DamageRepaired())
    leader = cluster.elect(20_000)
    cluster.propose(leader.id)
    cluster.run(5_000)
    assert len({node.log.chain for node in cluster.nodes.values()}) == 1
    assert bad.up.disk_trust == FULL
