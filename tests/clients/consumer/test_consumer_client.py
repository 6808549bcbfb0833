"""The asyncio half of the consumer, with a fake clock, fake leaders and a store in memory."""

import asyncio
import logging
from itertools import pairwise

import pytest

from metaquorum import (
    Consumer,
    ConsumerConfig,
    MetadataError,
    NoPosition,
    PartitionMissing,
    PositionsUnusable,
    TopicPartition,
)
from service_kit.process.endpoints import BadEndpoint
from tests.clients.consumer.leaders import TOPIC, key
from tests.clients.consumer.program import Program, settle


async def test_a_program_iterates_over_records_as_they_come() -> None:
    program = Program()
    program.append("a", "b")
    async with program.consumer() as consumer:
        consumer.assign([(TOPIC, 0)])
        found = []

        async def read() -> None:
            async for record in consumer:
                found.append((record.offset, record.value))
                if len(found) == 3:
                    return

        reading = asyncio.create_task(read())
        await program.clock.run(100)
        assert found == [(0, b"a"), (1, b"b")]
        program.append("c")
        await program.clock.run(10)
        await reading
        assert found[2] == (2, b"c")


async def test_poll_returns_as_soon_as_there_are_records_and_else_after_its_wait() -> None:
    program = Program()
    async with program.consumer() as consumer:
        consumer.assign([key()])
        began_ms = program.clock.now_ms()
        assert await program.poll(consumer, 700) == []
        assert program.clock.now_ms() == began_ms + 700
        polling = asyncio.create_task(consumer.poll(60))
        await program.clock.run(100)
        program.append("a")
        await settle()
        assert [record.value for record in await polling] == [b"a"]


async def test_positions_are_committed_every_five_seconds_at_most() -> None:
    program = Program()
    async with program.consumer() as consumer:
        consumer.assign([key()])
        for second in range(20):
            program.append(str(second))
            await program.poll(consumer, 1_000)
            await program.clock.run(1_000)
        commits = list(program.store.commits)
    times = [at_ms for at_ms, _ in commits]
    assert len(times) >= 4
    assert all(later - earlier >= 5_000 for earlier, later in pairwise(times))
    offsets = [offsets[0] for _, offsets in commits]
    assert offsets == sorted(offsets)


async def test_an_orderly_end_commits_all_that_the_program_got() -> None:
    program = Program()
    program.append("a", "b", "c")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        assert await program.poll(consumer) == ["a", "b", "c"]
        assert consumer.position(key()) == 3
    assert program.store.positions[key()].offset == 3
    assert program.calls.is_closed


async def test_a_record_in_whose_work_the_program_fails_comes_again() -> None:
    program = Program()
    program.append("a", "b", "c")
    with pytest.raises(ZeroDivisionError):
        async with program.consumer() as consumer:
            consumer.assign([key()])
            async with asyncio.timeout(5):
                async for record in consumer:
                    if record.value == b"b":
                        raise ZeroDivisionError
    assert program.store.positions[key()].offset == 1
    async with program.consumer() as consumer:
        consumer.assign([key()])
        assert await program.poll(consumer) == ["b", "c"]


async def test_records_are_taken_when_the_next_poll_is_cancelled_at_once() -> None:
    """Ctrl-C after the last record was shown: the program has called `poll` again, and this call ends in its first turn."""
    program = Program()
    program.append("a", "b")
    with pytest.raises(asyncio.CancelledError):
        async with program.consumer() as consumer:
            consumer.assign([key()])
            assert await program.poll(consumer) == ["a", "b"]
            polling = asyncio.create_task(consumer.poll(0))
            await asyncio.sleep(0)
            polling.cancel()
            await polling
    assert program.store.positions[key()].offset == 2


async def test_a_program_can_commit_by_itself() -> None:
    program = Program()
    program.append("a", "b")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.poll(consumer)
        await consumer.commit()
        assert program.store.commits[-1][1] == {0: 2}
        stored = consumer.committed(key())
        assert stored is not None
        assert (stored.offset, stored.epoch) == (2, 1)


async def test_a_commit_that_fails_is_told_and_tried_again() -> None:
    program = Program()
    program.append("a")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.poll(consumer)
        program.store.broken = True
        await program.poll(consumer, 100)
        await program.clock.run(6_000)
        with pytest.raises(PositionsUnusable, match="the disk is full"):
            await consumer.poll(0)
        program.store.broken = False
        await program.clock.run(6_000)
        assert program.store.positions[key()].offset == 1


async def test_a_close_waits_for_the_commit_under_way_and_commits_the_rest() -> None:
    program = Program()
    program.append("a")
    gate = program.store.gate = asyncio.Event()
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.poll(consumer)
        await program.poll(consumer, 100)
        await program.clock.run(6_000)
        program.append("b")
        await program.poll(consumer)
        closing = asyncio.create_task(consumer.close())
        await settle()
        assert program.store.commits == []
        gate.set()
        await closing
    assert [offsets for _, offsets in program.store.commits] == [{0: 1}, {0: 2}]


