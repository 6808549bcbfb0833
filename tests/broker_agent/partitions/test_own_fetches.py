"""The fetchers of a broker: requests for many partitions, back-off, late answers, and the work on the logs."""

from broker_agent.partitions.effects import Flush, OpenLog, SendFetch, WriteHighWatermarks
from broker_agent.partitions.open_fetch import FetchSource
from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.high_watermarks import read_high_watermarks
from broker_agent.replica.isr import IsrAnswer
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.partitions.brokers import WALL_MS, A, Broker, assigned, place, replicate
from tests.broker_agent.partitions.test_disk_errors import TWO, pair


def answer_of(source: Broker, sent: SendFetch) -> SessionAnswer:
    fetch = source.open_fetch(sent.request.session, FetchSource(102, 12), max_wait_ms=0)
    while (answer := source.poll(fetch)) is None:
        pass
    return answer


def named(sent: SendFetch) -> list[int]:
    return [at[1] for at, _ in sent.request.session.fetches]


def test_the_partitions_of_one_leader_share_a_request() -> None:
    it = Broker(103)
    for number, leader in enumerate((101, 101, 102)):
        it.assign(assigned(103, leader, at=place(number)))
    it.run()
    first, second = it.fetches
    assert (first.source_id, named(first)) == (101, [0])
    assert (second.source_id, named(second)) == (102, [2])
    it.fetches = []
    it.take(it.manager.fetch_failed(first, 0))
    it.pass_ms(1_000)
    (again,) = it.fetches
    assert named(again) == [0, 1], "orders-1 was opened while the first request was under way"


def test_a_new_leader_moves_the_partition_to_another_fetcher_and_the_empty_one_ends() -> None:
    it = Broker(103)
    it.assign(assigned(103, 101))
    it.run()
    (old,) = it.fetches
    it.assign(assigned(103, 102, 2))
    assert [each.source_id for each in it.fetches] == [101, 102]
    it.take(it.manager.fetch_failed(old, 0))
    it.pass_ms(10_000)
    assert [each.source_id for each in it.fetches] == [101, 102], "nothing more is asked of broker 101"


def test_a_fetcher_without_active_partitions_rests() -> None:
    """The leader has said that its epoch is over: there is nothing to ask before newer metadata."""
    leader, follower = pair()
    leader.lead(2, isr=TWO)
    (sent,) = follower.fetches
    follower.fetches = []
    follower.take(follower.manager.fetch_answered(sent, answer_of(leader, sent), 0, WALL_MS))
    follower.pass_ms(10_000)
    assert follower.fetches == []
    follower.assign(assigned(102, 101, 2, replicas=TWO))
    assert len(follower.fetches) == 1


def test_a_dead_source_is_asked_less_and_less_often() -> None:
    it = Broker(103)
    it.assign(assigned(103, 101))
    it.run()
    asked = 0
    for _ in range(100):
        for sent in it.fetches:
            asked += 1
            it.fetches = []
            it.take(it.manager.fetch_failed(sent, it.now_ms))
        it.pass_ms(100)
    assert 3 <= asked <= 8


def test_a_late_answer_is_not_appended_again() -> None:
    leader, follower = pair()
    leader.append(2)
    (sent,) = follower.fetches
    answer = answer_of(leader, sent)
    for _ in range(2):
        follower.take(follower.manager.fetch_answered(sent, answer, 0, WALL_MS))
    follower.run()
    assert follower.values() == [20, 20]


def test_a_request_waits_for_the_flushes_of_the_last_answer() -> None:
    """A request without orders-1 would wait at the source, and the acknowledgement of orders-1 with it."""
    leader, follower = pair(2)
    for number in range(2):
        leader.append(at=place(number))
    (sent,) = follower.fetches
    follower.fetches = []
    follower.take(follower.manager.fetch_answered(sent, answer_of(leader, sent), 0, WALL_MS))
    first, second = follower.work
    assert isinstance(first, Flush)
    assert isinstance(second, Flush)
    follower.work = []
    follower.finish(first)
    assert follower.fetches == []
    follower.finish(second)
    (acknowledgement,) = follower.fetches
    assert sorted(named(acknowledgement)) == [0, 1]


