"""The decisions of a producer, one rule at a time."""

from dataclasses import replace

import pytest

from clients.metadata.cluster import ClusterNode, TopicPartition
from clients.partition_values import Appended, CurrentLeader
from clients.producer.config import ProducerConfig
from clients.producer.effects import NoteStale
from clients.producer.errors import MayHaveBeenWritten, NotWritten, ProducerClosed
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, pack_record
from metadata_log.format.errors import ErrorCode
from tests.clients.producer.driving import AWAY, LATE, LOST, ORDERS, PRODUCER_ID, Driver, only_batch

# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_lingers_and_a_full_one_does_not() -> None:
    """Row 7 of Kafka's `send`: the first record of a batch and a full batch wake the sender."""
    driver = Driver(ProducerConfig(linger_ms=5, batch_size=30))
    driver.send("one")
    assert not driver.sent and driver.core.next_ms(driver.now_ms) == driver.now_ms + 5
    driver.send("two")
    driver.step(4)
    assert not driver.sent
    driver.step(1)
    assert only_batch(driver.take()).record_count == 2
    driver = Driver(ProducerConfig(linger_ms=5, batch_size=30))
    driver.send("a" * 20, "b" * 20)
    assert only_batch(driver.sent[0]).record_count == 1, "the first batch is full, so it leaves at once"


def test_one_request_has_the_batches_of_many_partitions_of_a_broker() -> None:
    driver = Driver(ProducerConfig(linger_ms=5), partitions=6)
    for number in range(6):
        driver.send(f"r{number}", partition=number)
    driver.step(5)
    assert sorted((each.node_id, len(each.request.batches)) for each in driver.sent) == [(1, 2), (2, 2), (3, 2)]
    driver.pass_all()
    assert set(driver.delivered) == {f"r{number}" for number in range(6)}


def test_a_request_has_at_most_max_request_size_bytes_of_records() -> None:
    driver = Driver(ProducerConfig(linger_ms=5, max_request_size=100), partitions=6)
    driver.send("x" * 70, partition=0)
    driver.send("y" * 70, partition=3)
    driver.step(5)
    assert [len(each.request.batches) for each in driver.sent] == [1, 1], "both go to broker 1"


def test_at_most_five_requests_to_a_broker_are_in_flight() -> None:
    driver = Driver()
    driver.warm_up()
    driver.send(*(f"r{number}" for number in range(8)))
    assert len(driver.sent) == 5
    driver.pass_on()
    assert len(driver.sent) == 5
    driver.pass_all()
    assert driver.log() == ["warm", *(f"r{number}" for number in range(8))]


def test_a_busy_partition_does_not_keep_the_others_of_its_broker_waiting() -> None:
    driver = Driver(ProducerConfig(linger_ms=0, batch_size=1, max_in_flight_requests_per_connection=1), partitions=4)
    driver.send("a1", "a2", "a3")
    driver.send("b1", partition=3)
    driver.pass_on("a1")
    assert "b1" in driver.take("b1").request.batches[1].records.decode(errors="ignore")


def test_flush_ends_the_lingering() -> None:
    driver = Driver(ProducerConfig(linger_ms=1_000, delivery_timeout_ms=40_000))
    driver.send("one")
    number = driver.core.flush()
    driver.step()
    assert not driver.core.is_flushed(number)
    driver.send("two")
    driver.pass_on()
    assert driver.core.is_flushed(number), "records that came after the flush do not count"
    assert driver.delivered == {"one": 0} and not driver.sent


def test_a_full_buffer_ends_the_lingering() -> None:
    driver = Driver(ProducerConfig(linger_ms=1_000, delivery_timeout_ms=40_000, buffer_memory=600))
    driver.send("one", "two")
    assert not driver.core.records.has_room(100) and not driver.sent
    driver.core.note_crowded(True)
    driver.step()
    driver.pass_all()
    assert driver.core.records.has_room(100) and driver.core.records.used_bytes == 0


def test_the_schedule_does_not_grow_with_the_batches_that_were_sent() -> None:
    """A batch is delivered long before its deadline, so no deadline of a delivered batch may stay in memory."""
    driver = Driver(ProducerConfig(linger_ms=5), partitions=3)
    for number in range(300):
        driver.send(str(number), partition=number % 3)
        driver.run(5)
        driver.pass_all()
    assert len(driver.delivered) == 300 and len(driver.core._schedule) <= 6


