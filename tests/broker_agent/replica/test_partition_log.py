"""The log of one replica: appends of leaders and followers, reads, cuts, retention, and what a start finds."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from broker_agent.replica import producers
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.producers import PartitionRefused
from broker_agent.replica.retention import RetentionConfig
from broker_agent.replica.time_search import TimedOffset
from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import HEADER_BYTES, STAMP_BYTES, genesis_chain
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, decode_data, pack_records
from metadata_log.format.errors import CorruptLog, ErrorCode, LogFormatError, NotABoundary
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.store.damage import LostTail
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.broker_agent.replica.partition_logs import NOW_MS, SMALL, TOPIC_ID, append, copy_all, opened, records
from tests.golden.samples import sample_batches
from tests.sim.world.disk import MemoryDirectory


def segment_names(directory: MemoryDirectory) -> list[str]:
    return [name for name in directory.names() if name.endswith(".log")]


# --- appending -------------------------------------------------------------------------------------------------------


def test_what_a_producer_sent_reads_back() -> None:
    log = opened()
    sent = [DataRecord(NOW_MS, b"k", b"v", (("trace", b"1"),)), DataRecord(NOW_MS + 1, None, None)]

    assert log.append(pack_records(sent), NO_STAMP, 3, NOW_MS) == (0, 2, False)
    assert append(log, 3, epoch=3) == (2, 5, False)

    first, second = log.read(0, 1 << 20, log.shape.end)
    assert decode_data(first) == sent and (first.epoch, second.base_offset, second.end_offset) == (3, 2, 5)


def test_an_append_is_durable_only_when_it_was_flushed() -> None:
    """A replica reports its end only up to its own fsync."""
    log = opened()
    append(log, 5)
    ticket = log.begin_flush()
    append(log, 2)
    assert (log.shape.end, log.shape.flushed_end) == (7, 0)

    ticket.sync()
    assert log.complete_flush(ticket)
    assert (log.shape.end, log.shape.flushed_end) == (7, 5)


def test_a_log_does_not_rest_while_a_worker_flushes() -> None:
    """Else the worker would flush nothing, and the records would count as durable."""
    directory = MemoryDirectory("/p")
    log = opened(directory)
    append(log, 5)
    ticket = log.begin_flush()
    log.rest()
    ticket.sync()
    assert log.complete_flush(ticket) and log.shape.flushed_end == 5

    assert all(opened(directory.crash(Random(seed))).shape.end == 5 for seed in range(9))


def test_a_repeated_append_gets_the_old_offsets() -> None:
    log = opened()
    first = append(log, 4, stamp=ProducerStamp(7, 0, 0))
    append(log, 1, stamp=ProducerStamp(7, 0, 4))

    again = append(log, 4, stamp=ProducerStamp(7, 0, 0))

    assert (again.base_offset, again.end_offset, again.is_duplicate) == (*first[:2], True)
    assert log.shape.end == 5


@pytest.mark.parametrize(
    ("stamp", "code"),
    [
        (ProducerStamp(7, 1, 6), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ProducerStamp(7, 0, 4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (ProducerStamp(8, 0, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_refused_append_changes_nothing(stamp: ProducerStamp, code: ErrorCode) -> None:
    log = opened()
    append(log, 4, stamp=ProducerStamp(7, 1, 0))

    with pytest.raises(PartitionRefused) as refused:
        append(log, stamp=stamp)

    assert refused.value.code is code and log.shape.end == 4


def test_a_timestamp_far_ahead_of_the_leaders_clock_is_refused() -> None:
    """It would stop the retention by time for all records behind it."""
    log = opened()
    log.append(records(at_ms=NOW_MS + 3_600_000), NO_STAMP, 1, NOW_MS)
    with pytest.raises(PartitionRefused) as refused:
        log.append(records(at_ms=NOW_MS + 3_600_001), NO_STAMP, 1, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP and log.shape.end == 1


def test_a_batch_above_the_topics_limit_is_refused() -> None:
    log = opened(config=SMALL._replace(max_message_bytes=100))
    append(log, size=50)
    with pytest.raises(PartitionRefused) as refused:
        append(log, size=100)
    assert refused.value.code is ErrorCode.RECORD_BATCH_TOO_LARGE and log.shape.end == 1


def test_a_follower_has_the_leaders_bytes_and_the_leaders_producers() -> None:
    leader, follower = opened(), opened()
    for i in range(20):
        append(leader, 2, size=150, stamp=ProducerStamp(7, 0, 2 * i), epoch=1 + i // 10)

    copy_all(leader, follower)

    leader.flush()
    assert follower.shape == leader.shape
    again = append(follower, 2, size=150, stamp=ProducerStamp(7, 0, 38), epoch=3)
    assert again == (38, 40, True)


def test_a_follower_refuses_what_does_not_continue_its_log() -> None:
    leader, follower = opened(), opened()
    append(leader)
    append(leader)
    first, second = leader.read(0, 1 << 20, 2)

    for bad in ([second], [first, first], [sample_batches()[0]], [first, sample_batches()[1]]):
        with pytest.raises(LogFormatError):
            follower.append_fetched(bad, NOW_MS)
        assert follower.shape.end == 0 and len(follower.producers) == 0


def test_a_refused_batch_does_not_touch_the_producers() -> None:
    """A late answer brings batches that the follower has already."""
    leader, follower = opened(), opened()
    for i in range(3):
        append(leader, stamp=ProducerStamp(7, 0, i))
    batches = leader.read(0, 1 << 20, 3)
    follower.append_fetched(batches, NOW_MS)

    with pytest.raises(LogFormatError):
        follower.append_fetched(batches[:1], NOW_MS)

    assert append(follower, stamp=ProducerStamp(7, 0, 3)).base_offset == 3


def test_batches_of_another_partition_never_continue_a_log() -> None:
    leader = PartitionLog.open(MemoryDirectory(), TOPIC_ID, 1, wall_ms=NOW_MS)
    append(leader)

    with pytest.raises(LogFormatError, match="chain"):
        opened().append_fetched(leader.read(0, 1, 1), NOW_MS)


def test_a_full_disk_appends_nothing() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory)
    append(log, stamp=ProducerStamp(7, 0, 0))
    directory.limit_space(directory.used_bytes)
    with pytest.raises(OSError):
        append(log, size=3_000, stamp=ProducerStamp(7, 0, 1))
    assert log.shape.end == 1

    directory.limit_space(None)
    assert append(log, stamp=ProducerStamp(7, 0, 1)).base_offset == 1


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    """From memory and from disk."""
    log = opened()
    for _ in range(30):
        append(log, 3, size=60)
    log.flush()

    for _ in range(2):
        for offset in range(90):
            batch = log.read(offset, 1, 90)[0]
            assert batch.base_offset <= offset < batch.end_offset
        log.rest()


def test_a_read_ends_at_the_high_watermark_and_returns_whole_batches() -> None:
    log = opened()
    for _ in range(5):
        append(log, 2)

    assert [batch.end_offset for batch in log.read(2, 1 << 20, 6)] == [4, 6]
    assert [batch.end_offset for batch in log.read(2, 1, 6)] == [4]
    assert log.read(6, 1 << 20, 6) == log.read(8, 1 << 20, 6) == log.read(10, 1 << 20, 99) == ()


def test_an_offset_outside_the_log_is_refused() -> None:
    log = opened()
    for _ in range(4):
        append(log)
    log.delete_below(2)

    for offset in (-1, 1, 5):
        with pytest.raises(PartitionRefused, match="has the offsets 2 to 4") as refused:
            log.read(offset, 100, 4)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_record_of_a_time_is_found() -> None:
    log = opened()
    for at_ms in (100, 300, 200, 250, 500, 400):
        log.append(
            pack_records([DataRecord(at_ms, None, bytes(700)), DataRecord(at_ms + 20, None, b"")]), NO_STAMP, 1, NOW_MS
        )

    assert log.search_time(0, 12).run() == TimedOffset(0, 100)
    assert log.search_time(110, 12).run() == TimedOffset(1, 120)
    assert log.search_time(250, 12).run() == TimedOffset(2, 300)
    assert log.search_time(321, 12).run() == TimedOffset(8, 500)
    assert log.search_time(321, 8).run() is None
    assert log.search_time(521, 12).run() is None
    log.flush()
    log.delete_below(10)
    assert log.search_time(410, 12).run() == TimedOffset(11, 420)
    assert log.search_time(500, 12).run() is None


def test_a_cut_forgets_the_largest_timestamp() -> None:
    log = opened()
    append(log, at_ms=NOW_MS)
    append(log, at_ms=NOW_MS - 50)
    append(log, at_ms=NOW_MS + 50)
    log.truncate(2, NOW_MS)

    assert log.search_time(NOW_MS, 2).run() == TimedOffset(0, NOW_MS)
    assert log.search_time(NOW_MS + 1, 2).run() is None


# --- cutting ---------------------------------------------------------------------------------------------------------


def test_the_end_of_a_leader_epoch_is_that_of_the_largest_epoch_below(tmp_path: Path) -> None:
    """KIP-101, KIP-279."""
    log = opened()
    for epoch in (1, 1, 4, 4, 4, 6):
        append(log, epoch=epoch)

    ends = {epoch: log.end_of_epoch(epoch) for epoch in (0, 1, 2, 3, 4, 5, 6, 7)}

    assert ends[0] == (0, 0)
    assert ends[1] == ends[2] == ends[3] == (2, 1)
    assert ends[4] == ends[5] == (5, 4)
    assert ends[6] == ends[7] == (6, 6)


def test_a_truncation_voids_flushes_and_keeps_the_log_that_is_below() -> None:
    log = opened()
    for epoch in (1, 1, 2, 2):
        append(log, 2, size=300, epoch=epoch)
    ticket = log.begin_flush()

    log.truncate(4, NOW_MS)

    ticket.sync()
    assert not log.complete_flush(ticket)
    assert (log.shape.end, log.shape.last_epoch) == (4, 1)
    assert append(log, epoch=3).base_offset == 4


def test_a_truncation_inside_a_batch_or_below_the_log_is_refused() -> None:
    log = opened()
    for _ in range(3):
        append(log, 2)
    with pytest.raises(NotABoundary):
        log.truncate(3, NOW_MS)
    log.delete_below(2)
    with pytest.raises(PartitionRefused) as refused:
        log.truncate(1, NOW_MS)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE and log.shape.end == 6
    log.truncate(9, NOW_MS)
    assert log.shape.end == 6


def test_the_producers_go_back_with_the_log() -> None:
    """A batch that was cut may be sent again, and is appended again; the batch before it is still known."""
    log = opened()
    append(log, 3, stamp=ProducerStamp(7, 0, 0))
    append(log, 3, stamp=ProducerStamp(7, 0, 3))
    append(log, 1, stamp=ProducerStamp(8, 0, 0))

    log.truncate(3, NOW_MS)

    assert append(log, 3, stamp=ProducerStamp(7, 0, 0), epoch=2).is_duplicate
    assert append(log, 3, stamp=ProducerStamp(7, 0, 3), epoch=2) == (3, 6, False)
    assert append(log, 1, stamp=ProducerStamp(8, 0, 0), epoch=2) == (6, 7, False)


def test_a_producer_whose_batches_lie_below_all_cut_ones_is_known_after_a_truncation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More batches of the producer are cut than are remembered, and the checkpoints reach only so far."""
    monkeypatch.setattr(producers, "CHECKPOINT_BYTES", 1_000)
    for end in (3, 40, 57):
        log = opened()
        for i in range(60):
            append(log, 1, size=100, stamp=ProducerStamp(7, 0, i))
        log.truncate(end, NOW_MS)
        with pytest.raises(PartitionRefused):
            append(log, 1, stamp=ProducerStamp(7, 0, end + 1), epoch=2)
        assert append(log, 1, stamp=ProducerStamp(7, 0, end), epoch=2) == (end, end + 1, False)


