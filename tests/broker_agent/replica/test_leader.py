"""The leader of one partition: high watermark, growth and shrinking of the ISR, the controller's answers, and writes that wait.

Broker 1 leads epoch 5 with the replicas 1,2,3. The followers run with the broker epochs 12 and 13.
"""

import pytest

from broker_agent.replica.divergence import Diverged, Refused, Valid
from broker_agent.replica.isr import NO_ANSWER, IsrAnswer, PartitionMetadata, ProposeIsr
from broker_agent.replica.leader import (
    FollowerMoved,
    LeaderConfig,
    LeaderEffect,
    LeaderHighWatermarkMoved,
    PartitionLeader,
    ReplicaFetch,
)
from broker_agent.replica.purgatory import Acks, ProduceDone
from broker_agent.session.isr_proposals import IsrMember
from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.replica.logs import run

LAG_MS = 30_000


class Leadership:
    """A leader whose log grows by `write`, and the effects of the last call."""

    def __init__(self, isr: tuple[int, ...], *, min_isr: int = 1, epochs: tuple[int, ...] = (), known: int = 0) -> None:
        self.epochs = list(epochs)
        self.now_ms = 0
        self.token = 0
        self.partition_epoch = 9
        self.candidates = {1: 11, 2: 12, 3: 13}
        metadata = PartitionMetadata(1, 5, self.partition_epoch, (1, 2, 3), isr)
        config = LeaderConfig(LAG_MS, min_isr)
        self.leader = PartitionLeader(1, 11, metadata, run(*epochs), known, config, self.candidates, 0)
        self.effects: list[LeaderEffect] = []

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    def at(self, now_ms: int) -> "Leadership":
        self.now_ms = now_ms
        return self

    def write(
        self, count: int = 1, *, acks: Acks = Acks.ALL, flush: bool = True, wait_ms: int = 10_000, end: int = 0
    ) -> int:
        """The leader appends a write of some records; `end` is that of a repeated write. Returns the write's token."""
        self.token += 1
        flushed = len(self.epochs)
        self.epochs += [5] * count
        shape = run(*self.epochs, flushed=flushed)
        deadline_ms = self.now_ms + wait_ms
        self.effects = self.leader.appended(shape, end or shape.end, self.token, acks, deadline_ms, self.now_ms)
        if flush:
            self.effects += self.leader.log_changed(run(*self.epochs), self.now_ms)
        return self.token

    def fetch(self, broker_id: int, offset: int, *, broker_epoch: int | None = None, epoch: int = 5) -> object:
        last = self.epochs[offset - 1] if 0 < offset <= len(self.epochs) else 0
        fetch = ReplicaFetch(broker_id, broker_epoch or 10 + broker_id, epoch, offset, last)
        verdict, self.effects = self.leader.fetched(fetch, self.now_ms)
        return verdict

    def tick(self, now_ms: int) -> "Leadership":
        self.effects = self.at(now_ms).leader.tick(now_ms)
        return self

    def answer(self, code: E = E.NONE, isr: tuple[int, ...] | None = None) -> None:
        """The controller answers the proposal in flight; NONE grants it."""
        proposal = self.leader.isr.proposal
        assert proposal is not None
        answer = IsrAnswer(code)
        if code is E.NONE:
            self.partition_epoch += 1
            answer = IsrAnswer(code, 5, self.partition_epoch, proposal.members if isr is None else isr)
        self.effects = self.leader.answered(proposal, answer, self.now_ms)

    def learn(self, isr: tuple[int, ...], *, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        """Newer metadata of the same leader epoch arrives."""
        self.partition_epoch += 1
        metadata = PartitionMetadata(1, 5, self.partition_epoch, replicas, isr)
        self.effects = self.leader.metadata(metadata, self.now_ms)

    @property
    def proposed(self) -> list[tuple[int, ...]]:
        return [each.members for each in self.effects if isinstance(each, ProposeIsr)]

    @property
    def done(self) -> list[tuple[int, E]]:
        return [(each.token, each.code) for each in self.effects if isinstance(each, ProduceDone)]


# --- the high watermark ----------------------------------------------------------------------------------------------


def test_the_high_watermark_is_the_least_durable_end_of_the_isr() -> None:
    """A member of the ISR that has not fetched yet holds the high watermark; a replica outside does not."""
    it = Leadership((1, 2))
    it.write(4)
    assert it.high_watermark == 0
    it.fetch(2, 3)
    assert it.effects == [FollowerMoved(2, 3), LeaderHighWatermarkMoved(3)]
    it.fetch(2, 4)
    assert it.high_watermark == 4


def test_the_leaders_own_end_counts_only_after_its_flush() -> None:
    """Follower 2 has the record on its disk before the leader has: the high watermark waits for the leader's disk."""
    it = Leadership((1, 2))
    it.write(1, flush=False)
    it.fetch(2, 1)
    assert it.high_watermark == 0
    it.effects = it.leader.log_changed(run(5), 0)
    assert it.high_watermark == 1


def test_a_leader_that_is_alone_commits_by_its_own_flush() -> None:
    """The ISR is the leader: also a new leader commits at once what its disk has."""
    it = Leadership((1,), epochs=(4, 4))
    assert it.high_watermark == 2
    it.write(1)
    assert it.high_watermark == 3


def test_a_proposed_member_counts_before_the_controller_has_answered() -> None:
    """The maximal ISR: the controller may have committed the proposal, and may elect the new member."""
    it = Leadership((1, 2), epochs=(4,), known=1)
    it.fetch(2, 1)
    it.fetch(3, 1)
    assert it.proposed == [(1, 2, 3)]
    it.at(LAG_MS * 2).write(1)
    it.fetch(2, 2)
    assert it.high_watermark == 1
    it.fetch(3, 2)
    assert it.high_watermark == 2


def test_a_member_counts_until_the_controller_has_removed_it() -> None:
    """The removal of 2 is proposed, and the high watermark moves only with the answer."""
    it = Leadership((1, 2))
    it.write(1, wait_ms=LAG_MS * 2)
    it.tick(LAG_MS + 1)
    assert (it.proposed, it.high_watermark) == ([(1,)], 0)
    it.answer()
    assert it.effects == [LeaderHighWatermarkMoved(1), ProduceDone(1, E.NONE)]


def test_the_high_watermark_stands_still_below_min_isr() -> None:
    """KIP-966: a high watermark of one replica would acknowledge what min.insync.replicas=2 promises to keep twice."""
    it = Leadership((1, 2), min_isr=2)
    it.write(1)
    it.tick(LAG_MS + 1)
    it.answer()
    assert it.high_watermark == 0
    it.fetch(2, 1)
    assert it.proposed == [(1, 2)]
    assert it.high_watermark == 0
    it.answer()
    assert it.high_watermark == 1


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    """A topic with three replicas and min.insync.replicas=5 commits with three."""
    it = Leadership((1, 2, 3), min_isr=5)
    it.write(1)
    it.fetch(2, 1)
    it.fetch(3, 1)
    assert it.high_watermark == 1


def test_a_lower_min_isr_lets_the_high_watermark_move() -> None:
    """An operator lowers min.insync.replicas: the leader commits at once what waited."""
    it = Leadership((1,), min_isr=2)
    it.write(1, acks=Acks.LEADER)
    assert it.high_watermark == 0
    assert it.leader.configured(LeaderConfig(LAG_MS, 1), 0) == [LeaderHighWatermarkMoved(1)]


def test_a_caught_up_follower_holds_the_high_watermark_so_that_it_can_join() -> None:
    """Replica 3 reads all records, outside of the ISR. Under steady load it would else always be below the high watermark."""
    it = Leadership((1, 2), epochs=(4,), known=1)
    it.leader.isr.propose(frozenset({1, 2}), {})  # a proposal in flight keeps 3 from being proposed
    it.fetch(2, 1)
    it.fetch(3, 1)
    it.write(1)
    it.fetch(2, 2)
    assert it.high_watermark == 1
    it.tick(LAG_MS + 1)
    assert it.high_watermark == 2, "a follower that fell back holds nothing"


def test_a_new_process_with_an_empty_disk_takes_no_high_watermark_back() -> None:
    """Follower 2 returns under another broker epoch, and begins at 0."""
    it = Leadership((1, 2))
    it.write(2)
    it.fetch(2, 2)
    it.fetch(2, 0, broker_epoch=20)
    assert it.high_watermark == 2
    assert it.leader.followers[2].end == 0


# --- growth ----------------------------------------------------------------------------------------------------------


def test_a_follower_joins_at_its_first_fetch_at_the_high_watermark() -> None:
    """Growth is proposed at once, in the order of the assignment, with the broker epochs of the fetches."""
    it = Leadership((1,), epochs=(4, 4))
    it.fetch(2, 1)
    assert it.proposed == []
    it.fetch(2, 2)
    assert it.effects == [FollowerMoved(2, 2), ProposeIsr(5, 9, (IsrMember(1, 11), IsrMember(2, 12)))]


def test_a_follower_below_the_epochs_start_does_not_join() -> None:
    """The new leader 1 knows the high watermark 1 only, but the old leader may have committed all three records."""
    it = Leadership((1, 2), epochs=(4, 4, 4), known=1)
    it.fetch(3, 2)
    assert (it.high_watermark, it.proposed) == (1, [])
    it.fetch(3, 3)
    assert it.proposed == [(1, 2, 3)]


def test_one_proposal_is_in_flight_at_a_time() -> None:
    """Replica 3 waits until the controller has answered about 2, and joins at its next fetch."""
    it = Leadership((1,), epochs=(4,))
    it.fetch(2, 1)
    it.fetch(3, 1)
    assert it.proposed == []
    it.answer()
    it.fetch(3, 1)
    assert it.proposed == [(1, 2, 3)]


@pytest.mark.parametrize(
    "candidates",
    [
        pytest.param({1: 11}, id="fenced or stopping (KIP-841)"),
        pytest.param({1: 11, 2: 99}, id="another process has registered (KIP-903)"),
    ],
)
def test_only_the_present_process_of_an_active_broker_joins(candidates: dict[int, int]) -> None:
    """The controller would refuse the proposal, and an earlier process may have had another disk."""
    it = Leadership((1,), epochs=(4,))
    it.leader.brokers_changed(candidates, 0)
    it.fetch(2, 1)
    assert it.proposed == []
    it.leader.brokers_changed({1: 11, 2: 12}, 0)
    it.fetch(2, 1)
    assert it.proposed == [(1, 2)]


# --- shrinking -------------------------------------------------------------------------------------------------------


def test_a_silent_member_leaves_after_the_lag_time() -> None:
    """Follower 2 never fetches. A member has the full time after an election."""
    it = Leadership((1, 2, 3))
    it.write(1)
    it.at(20_000).fetch(3, 1)
    assert it.tick(LAG_MS).proposed == []
    assert it.tick(LAG_MS + 1).proposed == [(1, 3)]


def test_a_member_at_the_end_of_the_log_never_lags() -> None:
    """Nothing is written, and follower 2 is silent: it has all records, and stays."""
    it = Leadership((1, 2))
    it.write(1)
    it.fetch(2, 1)
    assert it.tick(10 * LAG_MS).proposed == []


def test_a_member_that_is_always_one_fetch_behind_is_caught_up() -> None:
    """Each fetch reaches the end that the leader's log had at the fetch before."""
    it = Leadership((1, 2))
    end = 0
    for second in range(100):
        it.at(second * 1_000).write(2)
        it.fetch(2, end)
        end += 2
        assert it.tick(second * 1_000).proposed == []


def test_a_member_that_fetches_often_but_too_little_leaves() -> None:
    """Follower 2 falls back by one record each second. Fetching alone does not keep a member in the ISR."""
    it = Leadership((1, 2))
    left = []
    for second in range(60):
        it.at(second * 1_000).write(2)
        it.fetch(2, second)
        left += [second] * len(it.tick(second * 1_000).proposed)
    assert left == [31]


def test_the_removal_is_proposed_within_one_and_a_half_of_the_lag_time() -> None:
    """The broker ticks every half of the time; the worst moment for the follower's death is just after a tick."""
    it = Leadership((1, 2))
    it.at(1).write(1)
    it.fetch(2, 1)
    it.at(2).write(1)
    at_ms = next(tick for tick in range(LAG_MS // 2, 10 * LAG_MS, LAG_MS // 2) if it.tick(tick).proposed)
    assert at_ms <= 2 + LAG_MS * 3 // 2


# --- the controller's answers ----------------------------------------------------------------------------------------


def grown() -> Leadership:
    """A leader whose proposal 1,2 is in flight; record 0 is committed, record 1 is on the disks of 1 only."""
    it = Leadership((1,), epochs=(4,), known=1)
    it.fetch(2, 1)
    assert it.proposed == [(1, 2)]
    it.at(LAG_MS * 2).write(1)
    assert it.high_watermark == 1
    return it


def test_a_granted_proposal_is_the_committed_isr() -> None:
    """The next proposal names the new partition epoch."""
    it = grown()
    it.answer()
    assert it.leader.isr.committed == it.leader.isr.maximal == {1, 2}
    assert it.high_watermark == 1
    assert it.tick(LAG_MS * 9).proposed == [(1,)]
    assert it.leader.isr.proposal is not None
    assert it.leader.isr.proposal.partition_epoch == 10


def test_an_ineligible_replica_is_dropped_from_the_maximal_isr() -> None:
    """The controller has written nothing: the committed ISR alone decides again."""
    it = grown()
    it.answer(E.INELIGIBLE_REPLICA)
    assert (it.high_watermark, it.leader.isr.proposal) == (2, None)


@pytest.mark.parametrize(
    "code",
    [
        E.FENCED_LEADER_EPOCH,
        E.INVALID_UPDATE_VERSION,
        E.NEW_LEADER_ELECTED,
        E.INVALID_REQUEST,
        E.UNKNOWN_TOPIC_ID,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_leader_that_is_behind_waits_for_metadata(code: E) -> None:
    """The controller has another state: nothing is sent again, the proposed member counts until the metadata says more."""
    it = grown()
    it.answer(code)
    assert it.tick(LAG_MS * 3).proposed == []
    assert it.high_watermark == 1
    it.learn((1,))
    assert it.high_watermark == 2


@pytest.mark.parametrize("code", [E.REQUEST_TIMED_OUT, E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH, E.UNKNOWN_SERVER_ERROR])
def test_a_proposal_of_unknown_outcome_is_sent_again(code: E) -> None:
    """The same proposal, after a pause: the controller may have written it already, and grants it again."""
    it = grown()
    before = it.leader.isr.proposal
    it.answer(code)
    assert (it.high_watermark, it.leader.next_deadline_ms()) == (1, LAG_MS * 2 + 50)
    assert it.tick(LAG_MS * 2 + 49).proposed == []
    assert it.tick(LAG_MS * 2 + 50).effects == [before]
    assert it.tick(LAG_MS * 2 + 60).effects == [], "one request at a time"


def test_a_late_answer_counts_for_nothing() -> None:
    """Metadata has ended the proposal before its answer arrives."""
    it = grown()
    proposal = it.leader.isr.proposal
    assert proposal is not None
    it.learn((1, 2))
    assert it.leader.answered(proposal, IsrAnswer(E.INELIGIBLE_REPLICA), 0) == []
    assert it.leader.answered(proposal, NO_ANSWER, 0) == []
    assert it.leader.isr.maximal == {1, 2}
    assert it.leader.isr.retry_at_ms is None


def test_an_answer_of_another_leader_epoch_counts_for_nothing() -> None:
    """The controller's state is of leader epoch 6: this leadership is over, and its metadata is on the way."""
    it = grown()
    proposal = it.leader.isr.proposal
    assert proposal is not None
    assert it.leader.answered(proposal, IsrAnswer(E.NONE, 6, 11, (1,)), 0) == []
    assert it.high_watermark == 1


def test_older_metadata_counts_for_nothing() -> None:
    """The answer was faster than the metadata of the same change, or of an earlier one."""
    it = grown()
    it.answer()
    it.partition_epoch = 8
    it.learn((1,))
    assert it.leader.isr.committed == {1, 2}


def test_a_replica_of_a_reassignment_is_a_follower_at_once() -> None:
    """Broker 4 is added to the assignment, and 3 removed."""
    it = Leadership((1, 2), epochs=(4,), known=1)
    assert it.fetch(4, 1) == Refused(E.UNKNOWN_LEADER_EPOCH)
    it.learn((1, 2), replicas=(1, 2, 4))
    it.leader.brokers_changed({1: 11, 2: 12, 4: 14}, 0)
    assert it.fetch(4, 1) == Valid()
    assert it.proposed == [(1, 2, 4)]
    assert it.fetch(3, 1) == Refused(E.UNKNOWN_LEADER_EPOCH)


# --- the judgement of fetches ----------------------------------------------------------------------------------------


def test_a_fetch_of_another_leader_epoch_is_no_acknowledgement() -> None:
    """A lower epoch is fenced. A higher epoch means that this broker's metadata is old (KIP-320)."""
    it = Leadership((1, 2))
    it.write(1)
    assert it.fetch(2, 1, epoch=4) == Refused(E.FENCED_LEADER_EPOCH)
    assert it.fetch(2, 1, epoch=6) == Refused(E.UNKNOWN_LEADER_EPOCH)
    assert it.high_watermark == 0


def test_a_late_fetch_of_an_earlier_process_is_no_acknowledgement() -> None:
    """Broker 2 has restarted with an empty disk; a request of its earlier process is still on the way (KIP-903)."""
    it = Leadership((1, 2))
    it.write(1)
    it.fetch(2, 0, broker_epoch=20)
    assert it.fetch(2, 1, broker_epoch=12) == Refused(E.NOT_LEADER_OR_FOLLOWER)
    assert it.high_watermark == 0


def test_a_fetch_of_a_diverged_log_is_no_acknowledgement() -> None:
    """Follower 2 has a record of epoch 3 at offset 1, which the leader has not."""
    it = Leadership((1, 2), epochs=(1, 4, 4))
    verdict, effects = it.leader.fetched(ReplicaFetch(2, 12, 5, 2, 3), 0)
    assert (verdict, effects) == (Diverged(OffsetAndEpoch(1, 1)), [])
    assert it.leader.followers[2].end is None


# --- writes ----------------------------------------------------------------------------------------------------------


def test_a_write_with_all_acks_is_refused_below_min_isr() -> None:
    """Nothing is appended. Other acks do not ask for the ISR."""
    it = Leadership((1,), min_isr=2)
    assert it.leader.refusal_of_write(Acks.ALL) is E.NOT_ENOUGH_REPLICAS
    assert it.leader.refusal_of_write(Acks.LEADER) is E.NONE
    it.learn((1, 2))
    assert it.leader.refusal_of_write(Acks.ALL) is E.NONE


def test_writes_are_done_in_the_order_of_the_log() -> None:
    """acks=1 waits for the leader's disk, acks=all for the high watermark, acks=0 for nothing."""
    it = Leadership((1, 2))
    it.write(1, acks=Acks.NONE)
    assert it.done == []
    it.write(1, acks=Acks.LEADER, flush=False)
    assert it.done == []
    first, second = it.write(2), it.write(1)
    assert it.done == []
    it.fetch(2, 3)
    assert it.done == []
    it.fetch(2, 4)
    assert it.done == [(first, E.NONE)]
    it.fetch(2, 5)
    assert it.done == [(second, E.NONE)]


def test_a_repeated_write_waits_for_its_old_offsets() -> None:
    """The producer did not get the first answer. The records may be committed already, or may still wait."""
    it = Leadership((1, 2))
    it.write(2)
    it.write(2)
    it.fetch(2, 2)
    old = it.write(0, end=2)
    assert it.done == [(old, E.NONE)]
    waiting = it.write(0, end=4)
    later = it.write(1)
    assert it.done == []
    it.fetch(2, 5)
    assert it.done == [(2, E.NONE), (waiting, E.NONE), (later, E.NONE)]
    done = it.write(0, end=4, acks=Acks.LEADER)
    assert it.done == [(done, E.NONE)]


def test_a_write_with_one_ack_is_done_with_the_leaders_flush() -> None:
    """Disk before speech: the leader has appended the record, and answers after its flush."""
    it = Leadership((1, 2))
    token = it.write(1, acks=Acks.LEADER, flush=False)
    assert it.done == []
    assert it.leader.log_changed(run(5), 0) == [ProduceDone(token, E.NONE)]


def test_a_write_that_waits_too_long_says_why() -> None:
    """The ISR fell below its minimum after the append, or a member is slow."""
    it = Leadership((1, 2), min_isr=2)
    slow = it.write(1, wait_ms=1_000)
    assert it.leader.next_deadline_ms() == 1_000
    assert it.tick(1_000).done == [(slow, E.REQUEST_TIMED_OUT)]
    late = it.write(1, wait_ms=1_000)
    it.learn((1,))
    assert it.tick(2_000).done == [(late, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert it.leader.next_deadline_ms() is None


def test_a_leader_that_resigns_answers_all_writes() -> None:
    """The next leader may have the records, or may not: the producer asks the next leader."""
    it = Leadership((1, 2))
    first, second = it.write(1, flush=False), it.write(1, acks=Acks.LEADER, flush=False)
    assert it.leader.resign() == [
        ProduceDone(first, E.NOT_LEADER_OR_FOLLOWER),
        ProduceDone(second, E.NOT_LEADER_OR_FOLLOWER),
    ]


def test_a_leader_draws_itself() -> None:
    """One line for logs and tests."""
    it = Leadership((1, 2))
    it.write(1)
    it.fetch(2, 1)
    assert str(it.leader) == (
        "leader 1 epoch 5: log 1 flushed 1 high watermark 1; followers 2:1 3:?; ISR [1, 2] (partition epoch 9)"
    )