def test_a_turn_looks_at_a_bounded_number_of_partitions() -> None:
    driver = Driver(ProducerConfig(linger_ms=5), partitions=1_200)
    for number in range(1_200):
        driver.core.enqueue(
            TopicPartition("orders", number), pack_record(DataRecord(0, None, b"v")), 0, str(number), driver.now_ms
        )
    driver.core.flush()
    driver.step()
    sent = [len(request.request.batches) for request in driver.sent]
    assert sum(sent) <= 1_000, "two turns: the id came between them"
    driver.step()
    driver.step()
    driver.pass_all()
    assert len(driver.delivered) == 1_200


# --- stamps ----------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_producer_has_its_id() -> None:
    driver = Driver()
    driver.gives_ids = False
    driver.send("one")
    assert driver.id_questions == 1 and not driver.sent
    driver.core.id_refused("no controller", driver.now_ms)
    driver.run(5_000)
    assert driver.id_questions == 2 and not driver.sent
    driver.gives_ids = True
    driver.core.id_refused("no controller", driver.now_ms)
    driver.run(5_000)
    assert only_batch(driver.sent[0]).stamp == ProducerStamp(PRODUCER_ID, 0, 0)


def test_each_partition_has_its_own_sequence() -> None:
    driver = Driver(ProducerConfig(linger_ms=5), partitions=4)
    driver.send("a", "b")
    driver.send("c", partition=3)
    driver.step(5)
    assert [each.stamp.base_sequence for each in driver.sent[0].request.batches] == [0, 0]
    driver.pass_all()
    driver.send("d")
    driver.step(5)
    assert only_batch(driver.sent[0]).stamp == ProducerStamp(PRODUCER_ID, 0, 2)


def test_a_batch_that_is_sent_again_keeps_its_stamp_and_is_appended_once() -> None:
    driver = Driver()
    driver.send("one")
    lost = driver.take()
    driver.deliver(lost)
    driver.fail(lost)
    driver.run(1_000)
    assert only_batch(driver.sent[0]) == only_batch(lost)
    driver.pass_all()
    assert driver.log() == ["one"] and driver.delivered == {"one": 0}


def test_several_batches_are_in_flight_only_after_the_first_acknowledgement() -> None:
    """A leader that has forgotten the producer accepts any first sequence: no second batch may overtake the first one."""
    driver = Driver()
    driver.send("one", "two", "three")
    assert len(driver.sent) == 1
    driver.pass_on()
    assert len(driver.sent) == 2


def test_after_a_minute_of_silence_and_with_a_new_leader_the_first_batch_goes_alone_again() -> None:
    driver = Driver()
    driver.warm_up()
    driver.run(60_000)
    driver.send("one", "two")
    assert len(driver.sent) == 1
    driver.pass_all()
    driver.cluster.logs[ORDERS].elect(2)
    driver.refresh()
    driver.send("three", "four")
    assert len(driver.sent) == 1


# --- order through failures ------------------------------------------------------------------------------------------


def test_after_a_failure_the_batches_go_one_by_one_in_order() -> None:
    driver = Driver()
    driver.warm_up()
    driver.send("a", "b", "c")
    for value in ("b", "a", "c"):
        driver.fail(driver.take(value), LATE)
    driver.run(2_000)
    assert len(driver.sent) == 1
    for value in ("a", "b", "c"):
        driver.pass_on(value)
        driver.run(2_000)
    assert driver.log() == ["warm", "a", "b", "c"]


def test_a_batch_that_came_too_early_is_sent_again() -> None:
    """Broker 1 refuses b, because a is missing: OUT_OF_ORDER_SEQUENCE_NUMBER. Nothing is wrong: a is still on its way."""
    driver = Driver()
    driver.warm_up()
    driver.send("a", "b")
    driver.pass_on("b")
    assert not driver.errors
    driver.pass_on("a")
    assert only_batch(driver.sent[0]).stamp == ProducerStamp(PRODUCER_ID, 0, 2)
    driver.pass_all()
    assert driver.log() == ["warm", "a", "b"]


def test_an_answer_that_was_out_of_order_when_it_was_sent_does_not_break_the_sequence() -> None:
    """The refusal of b arrives after the acknowledgement of a. b was not the first batch when it was sent."""
    driver = Driver()
    driver.warm_up()
    driver.send("a", "b")
    b = driver.take("b")
    refused = driver.deliver(b)
    driver.pass_on("a")
    driver.answer(b, refused)
    driver.pass_all()
    assert driver.log() == ["warm", "a", "b"] and driver.core.records.queues[ORDERS].producer_epoch == 0