def test_a_slow_disk_holds_up_the_other_partitions_for_a_moment_only() -> None:
    leader, follower = pair(2)
    for number in range(2):
        leader.append(at=place(number))
    (sent,) = follower.fetches
    follower.fetches = []
    follower.take(follower.manager.fetch_answered(sent, answer_of(leader, sent), 0, WALL_MS))
    follower.finish(follower.work.pop(0))
    follower.pass_ms(199)
    assert follower.fetches == []
    follower.pass_ms(1)
    (acknowledgement,) = follower.fetches
    assert len(named(acknowledgement)) == 1


def test_a_followers_high_watermark_is_never_above_its_disk() -> None:
    leader, follower = Broker(101), Broker(102)
    leader.lead(isr=(101,))
    leader.append(3)
    leader.run()
    follower.assign(assigned(102, 101))
    follower.run(kinds=(type(follower.work[0]),))
    (sent,) = follower.fetches
    follower.fetches = []
    follower.take(follower.manager.fetch_answered(sent, answer_of(leader, sent), 0, WALL_MS))
    role = follower.replica().follower
    assert role is not None
    assert (role.shape.flushed_end, role.high_watermark, role.lag) == (0, 0, 3)
    follower.run()
    assert (role.shape.flushed_end, role.high_watermark, role.lag) == (3, 3, 0)


def test_an_error_of_one_partition_leaves_the_others_in_the_request() -> None:
    leader, follower = pair(2)
    leader.assign(assigned(101, 103, 2, at=place(0)))
    leader.append(at=place(1))
    leader.run()
    replicate(leader, follower)
    assert follower.values(place(1)) == [20]


def test_an_unclean_leader_makes_a_follower_truncate_below_its_high_watermark() -> None:
    """The file of high watermarks has the lower one before records are dropped."""
    leader, follower = pair()
    leader.append(4)
    leader.run()
    replicate(leader, follower)
    leader.append(1)
    leader.run()
    replicate(leader, follower)
    follower.pass_ms(5_000)
    follower.run()
    assert read_high_watermarks(follower.disks[follower.replica().directory_id]) == {place(): 5}

    unclean = Broker(103)
    unclean.lead(9, isr=(103,))
    unclean.append(2)
    unclean.run()
    follower.assign(assigned(102, 103, 9, isr=(103,)))
    for _ in range(10):
        sent = [each for each in follower.fetches if each.source_id == 103]
        follower.fetches = []
        for each in sent:
            follower.take(follower.manager.fetch_answered(each, answer_of(unclean, each), follower.now_ms, WALL_MS))
        writes = [each for each in follower.work if isinstance(each, WriteHighWatermarks)]
        for write in writes:
            assert write.high_watermarks == {place(): 0}
            assert len(follower.values()) == 5, "nothing is dropped before the file is written"
        follower.run()
    assert follower.values() == [20, 20]
    assert read_high_watermarks(follower.disks[follower.replica().directory_id])[place()] <= 2