async def test_a_commit_waits_for_a_cancelled_one_whose_write_goes_on() -> None:
    """A thread that writes a file cannot be cancelled. Two threads at once would take each other for another program."""
    program = Program()
    program.append("a")
    gate = program.store.gate = asyncio.Event()
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.poll(consumer)
        cancelled = asyncio.create_task(consumer.commit())
        await settle()
        cancelled.cancel()
        await settle()
        assert cancelled.cancelled()
        program.append("b")
        await program.poll(consumer)
        commits = [asyncio.create_task(consumer.commit()) for _ in range(2)]
        await program.clock.run(20_000)
        begun = program.store.begun
        gate.set()
        await asyncio.gather(*commits)
        assert begun == 1
    assert [offsets for _, offsets in program.store.commits] == [{0: 1}, {0: 2}]


async def test_a_commit_hears_of_its_own_failure_although_others_wait_too() -> None:
    program = Program()
    program.append("a")
    gate = program.store.gate = asyncio.Event()
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.poll(consumer)
        program.store.broken = True
        polling = asyncio.create_task(consumer.poll(60))
        commits = [asyncio.create_task(consumer.commit()) for _ in range(2)]
        await settle()
        gate.set()
        program.append("b")
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        assert [type(each) for each in outcomes] == [PositionsUnusable, PositionsUnusable]
        assert [record.value for record in await polling] == [b"b"]
        program.store.broken = False


async def test_a_leader_that_dies_is_replaced_and_no_record_is_lost_or_doubled() -> None:
    program = Program()
    program.append("a", "b")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        assert await program.poll(consumer) == ["a", "b"]
        program.calls.dead.add(1)
        program.calls.stir()
        await program.clock.run(300)
        program.leaders.elect(2)
        program.append("c")
        found = await program.poll(consumer, 3_000)
        assert found == ["c"]


async def test_an_assigned_topic_stays_of_interest_while_it_is_assigned() -> None:
    program = Program()
    async with program.consumer(fetch_max_wait_ms=60_000) as consumer:
        consumer.assign([key()])
        await program.clock.run(100)
        program.metadata.asked.clear()
        await program.clock.run(3_600_000)
        assert len(program.metadata.asked) >= 11
        assert all(topics == (TOPIC,) for topics in program.metadata.asked)
        program.append("a")
        assert await program.poll(consumer) == ["a"]


async def test_a_partition_that_does_not_exist_is_an_error_that_names_the_count() -> None:
    program = Program(partitions=2)
    async with program.consumer(max_block_ms=10_000) as consumer:
        consumer.assign([key(0), key(7)])
        polling = asyncio.create_task(consumer.poll(60))
        await program.clock.run(11_000)
        with pytest.raises(PartitionMissing, match=r"partition 7 of topic 'orders'.*the topic has 2 partitions"):
            await polling
        program.append("a")
        assert await program.poll(consumer) == ["a"]


async def test_an_error_of_one_partition_is_told_in_its_turn_and_holds_no_other_up() -> None:
    """The program catches the error, and polls again. It gets the records of others, and hears again when there are none."""
    program = Program(partitions=2)
    program.append("a", partition=1)
    async with program.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([key(0), key(1)])
        consumer.seek(key(1), 0)
        with pytest.raises(NoPosition):
            await consumer.poll(60)
        assert await program.poll(consumer, 60_000) == ["a"]
        polling = asyncio.create_task(consumer.poll(60))
        await program.clock.run(900)
        assert not polling.done()
        await program.clock.run(100)
        with pytest.raises(NoPosition):
            await polling
        polling = asyncio.create_task(consumer.poll(60))
        await program.clock.run(500)
        program.append("b", partition=1)
        await settle()
        assert [record.value for record in await polling] == [b"b"]
        with pytest.raises(NoPosition):
            await consumer.poll(0)
        consumer.seek(key(0), 0)
        assert await program.poll(consumer, 3_000) == []


async def test_several_errors_that_last_are_told_in_turn() -> None:
    program = Program(partitions=2)
    async with program.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([key(0), key(1)])
        told = []
        for _ in range(6):
            with pytest.raises(NoPosition) as caught:
                await consumer.poll(0)
            told.append(caught.value.partition.partition)
        assert told == [0, 1] * 3
        consumer.pause(key(0), key(1))
        assert await program.poll(consumer, 3_000) == []


async def test_a_program_that_never_waits_still_gets_records() -> None:
    program = Program()
    program.append("a")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        found = []
        for _ in range(1_000):
            found += await consumer.poll(0)
        assert [record.value for record in found] == [b"a"]


async def test_a_program_that_reads_many_records_leaves_the_loop_its_turns() -> None:
    program = Program()
    program.append(*map(str, range(100)))
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.clock.run(1_000)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        number = 0
        async for _ in consumer:
            program.clock.work(1)
            number += 1
            if number == 100:
                break
        counting.cancel()
        assert 5 <= turns <= 20