def test_errors_that_pass_are_sent_again_with_growing_pauses() -> None:
    driver = Driver()
    driver.send("one")
    for _ in range(4):
        driver.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        driver.run(1_300)
        assert len(driver.sent) == 1
    driver.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    driver.run(700)
    assert not driver.sent, "the pause is 1 s by now"
    driver.run(600)
    driver.pass_all()
    assert driver.delivered == {"one": 0}


def test_a_hint_of_a_later_leader_is_followed_at_once() -> None:
    """KIP-951: no pause, and no wait for metadata."""
    driver = Driver()
    driver.cluster.logs[ORDERS].elect(2)
    driver.send("one")
    driver.pass_on()
    assert [each.node_id for each in driver.sent] == [2]
    assert [(each.key, each.leader_epoch) for each in driver.epochs] == [(ORDERS, 2)]
    driver.pass_all()
    assert driver.log() == ["one"]


def test_a_hint_that_leads_nowhere_is_forgotten() -> None:
    """After `quorum recover` leader epochs begin anew: no view would ever be as late as an old hint."""
    driver = Driver()
    driver.send("one")
    driver.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=CurrentLeader(2, 9))
    assert [(each.node_id, only_batch(each).leader_epoch) for each in driver.sent] == [(2, 9)]
    driver.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    driver.run(500)
    assert [each.node_id for each in driver.sent] == [2], "broker 2 answers as the leader"
    driver.refuse(ErrorCode.UNKNOWN_LEADER_EPOCH)
    driver.run(500)
    assert [(each.node_id, only_batch(each).leader_epoch) for each in driver.sent] == [(1, 1)]
    driver.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=CurrentLeader(3, 9))
    driver.fail(driver.take(), AWAY)
    driver.run(1_500)
    assert [each.node_id for each in driver.sent] == [1]


@pytest.mark.parametrize("leader_id", [None, 77])
def test_a_hint_without_a_leader_to_ask_is_no_reason_to_hurry(leader_id: int | None) -> None:
    """No broker leads, or one that is not in the metadata: the old leader would get one request per round trip."""
    driver = Driver()
    driver.send("one")
    driver.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=CurrentLeader(leader_id, 9))
    assert not driver.sent
    driver.run(500)
    assert [each.node_id for each in driver.sent] == [1]


def test_metadata_with_a_later_leader_end_the_pause_of_a_batch() -> None:
    """Broker 2 has just been started: the hint names it, and the view knows it a moment later. The batch waits no longer."""
    driver = Driver()
    driver.send("one")
    without = {node_id: node for node_id, node in driver.view.nodes.items() if node_id != 2}
    driver.view = replace(driver.view, nodes=without)
    driver.step()
    driver.cluster.logs[ORDERS].elect(2)
    driver.pass_on()
    driver.step(1)
    assert not driver.sent, "the hint names a broker without an address"
    driver.refresh()
    assert [(each.node_id, only_batch(each).leader_epoch) for each in driver.sent] == [(2, 2)]
    driver.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    driver.refresh()
    assert not driver.sent, "broker 2 has not heard of its leadership: asking again at once would be a busy loop"
    driver.run(500)
    driver.pass_all()
    assert driver.log() == ["one"]


def test_a_refusal_that_names_the_leader_that_refuses_is_followed_by_a_pause() -> None:
    driver = Driver()
    driver.send("one")
    driver.refuse(ErrorCode.FENCED_LEADER_EPOCH, leader=CurrentLeader(1, 9))
    assert [only_batch(each).leader_epoch for each in driver.sent] == [9], "the later epoch is tried at once"
    driver.refuse(ErrorCode.NOT_ENOUGH_REPLICAS, leader=CurrentLeader(1, 9))
    assert not driver.sent


def test_an_older_hint_is_not_followed() -> None:
    driver = Driver()
    driver.cluster.logs[ORDERS].elect(2)
    driver.refresh()
    driver.send("one")
    driver.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=CurrentLeader(1, 1))
    assert not driver.sent and not driver.epochs
    driver.run(500)
    assert [each.node_id for each in driver.sent] == [2]


# --- leaders and brokers that are away -------------------------------------------------------------------------------


def test_a_partition_without_a_leader_waits_and_asks_for_metadata() -> None:
    driver = Driver()
    driver.cluster.logs[ORDERS].elect(None)
    driver.refresh()
    driver.send("one")
    assert driver.stale == [NoteStale(ErrorCode.LEADER_NOT_AVAILABLE, None)] and not driver.sent
    driver.run(1_000)
    assert len(driver.stale) > 5
    driver.cluster.logs[ORDERS].elect(3)
    driver.refresh()
    driver.pass_all()
    assert driver.delivered == {"one": 0}


