"""Where a consumer reads: the first position, seeks, resets, and truncations."""

from typing import Any

import pytest

from clients.consumer.effects import AskEpochs, AskOffsets
from clients.consumer.errors import LogTruncated, NoPosition, OffsetOutOfRange
from clients.consumer.positions import Position, StoredPosition
from clients.partition_values import EndOfLog
from tests.clients.consumer.leaders import TOPIC_ID, FakeLog, key
from tests.clients.consumer.world import World


def begun(*values: str, **config: object) -> World:
    """A consumer of orders-0, whose log has one batch for each value."""
    world = World(**config)  # type: ignore[arg-type]
    for value in values:
        world.leaders.append(value)
    world.core.assign([key()])
    world.learn()
    return world


def read_before(epoch: int, offset: int, *values: str, **config: object) -> World:
    """A consumer whose last record had this epoch: its stored position is `offset`."""
    return begun(*values, stored={key(): StoredPosition(offset, epoch, TOPIC_ID)}, **config)


def test_a_consumer_without_a_position_begins_where_the_policy_says() -> None:
    assert begun("a", "b", auto_offset_reset="earliest").values() == ["a", "b"]

    late = begun("a", "b", auto_offset_reset="latest")
    assert late.values() == []
    late.leaders.append("c")
    assert late.values() == ["c"]


def test_without_a_policy_the_program_must_seek() -> None:
    world = begun("a", "b", auto_offset_reset="none")
    with pytest.raises(NoPosition, match="orders-0: no position is stored"):
        world.core.poll(10)
    world.core.seek(key(), Position(1))
    assert world.values() == ["b"]


def test_a_consumer_goes_on_at_the_stored_position() -> None:
    assert read_before(1, 1, "a", "b", "c").values() == ["b", "c"]


def test_the_records_of_the_first_batch_below_the_position_are_skipped() -> None:
    world = World(stored={key(): StoredPosition(1)})
    world.leaders.append("a", "b", "c")
    world.core.assign([key()])
    world.learn()
    assert [record.offset for record in world.read()] == [1, 2]


def test_a_position_in_an_earlier_topic_of_the_same_name_is_void() -> None:
    world = begun("a", "b", stored={key(): StoredPosition(1, 1, b"old".ljust(16))})
    assert world.values() == ["a", "b"]

    strict = begun("a", "b", stored={key(): StoredPosition(1, 1, b"old".ljust(16))}, auto_offset_reset="none")
    with pytest.raises(NoPosition, match="created anew"):
        strict.core.poll(10)


def test_a_topic_that_is_created_anew_is_read_from_its_own_beginning() -> None:
    world = begun("a", "b")
    assert world.values() == ["a", "b"]
    world.leaders.topic_id = b"new".ljust(16)
    world.leaders.logs[0] = FakeLog(epoch=0)
    world.leaders.append("c")
    world.learn()
    assert world.values() == ["c"]


def test_a_seek_moves_to_an_offset_an_end_or_a_time() -> None:
    world = begun()
    for number in range(5):
        world.leaders.append(str(number), timestamp_ms=number * 100)
    assert world.values() == ["0", "1", "2", "3", "4"]

    world.core.seek(key(), Position(3))
    assert world.values() == ["3", "4"]
    world.core.seek_to(key(), EndOfLog.EARLIEST)
    assert world.values() == ["0", "1", "2", "3", "4"]
    world.core.seek_to(key(), 150)
    assert world.values() == ["2", "3", "4"]
    world.core.seek_to(key(), EndOfLog.LATEST)
    assert world.core.position(key()) is None
    world.run(100)
    assert world.core.position(key()) == 5


def test_a_seek_to_a_time_after_all_records_goes_to_the_end() -> None:
    world = begun("a")
    world.core.seek_to(key(), 10_000)
    world.run(100)
    world.leaders.append("b")
    assert world.values() == ["b"]


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    world = begun("a", "b", "c")
    world.run(7)  # the question for the start is answered, and the fetch is under way
    stale = world.fetches[-1]
    world.core.seek(key(), Position(2))
    world.reply(stale)
    assert world.core.poll(10) == []
    assert world.values() == ["c"]


