"""Later log starts, by retention or by the leader: the log forgets at once, and a thread deletes the files."""

from broker_agent.partitions.effects import DeleteLog, DirectoryFailed, Flush, OpenLog, TrimLog, WriteHighWatermarks
from broker_agent.partitions.manager_config import TopicConfig
from broker_agent.partitions.open_fetch import FetchSource
from broker_agent.replica.follower import BatchesRefused
from broker_agent.replica.retention import RetentionConfig
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.partitions.brokers import LOG, WALL_MS, A, Broker, assigned, deleted, place, replicate
from tests.broker_agent.replica.partition_logs import records

SMALL = TopicConfig(LOG._replace(segment_bytes=50_000, retention=RetentionConfig(-1, 80_000, -1)))
KEPT = SMALL._replace(log=SMALL.log._replace(retention=RetentionConfig(-1, -1, -1)))
OTHERS = (OpenLog, DeleteLog, Flush, WriteHighWatermarks)


def leading() -> Broker:
    """Broker 101 leads with four segments of 40 KB, of which the last two are to stay."""
    it = Broker(topic=SMALL)
    it.lead()
    for _ in range(4):
        it.append(sent=records(1, 40_000))
        it.run()
    return it


def segments(it: Broker) -> int:
    return sum(name.endswith(".log") for name in it.disks[A].subdirectory(place().name).names())


def test_retention_waits_for_no_disk_on_the_owners_thread() -> None:
    """An fsync may take a tenth of a second on a busy disk, and a broker has thousands of logs."""
    it = leading()
    it.pass_ms(299_999)
    it.run()
    flushes = it.disks[A].flushes
    it.pass_ms(1)
    assert it.disks[A].flushes == flushes
    answer = it.fetch(0)
    assert answer is not None and answer.answers[0][1].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (it.values(), segments(it)) == ([40_000, 40_000], 4)
    it.run()
    assert segments(it) == 2
    again = Broker(topic=SMALL, disks={A: it.disks[A].kill()})
    again.lead(2)
    assert again.values() == [40_000, 40_000]


def test_a_log_is_deleted_after_its_trim() -> None:
    """Two threads in one directory would meet: one deletes the files that the other one looks for."""
    it = leading()
    it.pass_ms(300_000)
    it.run(kinds=OTHERS)
    it.assign(deleted(assigned(101, 101)))
    assert [type(each) for each in it.work] == [TrimLog]
    it.finish(it.work.pop())
    assert [type(each) for each in it.work] == [DeleteLog]
    it.run()
    assert not it.manager.replicas
    assert not it.disks[A].exists(place().name)


def test_a_trim_without_room_on_the_disk_is_repeated() -> None:
    """The file of the log's start needs a block. Nothing stops, and no second trim comes between."""
    it = leading()
    it.pass_ms(300_000)
    it.disks[A].limit_space(it.disks[A].used_bytes)
    it.run()
    it.pass_ms(600_000)
    it.run(kinds=OTHERS)
    assert segments(it) == 4
    assert not [each for each in it.said if isinstance(each, DirectoryFailed)]
    it.disks[A].limit_space(None)
    it.run()
    it.pass_ms(1_000)
    it.run()
    assert segments(it) == 2
    assert it.replica().job is None


def test_a_failed_trim_stops_the_directory() -> None:
    it = leading()
    it.pass_ms(300_000)
    it.run(kinds=OTHERS)
    it.disks[A].fail_next_flush()
    it.run()
    assert [each.directory for each in it.said if isinstance(each, DirectoryFailed)] == [A]
    assert it.replica().job is None


def test_a_follower_trims_one_start_after_the_other() -> None:
    """The leader's start moves again while a thread of the follower still deletes."""
    leader, follower = Broker(101, topic=KEPT), Broker(102, topic=KEPT)
    leader.lead(isr=(101,))
    follower.assign(assigned(102, 101, isr=(101,)))
    for _ in range(4):
        leader.append(sent=records(1, 40_000))
        leader.run()
    replicate(leader, follower)
    log, copy = leader.replica().log, follower.replica().log
    assert log is not None and copy is not None
    for start in (2, 3):
        log.delete_below(start)
        leader.append()
        leader.run()
        exchange(leader, follower)
        assert [type(each) for each in follower.work] == [TrimLog]
        assert copy.shape.start.offset == 2
    for _ in range(2):
        follower.run()
        exchange(leader, follower)
    assert (copy.shape.start, copy.shape.end) == (log.shape.start, log.shape.end)


def exchange(leader: Broker, follower: Broker) -> None:
    """Some fetches of the follower, whose trims do not end."""
    for _ in range(5):
        follower.run(kinds=OTHERS)
        sent, follower.fetches = follower.fetches, []
        for each in sent:
            fetch = leader.open_fetch(each.request.session, FetchSource(102, 12), max_wait_ms=0)
            answer = None
            while answer is None:
                answer = leader.poll(fetch)
            follower.take(follower.manager.fetch_answered(each, answer, follower.now_ms, WALL_MS))


def test_a_trim_is_begun_once_although_the_log_was_opened_late() -> None:
    """The disk had no room for the log. An assignment opened it before the time to try again came. That time finds a trim."""
    leader, follower = Broker(101, topic=KEPT), Broker(102, topic=KEPT)
    leader.lead(isr=(101,))
    follower.disks[A].limit_space(follower.disks[A].used_bytes)
    follower.assign(assigned(102, 101, isr=(101,)))
    follower.run()
    assert follower.replica().log is None
    follower.disks[A].limit_space(None)
    follower.assign(assigned(102, 101, isr=(101,)))
    for _ in range(4):
        leader.append(sent=records(1, 40_000))
        leader.run()
    replicate(leader, follower)
    log = leader.replica().log
    assert log is not None
    log.delete_below(2)
    leader.append()
    leader.run()
    exchange(leader, follower)
    assert [type(each) for each in follower.work] == [TrimLog]
    follower.pass_ms(1_000)
    assert [type(each) for each in follower.work] == [TrimLog]


def test_a_later_trim_deletes_what_an_earlier_one_has_left() -> None:
    """The disk had no room for the first trim, and nobody repeats it: the replica has stopped, and leads again later."""
    it = leading()
    it.pass_ms(300_000)
    it.run(kinds=OTHERS)
    it.disks[A].limit_space(it.disks[A].used_bytes)
    it.manager._failures.stop_replica(it.replica(), BatchesRefused("a batch that does not fit"))
    it.run()
    it.disks[A].limit_space(None)
    it.lead(2)
    for _ in range(3):
        it.append(sent=records(1, 40_000))
        it.run()
    it.pass_ms(300_000)
    it.run()
    assert (it.values(), segments(it)) == ([40_000, 40_000], 2)
