"""Replication between managers: pauses, late answers, the high watermark, and a member that lags."""

from broker_agent.partitions.effects import SendFetch
from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.follower import PartitionAnswer
from broker_agent.replica.isr import IsrAnswer
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.partitions.brokers import WALL_MS, Broker, assigned, place, replicate


def following(*leaders: int) -> Broker:
    """Broker 102, which follows in partition n the n-th of `leaders`."""
    it = Broker(102)
    it.assign(*[assigned(102, leader, at=place(number)) for number, leader in enumerate(leaders)])
    it.run()
    return it


def answer(it: Broker, sent: SendFetch, **answers: PartitionAnswer) -> None:
    """Answer a request in flight; `p1=...` for partition 1, and nothing new for the others."""
    asked = sent.fetcher.session.partitions
    told = tuple((each, answers.get(f"p{each[1]}", PartitionAnswer())) for each in asked)
    it.fetches.remove(sent)
    answered = SessionAnswer(session_id=sent.request.session.session_id, answers=told)
    it.take(it.manager.fetch_answered(sent, answered, it.now_ms, WALL_MS))


def of(it: Broker, source_id: int) -> SendFetch:
    (sent,) = [each for each in it.fetches if each.source_id == source_id]
    return sent


def leading(isr: tuple[int, ...] = (101, 102, 103)) -> Broker:
    """Broker 101, which leads with this ISR."""
    it = Broker(101)
    it.lead(isr=isr)
    return it


def test_a_fetcher_whose_source_refuses_does_not_ask_in_a_busy_loop() -> None:
    """`replica.fetch.backoff.ms` is 1 s, with jitter: at most 20 requests in 10 s, and never none."""
    it = following(101)
    asked = 0
    while it.now_ms < 10_000:
        for sent in list(it.fetches):
            asked += 1
            answer(it, sent, p0=PartitionAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        it.pass_ms(50)
    assert 8 <= asked <= 21


def test_a_recovered_history_may_have_an_earlier_leader_epoch() -> None:
    """`quorum recover` lost the election of epoch 7: broker 102 follows a leader of epoch 6, and then another one."""
    it = following(101)
    it.assign(assigned(102, 101, 7))
    for leader in (103, 101):
        it.assign(assigned(102, leader, 6))
        follower = it.replica().follower
        assert follower is not None
        assert (follower.leader_id, follower.leader_epoch) == (leader, 6)
    assert of(it, 103).request.session.fetches[0][1].leader_epoch == 6


def test_one_truncation_ends_a_slice() -> None:
    """Each waits for the disk; a broker that truncates hundreds of logs in one turn would lose its lease meanwhile."""
    source, it = Broker(101), following(101, 101, 101)
    for number in range(3):
        source.lead(at=place(number), isr=(101, 102, 103))  # 103 is silent, so nothing is committed
        for _ in range(2):
            source.append(at=place(number))
    source.run()
    replicate(source, it)
    parted = PartitionAnswer(diverged=OffsetAndEpoch(1, 1))
    answer(it, of(it, 101), p0=parted, p1=parted, p2=parted)

    ends = []
    for _ in range(3):
        ends.append(sorted(it.replica(place(number)).log.shape.end for number in range(3)))  # type: ignore[union-attr]
        it.take(it.manager.tick(it.now_ms, WALL_MS))
    assert ends == [[1, 2, 2], [1, 1, 2], [1, 1, 1]]


def test_a_late_answer_of_an_earlier_leader_epoch_has_no_effect() -> None:
    """The request is in flight when broker 101 is elected again. Its answer may have records that the new epoch has not."""
    source, it = leading(), following(101)
    source.append(3)
    batches = source.replica().log.read(0, 1 << 20, 3)  # type: ignore[union-attr]
    sent = of(it, 101)
    it.assign(assigned(102, 101, 2))
    answer(it, sent, p0=PartitionAnswer(high_watermark=3, batches=batches))
    it.run()
    assert it.values() == []
    assert dict(of(it, 101).request.session.fetches)[place()].leader_epoch == 2


def test_the_high_watermark_is_the_least_end_of_the_isr() -> None:
    """Broker 102 has everything, broker 103 nothing. A write with acks=all waits for 103."""
    source, second, third = leading(), following(101), Broker(103)
    third.assign(assigned(103, 101))
    third.run()
    token = source.append(2)
    source.run()
    replicate(source, second)
    leader = source.replica().leader
    assert leader is not None and leader.high_watermark == 0 and source.code(token) is None
    replicate(source, third)
    assert leader.high_watermark == 2 and source.code(token) is ErrorCode.NONE


def test_a_member_that_lags_leaves_the_isr_and_returns_when_it_has_caught_up() -> None:
    """1. Broker 103 is silent. Within one and a half of `replica.lag.time.max.ms` (30 s) the leader proposes the ISR 101, 102.
    2. Until the controllers have granted that, the high watermark waits for 103.  3. Broker 103 fetches, and has everything: the
    leader proposes it again at once."""
    source, second = leading(), following(101)
    replicate(source, second)
    token = source.append(2, deadline_ms=10**9)
    source.run()
    while not source.proposals and source.now_ms < 60_000:
        replicate(source, second)
        source.pass_ms(500)
        second.pass_ms(500)
    assert 30_000 <= source.now_ms <= 45_500
    (sent,) = source.proposals
    assert sent.proposal.members == (101, 102)
    assert source.code(token) is None
    source.answered(IsrAnswer(ErrorCode.NONE, 1, 2, (101, 102)))
    assert source.code(token) is ErrorCode.NONE

    third = Broker(103)
    third.assign(assigned(103, 101))
    third.run()
    replicate(source, third)
    (sent,) = source.proposals
    assert sent.proposal.members == (101, 102, 103)