def test_a_truncation_above_a_moved_start_does_not_hold_producers_to_sequences_it_has_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. Producer 7 appends 0, then (after a checkpoint) 1. The log's start moves above both.
    2. The log is truncated. The checkpoint says "7 is at 0", and the batch with 1 cannot be read again.
    3. Producer 7 sends 2, and must not be refused for ever.
    """
    monkeypatch.setattr(producers, "CHECKPOINT_BYTES", 100)
    log = opened()
    append(log, stamp=ProducerStamp(7, 0, 0), size=200)
    append(log, stamp=ProducerStamp(7, 0, 1))
    append(log)
    append(log)
    monkeypatch.setattr(producers, "CHECKPOINT_BYTES", 1 << 20)
    log.delete_below(2)
    log.truncate(3, NOW_MS)

    assert append(log, stamp=ProducerStamp(7, 0, 2), epoch=2) == (3, 4, False)


def test_a_follower_far_behind_begins_at_the_leaders_log_start() -> None:
    directory = MemoryDirectory("/p")
    leader, follower = opened(), opened(directory)
    for i in range(20):
        append(leader, size=300, epoch=1 + i // 8, stamp=ProducerStamp(7, 0, i))
    append(follower)
    leader.flush()
    leader.delete_below(12)

    start = leader.start
    follower.begin_at(start.start, start.chain, start.timestamp_ms)
    assert (follower.shape.start, follower.shape.end) == (OffsetAndEpoch(12, 2), 12)
    copy_all(leader, follower)

    assert follower.shape == leader.shape
    assert opened(directory).shape == leader.shape
    assert append(follower, size=300, epoch=3, stamp=ProducerStamp(7, 0, 19)).is_duplicate


def test_a_log_that_begins_above_zero_does_not_know_which_producers_began_below() -> None:
    directory = MemoryDirectory("/p")
    follower = opened(directory)
    follower.begin_at(OffsetAndEpoch(100, 3), bytes(32), NOW_MS)
    follower.close()

    assert append(opened(directory), epoch=3, stamp=ProducerStamp(7, 0, 40)) == (100, 101, False)


def test_records_are_deleted_by_batches_and_files_by_segments() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory)
    for _ in range(12):
        append(log, 5, size=80)
    assert len(segment_names(directory)) == 4

    assert log.delete_below(13) == 10
    assert len(segment_names(directory)) == 4
    assert log.delete_below(9) == 10
    assert log.delete_below(31) == 30
    assert segment_names(directory)[0] == "00000000000000000030.log"
    assert log.delete_below(1_000) == 60 == log.shape.end
    log.close()
    log = opened(directory)
    assert (log.shape.start.offset, log.shape.end) == (60, 60)
    assert append(log).base_offset == 60


def test_retention_by_size_keeps_the_newest_segments() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory, SMALL._replace(retention=RetentionConfig(-1, 4_000, -1)))
    for _ in range(12):
        append(log, 5, size=80)
    size = log.size_bytes

    assert log.apply_retention(high_watermark=14, wall_ms=NOW_MS) == 0
    start = log.apply_retention(high_watermark=60, wall_ms=NOW_MS)

    assert start == 15 and size > log.size_bytes >= 4_000
    assert log.apply_retention(high_watermark=60, wall_ms=NOW_MS) == 15


def test_retention_by_time_deletes_the_active_segment_too() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory, SMALL._replace(retention=RetentionConfig(1_000, -1, -1)))
    for i in range(8):
        append(log, size=900, at_ms=NOW_MS + 100 * i)

    assert log.apply_retention(8, NOW_MS + 1_000) == 0
    assert log.apply_retention(8, NOW_MS + 1_150) == 2
    assert log.apply_retention(8, NOW_MS + 5_000) == 8 == log.shape.end
    assert segment_names(directory) == ["00000000000000000008.log"]
    assert log.apply_retention(8, NOW_MS + 9_000) == 8
    assert append(log).base_offset == 8


def test_a_segment_ends_when_it_is_old_so_that_few_records_are_deleted_in_time() -> None:
    log = opened(config=SMALL._replace(retention=RetentionConfig(1_000, -1, 500)))
    append(log, at_ms=NOW_MS)
    log.apply_retention(1, NOW_MS + 600)
    append(log, at_ms=NOW_MS + 650)

    assert log.apply_retention(2, NOW_MS + 1_100) == 1


def test_a_silent_producer_expires() -> None:
    log = opened(config=SMALL._replace(producer_id_expiration_ms=1_000))
    append(log, stamp=ProducerStamp(7, 0, 0))
    log.apply_retention(1, NOW_MS + 1_000)
    assert len(log.producers) == 0


def test_a_changed_configuration_counts_at_once() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory)
    log.configure(PartitionLogConfig(segment_bytes=300))
    for _ in range(3):
        append(log, size=200)
    assert len(segment_names(directory)) == 3


# --- starting --------------------------------------------------------------------------------------------------------


def test_a_start_finds_records_epochs_and_producers() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory)
    for i in range(12):
        append(log, 2, size=200, stamp=ProducerStamp(7, 0, 2 * i), epoch=1 + i // 5)
    log.flush()
    shape = log.shape
    log.close()

    log = opened(directory)

    assert log.shape == shape
    assert append(log, 2, size=200, stamp=ProducerStamp(7, 0, 22), epoch=3) == (22, 24, True)
    with pytest.raises(PartitionRefused):
        append(log, stamp=ProducerStamp(7, 0, 25), epoch=3)


def filled(directory: MemoryDirectory) -> None:
    log = opened(directory)
    for _ in range(12):
        append(log, 2, size=200)
        log.flush()
    log.close()


def test_damage_inside_a_log_is_refused() -> None:
    directory = MemoryDirectory("/p")
    filled(directory)
    directory.flip_bit(segment_names(directory)[0], 300)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="damaged"):
            opened(directory)


def with_one_batch(log: PartitionLog) -> None:
    append(log, 2, size=200)


def with_many_batches(log: PartitionLog) -> None:
    for _ in range(12):
        append(log, 2, size=200)


def begun_at_a_leaders_start(log: PartitionLog) -> None:
    log.begin_at(OffsetAndEpoch(100, 1), bytes(32), NOW_MS)
    with_many_batches(log)


@pytest.mark.parametrize("fill", [with_one_batch, with_many_batches, begun_at_a_leaders_start])
def test_any_damage_of_the_very_first_batch_is_refused(fill: Callable[[PartitionLog], None]) -> None:
    """No batch lies below it, so the chain below is in the segment's header only. Each byte of the batch's own header is damaged
    once, those of its CRC and its chain too."""
    for at in range(SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + HEADER_BYTES + STAMP_BYTES):
        directory = MemoryDirectory("/p")
        log = opened(directory)
        fill(log)
        log.flush()
        log.close()
        directory.flip_bit(segment_names(directory)[0], at)
        with pytest.raises(CorruptLog):
            opened(directory)


def test_a_lost_end_is_refused() -> None:
    """Else a replica that has lost acknowledged records would count as one that has them."""
    directory = MemoryDirectory("/p")
    filled(directory)
    directory.edit(segment_names(directory)[-1], lambda content: content.__delitem__(slice(300, None)))
    for _ in range(2):
        with pytest.raises(LostTail):
            opened(directory)


def test_a_directory_of_another_partition_is_refused() -> None:
    directory = MemoryDirectory("/p")
    filled(directory)
    with pytest.raises(CorruptLog, match="not the log of partition 3"):
        PartitionLog.open(directory, TOPIC_ID, 3, wall_ms=NOW_MS, config=SMALL)
    assert genesis_chain("a/1", b"") != genesis_chain("a/11", b"")


def test_an_idle_log_has_no_file_open(tmp_path: Path) -> None:
    """Thousands of partitions must not use up the broker's file descriptors."""
    logs = [
        PartitionLog.open(RealDirectory(tmp_path / str(i)), TOPIC_ID, i, wall_ms=NOW_MS, config=SMALL) for i in range(3)
    ]

    def open_files() -> int:
        return sum(str(tmp_path) in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())

    for log in logs:
        for _ in range(12):
            append(log, 2, size=200)
        log.flush()
        log.read(0, 1 << 20, 24)
    assert open_files() <= 3 * 3
    for log in logs:
        log.rest()
    assert open_files() == 0
    assert [len(log.read(0, 1 << 20, 24)) for log in logs] == [12, 12, 12]
    append(logs[0])
    logs[0].rest()
    assert logs[0].shape.flushed_end == 24 and open_files() >= 1
    for log in logs:
        log.close()
    assert open_files() == 0