def test_a_truncation_that_is_decided_again_waits_for_the_file_too() -> None:
    """The next leader epoch drops the first decision. The file of high watermarks still has the 5, and its write is under way."""
    leader, follower = pair()
    leader.append(5)
    leader.run()
    for _ in range(2):
        replicate(leader, follower)
    follower.pass_ms(5_000)
    follower.run()
    files = follower.disks[follower.replica().directory_id]
    assert read_high_watermarks(files) == {place(): 5}

    unclean = Broker(103)
    for epoch in (9, 10):
        unclean.lead(epoch, isr=(103,))
        unclean.append(2)
        unclean.run()
        follower.assign(assigned(102, 103, epoch, isr=(103,)))
        for _ in range(3):
            follower.run(kinds=(OpenLog, Flush))
            sent = [each for each in follower.fetches if each.source_id == 103]
            follower.fetches = []
            for each in sent:
                follower.take(follower.manager.fetch_answered(each, answer_of(unclean, each), follower.now_ms, WALL_MS))
            assert len(follower.values()) == 5, "nothing is dropped before the file is written"
        assert [type(each) for each in follower.work] == [WriteHighWatermarks]
    for _ in range(5):
        follower.run()
        sent = [each for each in follower.fetches if each.source_id == 103]
        follower.fetches = []
        for each in sent:
            follower.take(follower.manager.fetch_answered(each, answer_of(unclean, each), follower.now_ms, WALL_MS))
    assert len(follower.values()) == 4
    assert read_high_watermarks(files)[place()] <= 4


def test_a_follower_without_the_first_records_begins_at_the_leaders_log_start() -> None:
    leader, follower = Broker(101), Broker(102)
    leader.lead(isr=(101,))
    for _ in range(4):
        leader.append(2)
        leader.run()
    log = leader.replica().log
    assert log is not None
    log.delete_below(4)
    leader.assign(assigned(101, 101, 2, isr=(101,)))
    follower.assign(assigned(102, 101, 2, isr=(101,)))
    replicate(leader, follower)
    copy = follower.replica().log
    assert copy is not None
    assert (copy.shape.start.offset, copy.shape.end) == (4, 8)


def test_a_silent_follower_leaves_the_isr_and_returns_at_once_when_caught_up() -> None:
    """Three brokers. The high watermark is the least end of the ISR."""
    leader, second, silent = Broker(101), Broker(102), Broker(103)
    for each in (leader, second, silent):
        each.assign(assigned(each.broker_id, 101, 5))
    leader.run()
    for each in (second, silent):
        replicate(leader, each)
    token = leader.append()
    leader.run()
    replicate(leader, second)
    assert leader.code(token) is None
    leader.pass_ms(29_000)
    replicate(leader, second)
    leader.pass_ms(16_000)
    (proposal,) = leader.proposals
    assert proposal.proposal.members == (101, 102)
    leader.proposals = []
    leader.assign(assigned(101, 101, 5, version=6, isr=(101, 102)))
    assert leader.replica().leader is not None
    assert leader.code(token) in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    replicate(leader, silent)
    (proposal,) = leader.proposals
    assert proposal.proposal.members == (101, 102, 103)


def test_a_follower_that_may_join_joins_when_its_broker_is_unfenced_without_another_fetch() -> None:
    """An idle partition is not named in a session's requests."""
    leader, follower = Broker(101), Broker(102)
    leader.lead(5, isr=(101,))
    leader.take(leader.manager.brokers_changed({101: 11}, 0))
    leader.pass_ms(1)
    follower.assign(assigned(102, 101, 5, isr=(101,)))
    replicate(leader, follower)
    assert leader.proposals == []
    leader.take(leader.manager.brokers_changed({101: 11, 102: 12}, 0))
    leader.pass_ms(1)
    (proposal,) = leader.proposals
    assert proposal.proposal.members == (101, 102)


def test_a_member_that_was_not_eligible_is_proposed_again_a_second_later() -> None:
    """The refusal arrives after the news that the broker is unfenced again. The follower of an idle partition says no more."""
    leader, follower = Broker(101), Broker(102)
    leader.lead(5, isr=(101,))
    follower.assign(assigned(102, 101, 5, isr=(101,)))
    replicate(leader, follower)
    (proposal,) = leader.proposals
    leader.answered(IsrAnswer(ErrorCode.INELIGIBLE_REPLICA))
    assert leader.proposals == []
    leader.pass_ms(1_000)
    (again,) = leader.proposals
    assert again.proposal.members == proposal.proposal.members == (101, 102)


def test_logs_are_kept_in_the_directory_of_their_replica() -> None:
    _, follower = pair()
    assert follower.replica().directory_id == A