async def test_a_topic_that_does_not_exist_is_an_error_after_the_wait() -> None:
    program = Program()
    program.metadata.exists = False
    async with program.consumer(max_block_ms=5_000) as consumer:
        asking = asyncio.create_task(consumer.partitions_of(TOPIC))
        await program.clock.run(6_000)
        with pytest.raises(MetadataError, match="is not in the metadata after 5000 ms"):
            await asking
        program.metadata.exists = True
        waiting = asyncio.create_task(consumer.partitions_of(TOPIC))
        await program.clock.run(3_000)
        assert await waiting == (key(0),)


async def test_the_offsets_of_a_log_can_be_asked_for() -> None:
    program = Program(partitions=2)
    program.append("a", "b", partition=1)
    async with program.consumer() as consumer:

        async def ask() -> list[dict[TopicPartition, int]]:
            both = [key(0), key(1)]
            return [await consumer.beginning_offsets(both), await consumer.end_offsets(both)]

        asking = asyncio.create_task(ask())
        await program.clock.run(1_000)
        assert await asking == [{key(0): 0, key(1): 0}, {key(0): 0, key(1): 2}]
        times = asyncio.create_task(consumer.offsets_for_times({key(1): 0, key(0): 0}))
        await program.clock.run(1_000)
        assert await times == {key(0): None, key(1): 0}


async def test_a_question_that_no_leader_answers_ends_in_time() -> None:
    program = Program()
    program.leaders.elect(None)
    async with program.consumer() as consumer:
        asking = asyncio.create_task(consumer.end_offsets([key()], timeout_s=2))
        await program.clock.run(3_000)
        with pytest.raises(TimeoutError, match="within 2 s"):
            await asking


async def test_a_seek_a_pause_and_an_end_can_be_had_by_name() -> None:
    program = Program(partitions=2)
    program.append("a", "b", "c")
    async with program.consumer() as consumer:
        consumer.assign([key(0), key(1)])
        assert await program.poll(consumer) == ["a", "b", "c"]
        consumer.seek(key(0), 1)
        assert await program.poll(consumer) == ["b", "c"]
        consumer.seek_to_beginning()
        assert await program.poll(consumer) == ["a", "b", "c"]
        consumer.seek_to_end(key(0))
        assert await program.poll(consumer, 300) == []
        assert (consumer.position(key(0)), consumer.high_watermark(key(0))) == (3, 3)
        consumer.seek_to_time(0, key(0))
        consumer.pause(key(0))
        assert await program.poll(consumer, 300) == []
        assert consumer.paused == {key(0)}
        consumer.resume(key(0))
        assert await program.poll(consumer) == ["a", "b", "c"]
        assert consumer.assignment == (key(0), key(1))
        with pytest.raises(ValueError, match="the offset -1 is negative"):
            consumer.seek(key(0), -1)
        with pytest.raises(ValueError, match="the time -1 is negative"):
            consumer.seek_to_time(-1)


@pytest.mark.parametrize(
    "wrong", ["t1", ("t1",), (b"orders", 0), ("\udcff", 0), ("orders", "0"), ("orders", -1), ("orders", True), 7]
)
async def test_an_assignment_names_topics_and_numbers(wrong: object) -> None:
    """Otherwise "t1" is taken for partition "1" of topic "t", and the metadata client breaks much later."""
    program = Program()
    program.append("a")
    async with program.consumer() as consumer:
        with pytest.raises(ValueError, match="is no partition: give a topic and a number"):
            consumer.assign([key(), wrong])  # type: ignore[list-item]
        assert consumer.assignment == ()
        consumer.assign([(TOPIC, 0)])
        assert await program.poll(consumer) == ["a"]


async def test_a_seek_cancels_the_parked_fetch() -> None:
    program = Program()
    program.append("a")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        await program.poll(consumer)
        await program.clock.run(10)
        assert program.calls.parked == 1
        consumer.seek_to_beginning()
        await settle()
        assert program.calls.cancelled == 1
        assert await program.poll(consumer) == ["a"]


async def test_what_the_consumer_decides_by_itself_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    program = Program()
    program.append("a")
    async with program.consumer() as consumer:
        consumer.assign([key()])
        consumer.seek(key(), 50)
        with caplog.at_level(logging.WARNING):
            assert await program.poll(consumer) == ["a"]
    assert "orders-0" in caplog.text


async def test_a_consumer_that_was_not_started_or_was_closed_gives_nothing() -> None:
    program = Program()
    consumer = Consumer("boot:9092", calls=program.calls, clock=program.clock)
    with pytest.raises(AssertionError, match="async with"):
        await consumer.poll(0)
    await consumer.close()
    with pytest.raises(BadEndpoint):
        Consumer("", config=ConsumerConfig())