def test_a_leader_without_an_address_for_this_client_is_no_leader() -> None:
    driver = Driver()
    driver.view = replace(driver.view, nodes={**driver.view.nodes, 1: ClusterNode(1, "", -1)})
    driver.send("one")
    assert not driver.sent and driver.stale == [NoteStale(ErrorCode.LEADER_NOT_AVAILABLE, None)]
    driver.refresh()
    assert [each.node_id for each in driver.sent] == [1]


def test_a_hint_of_a_leader_without_an_address_is_not_followed() -> None:
    driver = Driver()
    driver.view = replace(driver.view, nodes={**driver.view.nodes, 2: ClusterNode(2, "", -1)})
    driver.send("one")
    driver.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=CurrentLeader(2, 9))
    assert not driver.sent
    driver.run(500)
    assert [each.node_id for each in driver.sent] == [1]


def test_a_broker_that_is_away_is_left_alone_for_a_while_and_the_others_go_on() -> None:
    driver = Driver(partitions=2)
    driver.send("one")
    driver.fail(driver.take(), AWAY)
    assert driver.stale == [NoteStale(ErrorCode.BROKER_NOT_AVAILABLE, 1)]
    driver.send("two", partition=1)
    driver.pass_on("two")
    assert driver.delivered == {"two": 0}
    driver.run(200)
    assert [each.node_id for each in driver.sent] == [1]


def test_a_request_that_is_late_makes_the_metadata_stale() -> None:
    driver = Driver()
    driver.send("one")
    driver.fail(driver.take(), LATE)
    assert driver.stale == [NoteStale(ErrorCode.REQUEST_TIMED_OUT, 1)]


# --- ends without an acknowledgement ---------------------------------------------------------------------------------


def test_a_batch_that_was_never_on_its_way_expires_as_not_written() -> None:
    driver = Driver()
    driver.cluster.logs[ORDERS].elect(None)
    driver.refresh()
    driver.send("one")
    driver.run(119_999)
    assert not driver.errors
    driver.run(1)
    error = driver.errors["one"]
    assert isinstance(error, NotWritten) and not error.may_have_been_written
    assert error.code is ErrorCode.REQUEST_TIMED_OUT and "delivery_timeout_ms=120000" in error.message


def test_a_batch_in_flight_expires_as_perhaps_written_and_what_follows_has_a_new_epoch() -> None:
    """The late answer changes nothing for the caller. The leader refuses late requests of the epoch before."""
    driver = Driver()
    driver.warm_up()
    driver.send("a")
    a = driver.take("a")
    driver.run(120_000)
    assert isinstance(driver.errors["a"], MayHaveBeenWritten)
    driver.send("b")
    assert not driver.sent, "the call with a has not ended"
    driver.fail(a, LATE)
    driver.run(1_000)
    assert only_batch(driver.sent[0]).stamp == ProducerStamp(PRODUCER_ID, 1, 0)
    driver.pass_all()
    assert driver.deliver(a)[0].code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert driver.log() == ["warm", "b"]


def test_a_batch_behind_a_lost_one_is_never_sent_under_another_stamp() -> None:
    """The answers of a and b are lost, and neither arrived. If b got another stamp, late requests with a and b could still
    bring b a second time."""
    driver = Driver(ProducerConfig(linger_ms=0, batch_size=1, delivery_timeout_ms=30_000))
    driver.warm_up()
    driver.send("a")
    driver.now_ms += 10_000
    driver.send("b", "c")
    lost = [driver.take(value) for value in ("a", "b")]
    c = driver.take("c")
    for request in lost:
        driver.fail(request, LOST)
    driver.answer(c, driver.deliver(c))
    driver.run(1_000)
    driver.fail(driver.take("a"), LOST)
    driver.cluster.logs[ORDERS].elect(None)
    driver.refresh()
    driver.run(20_000)
    assert isinstance(driver.errors["a"], MayHaveBeenWritten) and "b" not in driver.errors
    driver.cluster.logs[ORDERS].elect(1)
    driver.refresh()
    driver.run(1_000)
    driver.pass_on("b")
    assert isinstance(driver.errors.get("b"), MayHaveBeenWritten), "b has got another stamp"
    driver.run(1_000)
    driver.pass_on("c")
    driver.run(1_000)
    driver.pass_all()
    assert driver.log() == ["warm", "c"], "the leader has only ever refused c, so c has got another stamp"


