"""What a consumer asks its leaders: one request for each, bounded buffers, fair shares, errors of one partition."""

from itertools import pairwise

import pytest

from clients.consumer import planner
from clients.consumer.config import ConsumerConfig
from clients.consumer.effects import AskEpochs, Fetch, Stale
from clients.consumer.errors import ConsumerError, CorruptRecords, PartitionMissing
from clients.consumer.offset_query import OffsetQuery
from clients.consumer.planner import BEHIND_WAIT_MS
from clients.consumer.positions import Position
from clients.partition_values import CallFailure, EndOfLog, FailureKind
from metadata_log.format.errors import ErrorCode
from tests.clients.consumer.leaders import key
from tests.clients.consumer.world import World


def assigned(partitions: int = 1, **config: object) -> World:
    world = World(partitions, **config)  # type: ignore[arg-type]
    world.core.assign([key(number) for number in range(partitions)])
    return world


def test_one_request_for_each_leader_names_all_its_partitions() -> None:
    world = assigned(6)
    for number, log in enumerate(world.leaders.logs):
        log.leader = 1 + number % 2
        world.leaders.append(str(number), partition=number)
    world.learn()
    world.run(20)
    first = {
        each.node.node_id: sorted(wanted.place.partition for wanted in each.request.partitions)
        for each in world.fetches[:2]
    }
    assert first == {1: [0, 2, 4], 2: [1, 3, 5]}
    assert sorted(record.partition for record in world.core.poll(10)) == [0, 1, 2, 3, 4, 5]


def test_at_most_one_fetch_is_in_flight_to_a_leader() -> None:
    world = assigned(3)
    world.learn()
    for round_ in range(30):
        world.leaders.append(str(round_), partition=round_ % 3)
        world.run(7)
        world.core.poll(2)
        in_flight = [each.sent for each in world.core._in_flight.requests.values()]
        assert sum(isinstance(each, Fetch) for each in in_flight) <= 1


def test_an_idle_consumer_asks_twice_a_second() -> None:
    world = assigned(100)
    world.learn()
    world.run(1_000)
    before = len(world.sent)
    world.run(10_000)
    assert 18 <= len(world.sent) - before <= 20


def test_only_committed_records_are_delivered() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.leaders.append("b", commit=False)
    assert world.values() == ["a"]
    world.leaders.logs[0].high_watermark = 2
    assert world.values() == ["b"]


def test_records_above_the_high_watermark_of_an_answer_are_not_believed() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.leaders.append("b")
    world.run(7)
    fetch = world.fetches[-1]
    answer = world.leaders.fetched(fetch)[0]
    world.core.answered(fetch.number, [answer._replace(high_watermark=1)], world.now_ms)
    assert [record.value for record in world.core.poll(10)] == [b"a"]


# --- buffers ---------------------------------------------------------------------------------------------------------


def test_a_paused_partition_is_not_fetched_and_gives_no_records() -> None:
    world = assigned(2)
    world.learn()
    world.core.pause(key(0), True)
    for number in (0, 1):
        world.leaders.append("a", partition=number)
    assert [record.partition for record in world.read()] == [1]
    assert {wanted.place.partition for each in world.fetches for wanted in each.request.partitions} == {1}
    assert world.core.paused() == {key(0)}
    world.core.pause(key(0), False)
    assert [record.partition for record in world.read()] == [0]


def test_a_pause_keeps_what_is_in_the_buffer() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.run(50)
    world.core.pause(key(), True)
    assert world.core.poll(10) == []
    count = len(world.fetches)
    world.core.pause(key(), False)
    assert len(world.core.poll(10)) == 1
    assert len(world.fetches) == count


def test_a_slow_program_does_not_fill_the_memory() -> None:
    world = assigned(4, max_partition_fetch_bytes=2_000, queued_max_bytes=5_000, fetch_max_bytes=3_000)
    world.learn()
    for _ in range(200):
        for number in range(4):
            world.leaders.append("x" * 100, partition=number)
    world.run(2_000)
    assert 5_000 <= world.core._assignment.queued_bytes <= 5_000 + 3_000
    assert len(world.read()) == 800
    assert world.core._assignment.queued_bytes == 0


def test_a_leader_with_a_full_partition_parks_no_fetch_for_long() -> None:
    """Otherwise the full partition would stand still for half a second after the program has emptied its buffer."""
    world = assigned(2, max_partition_fetch_bytes=1_000)
    world.learn()
    for _ in range(40):
        world.leaders.append("x" * 100)
    world.run(500)
    last = world.fetches[-1].request
    assert [wanted.place.partition for wanted in last.partitions] == [1]
    assert last.max_wait_ms == BEHIND_WAIT_MS
    assert len(world.read(ms=60)) == 40