def test_a_seek_does_not_wait_for_a_parked_fetch() -> None:
    world = begun("a", "b")
    assert world.values() == ["a", "b"]
    parked = world.fetches[-1].number
    world.core.seek(key(), Position(0))
    world.run(20)
    assert parked in world.cancelled
    assert len(world.core.poll(10)) == 2


def test_a_seek_into_the_future_is_answered_by_the_policy() -> None:
    world = begun("a", "b")
    world.core.seek(key(), Position(50))
    assert world.values() == ["a", "b"]
    assert world.warnings == [
        "orders-0: offset 50 is not in the log, which begins at 0; the consumer goes on at the start of the log"
    ]


def test_a_partition_may_be_a_plain_pair_wherever_the_program_names_it() -> None:
    world = begun("a", "b")
    pair: Any = ("orders", 0)
    world.core.seek(pair, Position(1))
    assert [each.topic for each in world.core.commits.begin(0)] == ["orders"]
    assert world.values() == ["b"] and world.core.position(pair) == 2
    with pytest.raises(ValueError, match="orders-1 is not assigned to this consumer"):
        world.core.seek(("orders", 1), Position(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'orders' is no partition"):
        world.core.pause("orders", True)  # type: ignore[arg-type]


def test_a_position_that_retention_has_deleted_is_reset_or_reported() -> None:
    world = read_before(1, 1, "a", "b", "c", "d")
    world.leaders.logs[0].retain_from(3)
    assert world.values() == ["d"]

    strict = read_before(1, 1, "a", "b", "c", "d", auto_offset_reset="none")
    strict.leaders.logs[0].retain_from(3)
    with pytest.raises(OffsetOutOfRange) as caught:
        strict.read()
    assert (caught.value.offset, caught.value.log_start) == (1, 3)
    strict.core.seek(key(), Position(3))
    assert strict.values() == ["d"]


def test_an_error_is_told_once_and_in_each_reminder_until_the_program_decides() -> None:
    strict = read_before(1, 9, "a", auto_offset_reset="none")
    strict.run(1_000)
    with pytest.raises(LogTruncated):
        strict.core.poll(10)
    assert strict.core.poll(10) == []
    for _ in range(2):
        with pytest.raises(LogTruncated):
            strict.core.remind()
    strict.core.pause(key(), True)
    strict.core.remind()


# --- truncations (KIP-320) -------------------------------------------------------------------------------------------


def test_a_new_leader_is_asked_if_it_has_the_last_record() -> None:
    world = begun("a", "b")
    assert world.values() == ["a", "b"]
    world.leaders.elect(2)
    world.leaders.append("c")
    world.learn()
    assert world.values() == ["c"]
    questions = [each.questions[0] for each in world.sent if isinstance(each, AskEpochs)]
    assert [(each.leader_epoch, each.current_leader_epoch) for each in questions] == [(1, 2)]


def test_an_unclean_election_is_detected_and_the_consumer_goes_on_where_the_logs_agree() -> None:
    world = begun("a", "b", "c", "d")
    assert world.values() == ["a", "b", "c", "d"]
    world.leaders.elect(2, cut=2)
    for value in ("C", "D", "E"):
        world.leaders.append(value)
    world.learn()
    assert world.values() == ["C", "D", "E"]
    assert "cut at offset 2, below the position 4" in world.warnings[0]
    assert world.warnings[0].endswith("in an unclean election; the consumer goes on at offset 2")


def test_without_a_policy_the_program_hears_of_the_truncation() -> None:
    world = begun("a", "b", "c", "d", auto_offset_reset="none", stored={key(): StoredPosition(0)})
    assert world.values() == ["a", "b", "c", "d"]
    world.leaders.elect(2, cut=2)
    world.leaders.append("C", "D", "E")
    world.learn()
    with pytest.raises(LogTruncated) as caught:
        world.read()
    assert (caught.value.offset, caught.value.divergent_offset) == (4, 2)
    world.core.seek(key(), Position(2))
    assert world.values() == ["C", "D", "E"]


def test_a_record_with_the_same_offset_and_another_epoch_is_a_truncation() -> None:
    """Kafka compares the ends only. Here epoch 3 of the leader ends above the position, which has a record of epoch 5."""
    world = World(stored={key(): StoredPosition(2, 5, TOPIC_ID)}, auto_offset_reset="none")
    log = world.leaders.logs[0]
    log.epoch = 3
    world.leaders.append("a")
    world.leaders.append("b")
    world.leaders.append("c")
    log.epoch = 6
    world.core.assign([key()])
    world.learn()
    with pytest.raises(LogTruncated):
        world.read()


def test_a_stored_position_is_checked_before_the_first_fetch() -> None:
    world = read_before(1, 1, "a", "b")
    world.run(1_000)
    assert [type(each).__name__ for each in world.sent[:2]] == ["AskEpochs", "Fetch"]


def test_a_position_without_an_epoch_needs_no_check() -> None:
    world = begun("a", "b", stored={key(): StoredPosition(1)})
    assert world.values() == ["b"]
    assert not [each for each in world.sent if isinstance(each, AskEpochs)]


def test_records_of_the_old_leader_in_the_buffer_are_not_delivered() -> None:
    world = begun("a", "b", "c", "d")
    world.run(100)
    assert [record.offset for record in world.core.poll(1)] == [0]
    world.leaders.elect(2, cut=1)
    world.leaders.append("B")
    world.learn()
    assert world.core.poll(10) == []
    assert world.values() == ["B"]


def test_a_log_that_begins_above_the_position_is_out_of_range_and_not_truncated() -> None:
    world = read_before(1, 1, "a", "b", auto_offset_reset="none")
    world.leaders.elect(2)
    for value in ("c", "d"):
        world.leaders.append(value)
    world.leaders.logs[0].retain_from(3)
    world.learn()
    with pytest.raises(OffsetOutOfRange):
        world.read()


def test_the_position_names_the_epoch_of_the_last_record() -> None:
    world = begun("a")
    world.leaders.elect(2)
    world.leaders.append("b")
    world.learn()
    world.read()
    world.leaders.elect(3)
    world.learn()
    world.run(100)
    asked = [each.questions[0].leader_epoch for each in world.sent if isinstance(each, AskEpochs)]
    assert asked[-1] == 2


def test_a_question_for_an_offset_goes_to_the_next_leader() -> None:
    world = begun("a", auto_offset_reset="latest")
    world.leaders.elect(2)
    world.run(1_000)
    assert [each.node.node_id for each in world.sent if isinstance(each, AskOffsets)] == [1, 2]
    assert world.core.position(key()) == 1


def test_only_assigned_partitions_can_be_moved() -> None:
    world = begun()
    with pytest.raises(ValueError, match="orders-7 is not assigned"):
        world.core.seek(key(7), Position(0))


def test_records_of_a_replaced_epoch_come_again_although_the_leaders_log_is_longer() -> None:
    """The new leader has a longer epoch 1 than the log that the consumer has read, and no epoch 2 (KIP-279)."""
    world = begun("a", "b")
    assert world.values() == ["a", "b"]
    world.leaders.elect(2)
    world.leaders.append("c")
    world.leaders.append("d")
    world.learn()
    assert world.values() == ["c", "d"]
    log = world.leaders.logs[0]
    log.cut(2)
    log.epoch = 1
    for value in ("C", "D", "E"):
        world.leaders.append(value)
    log.epoch, log.leader = 3, 3
    world.learn()
    assert world.values() == ["C", "D", "E"]