def test_a_refused_batch_leaves_no_gap_and_the_next_ones_are_not_lost() -> None:
    driver = Driver()
    driver.warm_up()
    driver.send("a", "b", "c")
    driver.refuse(ErrorCode.INVALID_TIMESTAMP, "a")
    assert isinstance(driver.errors["a"], NotWritten)
    driver.pass_on("b")
    driver.pass_on("c")
    driver.run(2_000)
    driver.pass_all()
    assert driver.log() == ["warm", "b", "c"]
    assert driver.core.records.queues[ORDERS].producer_epoch == 1


def test_an_unknown_error_of_a_leader_fails_the_batch_as_perhaps_written() -> None:
    driver = Driver()
    driver.send("one")
    driver.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert isinstance(driver.errors["one"], MayHaveBeenWritten)


def test_a_leader_that_has_lost_records_does_not_stop_the_producer() -> None:
    """An unclean election: the new leader lacks an acknowledged batch, so the next sequence is out of order there for ever."""
    driver = Driver()
    driver.warm_up()
    log = driver.cluster.logs[ORDERS]
    log.batches.clear()
    log.committed = 0
    log.elect(2)
    driver.refresh()
    driver.send("one")
    driver.pass_on()
    driver.run(1_000)
    assert only_batch(driver.sent[0]).stamp == ProducerStamp(PRODUCER_ID, 1, 0)
    driver.pass_all()
    assert driver.log() == ["one"]


def test_a_batch_that_is_too_large_for_the_topic_is_split() -> None:
    driver = Driver(ProducerConfig(linger_ms=5))
    driver.cluster.logs[ORDERS].max_records = 2
    driver.send("a", "b", "c", "d", "e")
    driver.run(5)
    while driver.sent:
        driver.pass_on()
        driver.run(1_000)
    assert driver.log() == ["a", "b", "c", "d", "e"] and driver.delivered["e"] == 4
    assert driver.core.is_flushed(driver.core.flush()) and driver.core.records.used_bytes == 0


def test_a_topic_that_was_created_anew_begins_its_sequences_anew() -> None:
    driver = Driver()
    driver.warm_up()
    driver.send("a")
    old = driver.take("a")
    driver.cluster.create("orders", 1)
    driver.refresh()
    driver.send("b")
    assert not driver.sent, "the request to the deleted topic has not ended"
    driver.answer(old, driver.deliver(old))
    driver.run(1_000)
    batch = only_batch(driver.sent[0])
    assert batch.stamp.base_sequence == 0 and batch.place.topic_id == driver.cluster.logs[ORDERS].topic_id
    driver.pass_all()
    assert driver.log() == ["a", "b"]


# --- acks and idempotence --------------------------------------------------------------------------------------------


def test_without_idempotence_one_batch_is_in_flight_and_a_repeated_one_is_there_twice() -> None:
    driver = Driver(ProducerConfig(acks=1, linger_ms=0, batch_size=1))
    driver.send("a", "b")
    assert len(driver.sent) == 1 and driver.id_questions == 0
    lost = driver.take()
    assert only_batch(lost).stamp == NO_STAMP and lost.request.acks == 1
    driver.deliver(lost)
    driver.fail(lost)
    driver.run(1_000)
    driver.pass_all()
    driver.run(1_000)
    driver.pass_all()
    assert driver.log() == ["a", "a", "b"]


def test_with_acks_0_a_send_ends_when_the_request_leaves() -> None:
    driver = Driver(ProducerConfig(acks=0, linger_ms=0, batch_size=1))
    driver.send("a", "b")
    assert driver.delivered == {"a": None}
    driver.fail(driver.take(), LOST)
    driver.run(1_000)
    driver.pass_all()
    assert driver.log() == ["b"] and driver.delivered == {"a": None, "b": None}, "a is not sent again"


# --- close -----------------------------------------------------------------------------------------------------------


def test_close_fails_what_is_left_and_tells_what_may_be_written() -> None:
    driver = Driver()
    driver.warm_up()
    driver.send("a")
    a = driver.take()
    driver.core.enqueue(TopicPartition("orders", 0), pack_record(DataRecord(0, None, b"b")), 0, "b", driver.now_ms)
    driver._do(driver.core.close())
    assert isinstance(driver.errors["a"], MayHaveBeenWritten) and isinstance(driver.errors["b"], ProducerClosed)
    driver.answer(a, [Appended(only_batch(a).place, base_offset=1)])
    assert set(driver.delivered) == {"warm"}