def test_a_batch_that_is_larger_than_all_limits_is_delivered() -> None:
    world = assigned(max_partition_fetch_bytes=100, fetch_max_bytes=100)
    world.learn()
    world.leaders.append("x" * 5_000)
    world.leaders.append("y")
    assert world.values() == ["x" * 5_000, "y"]


def test_poll_returns_at_most_what_was_asked_for() -> None:
    world = assigned()
    world.learn()
    world.leaders.append(*"abcde")
    world.run(100)
    assert [len(world.core.poll(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_busy_partition_does_not_keep_the_others_from_their_turn() -> None:
    world = assigned(3, fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000)
    for _ in range(300):
        world.leaders.append("x" * 200, partition=0)
    for number in (1, 2):
        world.leaders.append("a", partition=number)
    world.learn()
    world.run(60)
    first = [record.partition for record in world.core.poll(20)]
    assert {1, 2} <= set(first), first


def test_more_partitions_than_a_request_holds_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "REQUEST_PARTITIONS_MAX", 3)
    world = assigned(8)
    world.learn()
    world.run(500)
    for number in range(8):
        world.leaders.append("a", partition=number)
    assert sorted(record.partition for record in world.read(300)) == list(range(8))
    assert max(len(each.request.partitions) for each in world.fetches) == 3


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_partition_with_an_error_pauses_and_stops_no_other(code: ErrorCode) -> None:
    world = assigned(2)
    world.learn()
    world.leaders.refusals[0] = code
    for number in range(40):
        world.leaders.append(str(number), partition=1)
        world.leaders.append(str(number), partition=0)
    assert [record.partition for record in world.read()] == [1] * 40
    assert world.stale[0].code is code
    world.leaders.refusals.clear()
    assert [record.value for record in world.read(3_000)] == [str(number).encode() for number in range(40)]


def test_pauses_double_up_to_a_second_and_have_jitter() -> None:
    world = assigned()
    world.learn()
    world.leaders.refusals[0] = ErrorCode.STORAGE_ERROR
    world.leaders.append("a")
    times: list[int] = []
    while len(times) < 8:
        count = len(world.sent)
        world.run(5)
        times += [world.now_ms] * (len(world.sent) - count)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert 75 <= pauses[0] <= 135
    assert 140 <= pauses[1] <= 260
    assert all(700 <= pause <= 1_020 for pause in pauses[4:])
    assert len(set(pauses[3:])) > 1


def test_a_broken_connection_pauses_the_broker_and_refreshes_the_metadata() -> None:
    world = assigned(2)
    world.knows_news = False
    world.leaders.logs[1].leader = 2
    world.learn()
    world.dead.add(1)
    world.leaders.append("a", partition=1)
    assert [record.partition for record in world.read()] == [1]
    assert world.stale[0] == Stale(ErrorCode.REQUEST_TIMED_OUT, 1)
    assert 2 <= sum(each.node.node_id == 1 for each in world.sent) <= 8
    world.leaders.elect(3)
    world.leaders.append("b")
    world.learn()
    assert [record.value for record in world.read()] == [b"b"]


def test_a_silent_broker_is_given_up_and_its_late_answer_changes_nothing() -> None:
    world = assigned(request_timeout_ms=1_000)
    world.learn()
    world.leaders.append("a")
    world.silent.add(1)
    world.run(1_200)
    late = world.sent[0]
    assert late.number in world.cancelled
    assert Stale(ErrorCode.REQUEST_TIMED_OUT, 1) in world.stale
    world.reply(late)
    world.silent.clear()
    assert world.values(3_000) == ["a"]


def test_a_refusal_with_the_next_leader_needs_no_new_metadata() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    assert world.values() == ["a"]
    world.knows_news = False
    world.leaders.elect(3)
    world.leaders.append("b")
    assert world.values(100) == ["b"]
    assert world.saw[0].epoch == 2
    assert [type(each) for each in world.sent if each.node.node_id == 3][:2] == [AskEpochs, Fetch]


def test_a_hint_that_turns_out_wrong_is_dropped() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    assert world.values() == ["a"]
    world.knows_news = False
    world.leaders.elect(3)
    world.run(600)
    world.dead.add(3)
    world.leaders.elect(2)
    world.leaders.append("b")
    world.learn()
    assert world.values(2_000) == ["b"]


def test_without_a_leader_the_consumer_asks_for_metadata_with_pauses() -> None:
    world = assigned()
    world.knows_news = False
    world.leaders.elect(None)
    world.learn()
    world.run(5_000)
    assert world.sent == []
    assert {each.code for each in world.stale} == {ErrorCode.LEADER_NOT_AVAILABLE}
    assert 5 <= len(world.stale) <= 12
    world.leaders.elect(2)
    world.leaders.append("a")
    world.learn()
    assert world.values() == ["a"]


def test_an_answer_of_the_leader_before_does_not_count() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.run(7)
    old = world.fetches[-1]
    answer = world.leaders.fetched(old)
    world.leaders.elect(2, cut=0)
    world.learn()
    world.core.answered(old.number, answer, world.now_ms)
    assert world.core.poll(10) == []


def test_damaged_records_are_reported_and_fetched_again() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.leaders.damaged.add(0)
    world.run(100)
    with pytest.raises(CorruptRecords, match="orders-0: the records at offset 0 came damaged"):
        world.core.poll(10)
    assert world.values() == ["a"]


def test_batches_that_do_not_continue_the_position_are_refused() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.leaders.append("b")
    world.run(7)
    fetch = world.fetches[-1]
    whole = world.leaders.fetched(fetch)[0]
    second = world.leaders.logs[0].batches[1].data
    world.core.answered(fetch.number, [whole._replace(batches=second)], world.now_ms)
    with pytest.raises(CorruptRecords, match="where offset 0 should be"):
        world.core.poll(10)


def test_an_answer_without_a_partition_of_the_request_is_an_error_of_this_partition() -> None:
    world = assigned()
    world.learn()
    world.leaders.append("a")
    world.run(7)
    world.core.answered(world.fetches[-1].number, [], world.now_ms)
    world.run(60)
    assert world.core.poll(10) == []
    assert world.values() == ["a"]


def test_a_client_that_may_not_read_hears_of_it() -> None:
    world = assigned()
    world.learn()
    world.step()
    denied = CallFailure(FailureKind.FATAL, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no such client")
    world.core.failed(world.sent[0].number, denied, world.now_ms)
    with pytest.raises(ConsumerError, match="no such client"):
        world.core.poll(10)


def test_a_partition_that_does_not_exist_is_reported_once_for_each_wait() -> None:
    world = assigned()
    missing = "partition 0 of topic 'orders' is not in the metadata after 60000 ms; the topic has 0 partitions"
    world.core.missing([key()], ErrorCode.REQUEST_TIMED_OUT, missing)
    with pytest.raises(PartitionMissing, match="the topic has 0 partitions"):
        world.core.poll(10)
    world.leaders.append("a")
    world.learn()
    assert world.values() == ["a"]


# --- assignments and questions ---------------------------------------------------------------------------------------


def test_a_partition_that_stays_assigned_goes_on_and_one_that_leaves_gives_no_more_records() -> None:
    world = assigned(2)
    world.learn()
    for number in (0, 1):
        world.leaders.append("a", partition=number)
    world.run(100)
    world.core.assign([key(0)])
    assert [record.partition for record in world.core.poll(10)] == [0]
    assert world.core.assigned == (key(0),)
    assert world.read() == []
    with pytest.raises(ValueError, match="not assigned"):
        world.core.position(key(1))


def test_the_ends_of_partitions_can_be_asked_for() -> None:
    world = World(3)
    world.leaders.logs[1].leader = 2
    for number in range(3):
        for _ in range(number):
            world.leaders.append("a", partition=number, timestamp_ms=50)
    world.learn()
    query = OffsetQuery({key(number): EndOfLog.LATEST for number in range(3)})
    late = OffsetQuery({key(2): 100})
    world.core.ask(query)
    world.core.ask(late)
    world.run(50)
    assert query.is_over
    assert query.offsets() == {key(0): 0, key(1): 1, key(2): 2}
    assert late.offsets() == {key(2): None}


def test_a_question_waits_for_its_leader() -> None:
    world = World(1)
    world.leaders.elect(None)
    world.learn()
    query = OffsetQuery({key(): EndOfLog.EARLIEST})
    world.core.ask(query)
    world.run(300)
    assert not query.is_over
    world.leaders.elect(2)
    world.run(2_000)
    assert query.offsets() == {key(): 0}
    world.core.forget(query)


def test_one_query_and_an_assigned_partition_ask_for_different_offsets_in_one_request() -> None:
    world = assigned(auto_offset_reset="latest")
    world.leaders.append("a")
    world.leaders.append("b")
    query = OffsetQuery({key(): EndOfLog.EARLIEST})
    world.core.ask(query)
    world.learn()
    world.run(50)
    assert (world.core.position(key()), query.offsets()) == (2, {key(): 0})


def test_the_high_watermark_of_a_partition_is_known_after_the_first_answer() -> None:
    world = assigned()
    assert world.core.high_watermark(key()) is None
    world.leaders.append("a", "b")
    world.learn()
    world.core.seek(key(), Position(1))
    world.run(50)
    assert world.core.high_watermark(key()) == 2
    assert str(world.core) == "orders-0@Position(offset=1, epoch=None):RECORDS"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("auto_offset_reset", "newest", "must be one of earliest, latest, none"),
        ("max_poll_records", 0, "at least 1"),
        ("fetch_max_bytes", 4 << 20, "at most 3145728"),
        ("fetch_max_wait_ms", 60_001, "at most 60000"),
        ("retry_backoff_ms", 2_000, "more than retry_backoff_max_ms"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ConsumerConfig(**{name: value})  # type: ignore[arg-type]
