"""The whole log: its content, its promises, and its state after a crash."""

from pathlib import Path

import pytest

from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.format.batch import Batch, encode, genesis_chain
from metadata_log.format.codec import encode_records
from metadata_log.format.errors import CorruptLog, LogFormatError, NotABoundary
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart
from metadata_log.format.records import KRaftVersion, NoOp, Record, Topic, Voter, Voters
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.metadata_log.store.damaged_log import everything
from tests.sim.world.disk import MemoryDirectory

SMALL = LogConfig(segment_bytes=1024, tail_bytes=600)
ID = bytes(range(16))


@pytest.fixture(params=["real", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return RealDirectory(tmp_path / "data") if request.param == "real" else MemoryDirectory()


def topics(count: int, name: str = "topic") -> list[Record]:
    return [Topic(f"{name}-{i}", ID) for i in range(count)]


def filled(directory: Directory, batches: int = 20, config: LogConfig = SMALL) -> Log:
    """Make a flushed log of `batches` batches of two records, with a new epoch every seven."""
    log = Log.open(directory, config=config)
    for i in range(batches):
        log.append(topics(2, f"batch-{i}"), epoch=1 + i // 7, wall_ms=1000 + i)
    log.flush()
    return log


# --- holding -------------------------------------------------------------------------------------------------------


def test_a_new_log_is_empty_and_starts_where_it_is_told(directory: Directory) -> None:
    log = Log.open(directory, start=OffsetAndEpoch(50, 3), chain=b"c" * 32, timestamp_ms=9)
    shape = log.shape

    assert (shape.start, shape.end, shape.flushed_end) == (OffsetAndEpoch(50, 3), 50, 50)
    assert (shape.chain, shape.last_epoch, shape.epochs, log.last_timestamp_ms) == (b"c" * 32, 3, (), 9)
    assert log.read(50, 100) == ()
    log.close()
    assert Log.open(directory).shape == shape


def test_what_was_appended_is_read_back_before_and_after_reopening(directory: Directory) -> None:
    log = filled(directory)
    batches = everything(log)
    assert [batch.base_offset for batch in batches] == list(range(0, 40, 2))
    assert len([name for name in directory.names() if name.endswith(".log")]) > 3
    shape = log.shape
    log.close()

    again = Log.open(directory, config=SMALL)
    assert again.shape == shape
    assert everything(again) == batches
    assert again.last_timestamp_ms == 1019
    again.close()


def test_the_shape_follows_every_append(directory: Directory) -> None:
    log = filled(directory)

    shape = log.shape
    shape.check_invariants()
    assert shape.epochs == (EpochStart(1, 0), EpochStart(2, 14), EpochStart(3, 28))
    assert (shape.end, shape.flushed_end, shape.chain) == (40, 40, shape.flushed_chain)
    batch = log.append([NoOp()], epoch=3, wall_ms=0)
    assert (log.shape.end, log.shape.flushed_end, log.shape.chain) == (41, 40, batch.chain)
    assert shape.end == 40, "a shape is a value"


def test_time_in_the_log_never_goes_back(directory: Directory) -> None:
    log = filled(directory)

    assert log.append([NoOp()], epoch=3, wall_ms=5).last_timestamp_ms == 1019
    assert log.append([NoOp()], epoch=3, wall_ms=2000).last_timestamp_ms == 2000


@pytest.mark.parametrize("tail_bytes", [1, 600, 1 << 20])
def test_reads_from_memory_and_from_disk_agree(directory: Directory, tail_bytes: int) -> None:
    log = filled(directory, config=SMALL._replace(tail_bytes=tail_bytes))
    batches = everything(log)
    chains = [genesis_chain("", b""), *(batch.chain for batch in batches)]

    for offset in range(41):
        assert log.chain_at(offset) == (chains[offset // 2] if offset % 2 == 0 else None)
        assert log.is_boundary(offset) is (offset % 2 == 0)
    for i in range(20):
        assert log.read(2 * i, 1 << 30) == tuple(batches[i:])
        assert log.read(2 * i, 1) == (batches[i],), "at least one"
        assert log.read(2 * i, sum(len(batch.data) for batch in batches[i : i + 3])) == tuple(batches[i : i + 3])
        assert log.read(2 * i, 1 << 30, until=min(2 * i + 5, 40)) == tuple(batches[i : i + 2])
        assert log.read(2 * i, 1 << 30, until=2 * i + 1) == ()
    assert log.read(40, 100) == ()
    assert (log.chain_at(-1), log.chain_at(41)) == (None, None)


def test_a_follower_takes_batches_as_they_are(directory: Directory) -> None:
    leader = filled(MemoryDirectory())
    follower = Log.open(directory, config=SMALL)
    batches = everything(leader)
    follower.append_batches(batches[:1])
    follower.append_batches(batches[1:17])
    follower.append_batches([])
    follower.append_batches(batches[17:])
    follower.flush()

    assert follower.shape == leader.shape
    assert everything(follower) == batches
    follower.close()
    assert everything(Log.open(directory, config=SMALL)) == batches


def sealed(previous: Log, base_offset: int | None = None, epoch: int = 9, chain: bytes | None = None) -> Batch:
    return encode(
        encode_records([NoOp()]),
        base_offset=previous.shape.end if base_offset is None else base_offset,
        epoch=epoch,
        record_count=1,
        first_timestamp_ms=0,
        last_timestamp_ms=0,
        is_control=False,
        previous_chain=previous.shape.chain if chain is None else chain,
    )


def test_what_does_not_continue_the_log_is_refused_whole() -> None:
    log = filled(MemoryDirectory())
    good = sealed(log)
    second = sealed(log, good.end_offset, 8, good.chain)
    shape = log.shape
    for bad in (
        [sealed(log, base_offset=39)],
        [sealed(log, base_offset=41)],
        [sealed(log, epoch=2)],
        [sealed(log, chain=bytes(32))],
        [good, second],
        [good, good],
    ):
        with pytest.raises(LogFormatError):
            log.append_batches(bad)
        assert log.shape == shape
    log.append_batches([good])


def test_a_control_batch_that_nobody_can_read_is_refused() -> None:
    log = Log.open(MemoryDirectory())
    poison = encode(
        b"\x93D\x00\x07", base_offset=0, epoch=1, record_count=1, first_timestamp_ms=0, last_timestamp_ms=0,
        is_control=True, previous_chain=log.shape.chain,
    )  # fmt: skip
    with pytest.raises(LogFormatError):
        log.append_batches([poison])
    assert log.shape.end == 0


def test_the_voter_history_follows_appends_truncations_and_reopening(directory: Directory) -> None:
    log = Log.open(directory)
    one, two = Voters((Voter(1, ID, ()),)), Voters((Voter(1, ID, ()), Voter(2, ID, ())))
    log.append([KRaftVersion(1), one], 1, 0)
    log.append([NoOp()], 1, 0)
    log.append([two], 1, 0)
    log.flush()
    history = ((0, KRaftVersion(1)), (1, one), (3, two))

    assert log.control_records() == history
    log.close()
    log = Log.open(directory)
    assert log.control_records() == history
    log.truncate(3)
    assert log.control_records() == history[:2]
    log.drop_prefix(OffsetAndEpoch(2, 1))
    assert log.control_records() == ()


def test_a_batch_that_is_too_large_is_refused_and_nothing_happened() -> None:
    log = filled(MemoryDirectory())
    shape = log.shape
    with pytest.raises(LogFormatError, match="limit"):
        log.append([Topic("x" * (1 << 20), ID)], 3, 0)
    assert log.shape == shape


# --- flushing ------------------------------------------------------------------------------------------------------


def test_only_a_completed_flush_moves_the_flushed_end() -> None:
    log = filled(MemoryDirectory())
    log.append([NoOp()], 3, 0)
    ticket = log.begin_flush()
    log.append([NoOp()], 3, 0)
    ticket.sync()
    assert log.shape.flushed_end == 40

    assert log.complete_flush(ticket)
    assert (log.shape.flushed_end, log.shape.end) == (41, 42)
    assert log.shape.flushed_chain == log.chain_at(41)


def test_tickets_may_come_back_in_any_order() -> None:
    log = filled(MemoryDirectory())
    tickets = []
    for _ in range(2):
        log.append([NoOp()], 3, 0)
        tickets.append(log.begin_flush())
    for ticket in reversed(tickets):
        ticket.sync()
        assert log.complete_flush(ticket)
        assert log.shape.flushed_end == 42


def test_a_ticket_outlives_the_segment_it_was_taken_for() -> None:
    log = filled(MemoryDirectory())
    log.append([NoOp()], 3, 0)
    ticket = log.begin_flush()
    for _ in range(30):
        log.append([NoOp()], 3, 0)
    ticket.sync()

    assert log.complete_flush(ticket)
    assert log.shape.flushed_end == 41


def test_a_truncation_voids_the_tickets_that_are_out() -> None:
    """A late "flushed 41" must not acknowledge a record 40 that was replaced meanwhile and is not durable."""
    log = filled(MemoryDirectory())
    log.append([NoOp()], 3, 0)
    ticket = log.begin_flush()
    log.truncate(40)
    log.append([Topic("another", ID)], 4, 0)
    ticket.sync()

    assert not log.complete_flush(ticket)
    assert log.shape.flushed_end == 40


def test_a_reset_voids_the_tickets_that_are_out() -> None:
    log = filled(MemoryDirectory())
    log.append([NoOp()], 3, 0)
    ticket = log.begin_flush()
    log.reset_to(OffsetAndEpoch(100, 5), b"c" * 32)
    ticket.sync()

    assert not log.complete_flush(ticket)
    assert log.shape.flushed_end == 100


def test_an_idle_flush_costs_nothing() -> None:
    directory = MemoryDirectory()
    log = filled(directory)
    operations = directory.operations
    log.flush()

    assert directory.operations == operations


def test_a_failed_flush_moves_nothing_and_ends_the_log_s_work() -> None:
    directory = MemoryDirectory()
    log = filled(directory)
    log.append([NoOp()], 3, 0)
    directory.fail_next_flush(directory.names()[-3])
    with pytest.raises(FlushFailed):
        log.flush()

    assert log.shape.flushed_end == 40
    for attempt in (log.flush, lambda: log.append([NoOp()], 3, 0)):
        with pytest.raises(FlushFailed):
            attempt()


def test_a_truncation_whose_flush_fails_has_taken_its_promise_back() -> None:
    """The note may say 10 on the disk already. Example: the process ends, the kernel writes the note's page, and rot destroys the
    records above 10. The next start finds the end 10, and nobody may have counted on 40 since."""
    directory = MemoryDirectory()
    log = filled(directory)
    directory.fail_next_flush(FLUSHED_NAME)
    with pytest.raises(FlushFailed):
        log.truncate(10)
    assert (log.shape.flushed_end, log.shape.end) == (10, 40)


def test_a_full_disk_refuses_the_append_and_takes_it_when_there_is_room() -> None:
    directory = MemoryDirectory()
    log = filled(directory)
    shape = log.shape
    directory.limit_space(directory.used_bytes)
    with pytest.raises(OSError, match="No space"):
        for _ in range(20):
            shape = log.shape
            log.append(topics(2), 3, 0)
    assert log.shape == shape

    directory.limit_space(None)
    log.append(topics(2), 3, 0)
    log.flush()
    assert Log.open(directory.kill(), config=SMALL).shape == log.shape


def test_a_disk_that_fills_up_where_a_new_segment_begins_loses_nothing() -> None:
    directory = MemoryDirectory()
    log = filled(directory)
    directory.limit_space(directory.used_bytes)
    refused = 0
    for i in range(60):
        directory.limit_space(directory.used_bytes + i % 7 * 40)
        try:
            log.append(topics(2), 3, 0)
        except OSError:
            refused += 1
    assert refused > 5
    directory.limit_space(None)
    log.append(topics(2), 3, 0)
    log.flush()

    again = Log.open(directory.kill(), config=SMALL)
    assert (again.shape, everything(again)) == (log.shape, everything(log))


# --- cutting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [0, 2, 12, 14, 26, 38, 40])
def test_a_truncation_is_exact_durable_and_leaves_a_log_that_goes_on(directory: Directory, end: int) -> None:
    log = filled(directory)
    before = everything(log)
    log.truncate(end)

    log.shape.check_invariants()
    kept = [batch for batch in before if batch.end_offset <= end]
    assert everything(log) == kept
    assert (log.shape.end, log.shape.flushed_end) == (end, end)
    assert log.shape.last_epoch == (kept[-1].epoch if kept else 0)
    assert log.last_timestamp_ms == (kept[-1].last_timestamp_ms if kept else 0)
    assert log.shape.chain == log.shape.flushed_chain == (kept[-1].chain if kept else genesis_chain("", b""))
    log.append(topics(3, "another"), 9, 5000)
    log.flush()
    shape, batches = log.shape, everything(log)
    log.close()
    again = Log.open(directory, config=SMALL)
    assert (again.shape, everything(again)) == (shape, batches)
    again.close()


def test_a_truncation_above_the_flushed_end_leaves_that_alone() -> None:
    log = filled(MemoryDirectory())
    log.append(topics(2), 3, 0)
    log.append(topics(2), 3, 0)
    log.truncate(42)

    assert (log.shape.flushed_end, log.shape.end) == (40, 42)


def test_a_truncation_into_a_batch_is_refused_and_cuts_nothing() -> None:
    """A faulty leader may name such an offset."""
    log = filled(MemoryDirectory())
    before, ticket = log.shape, log.begin_flush()
    with pytest.raises(NotABoundary, match=r"13 is not a batch boundary .* nothing was cut"):
        log.truncate(13)
    assert log.shape == before and log.complete_flush(ticket), "no ticket is void"


def test_a_reset_leaves_nothing_of_the_old_log(directory: Directory) -> None:
    log = filled(directory)
    log.reset_to(OffsetAndEpoch(100, 5), b"c" * 32, timestamp_ms=7000)

    shape = log.shape
    shape.check_invariants()
    assert (shape.start, shape.end, shape.flushed_end, shape.snapshot) == ((100, 5), 100, 100, (100, 5))
    assert [name for name in directory.names() if name.endswith(".log")] == ["00000000000000000100.log"]
    assert log.append([NoOp()], 5, 1).last_timestamp_ms == 7000
    log.flush()
    shape = log.shape
    log.close()
    assert Log.open(directory, config=SMALL).shape == shape


def test_a_reset_may_go_back(directory: Directory) -> None:
    """A log that diverged is replaced by a snapshot with a lower end. The old note must not make the new log look
    short.
    """
    log = filled(directory)
    log.reset_to(OffsetAndEpoch(10, 5), b"c" * 32)
    log.close()

    assert Log.open(directory, config=SMALL).shape.end == 10


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("offset", [2, 14, 20, 38, 40])
def test_a_dropped_prefix_is_gone_and_the_rest_is_as_before(directory: Directory, offset: int, archive: bool) -> None:
    config = SMALL._replace(archive=archive)
    log = filled(directory, config=config)
    before, names = everything(log), [name for name in directory.names() if name.endswith(".log")]
    epoch = log.shape.epoch_below(offset)
    assert epoch is not None
    retired = log.drop_prefix(OffsetAndEpoch(offset, epoch))

    log.shape.check_invariants()
    assert log.shape.start == OffsetAndEpoch(offset, epoch)
    rest = [batch for batch in before if batch.base_offset >= offset]
    assert everything(log) == rest
    assert (log.chain_at(offset - 2), log.is_boundary(offset)) == (None, True)
    assert sorted(retired + [name for name in directory.names() if name.endswith(".log")]) == names
    if archive and retired:
        assert directory.subdirectory("archive").names() == retired
    shape, last_ms = log.shape, log.last_timestamp_ms
    log.close()
    again = Log.open(directory, config=config)
    assert (again.shape, everything(again), again.last_timestamp_ms) == (shape, rest, last_ms)
    again.append([NoOp()], 3, 0)
    again.shape.check_invariants()
    again.close()


def test_dropping_what_is_dropped_does_nothing() -> None:
    log = filled(MemoryDirectory())
    log.drop_prefix(OffsetAndEpoch(20, 2))

    assert log.drop_prefix(OffsetAndEpoch(20, 2)) == []
    assert log.drop_prefix(OffsetAndEpoch(4, 1)) == []


def test_the_newest_snapshot_is_part_of_the_shape() -> None:
    log = filled(MemoryDirectory())
    assert log.shape.snapshot is None
    log.note_snapshot(OffsetAndEpoch(20, 2))
    assert log.shape.snapshot == (20, 2)


def test_an_older_snapshot_that_is_finished_late_is_not_the_newest() -> None:
    """A node writes its snapshot at 10 while it installs the leader's snapshot at 40; its own is ready last.

    A log that starts at 40 must not offer the snapshot at 10: a follower would find no records to continue with.
    """
    log = filled(MemoryDirectory())
    log.reset_to(OffsetAndEpoch(40, 3), bytes(32))
    log.note_snapshot(OffsetAndEpoch(40, 3))

    log.note_snapshot(OffsetAndEpoch(10, 1))

    assert log.shape.snapshot == OffsetAndEpoch(40, 3)


def test_other_people_s_files_are_left_alone(directory: Directory) -> None:
    log = filled(directory)
    for name in ("00000000000000000020-0000000002.checkpoint", "00000000000000000020-0000000002.part", "notes.txt"):
        directory.write_atomic(name, b"theirs")
    log.reset_to(OffsetAndEpoch(20, 2), b"c" * 32)
    log.close()
    Log.open(directory).close()

    assert "notes.txt" in directory.names()
    assert directory.read("00000000000000000020-0000000002.checkpoint", 99) == b"theirs"


# --- rot -----------------------------------------------------------------------------------------------------------


def test_a_read_of_rotten_bytes_says_where() -> None:
    directory = MemoryDirectory()
    log = filled(directory)
    name = directory.names()[0]
    directory.flip_bit(name, SEGMENT_HEADER_BYTES + 90)

    with pytest.raises(CorruptLog, match=name) as e:
        log.read(0, 1 << 20)
    assert (e.value.position, e.value.offset) == (SEGMENT_HEADER_BYTES, 0)


# --- the archive ---------------------------------------------------------------------------------------------------


def archived(directory: MemoryDirectory) -> list[str]:
    return directory.subdirectory("archive").names()


def test_the_archive_keeps_to_its_limits() -> None:
    """Archived segments are deleted by size and by age in the log's time, oldest first. The newest one stays while it
    fits.
    """
    limits = LogConfig(segment_bytes=2048)
    for config, expected in (
        (limits, 4),
        (limits._replace(archive_max_bytes=5_000), 2),
        (limits._replace(archive_max_bytes=0), 0),
        (limits._replace(archive_max_age_ms=25), 2),
        (limits._replace(archive_max_age_ms=0), 1),
    ):
        directory = MemoryDirectory()
        log = Log.open(directory, config=config)
        for i in range(5):
            for _ in range(2):
                log.append([Topic("t" * 800, bytes(16))], 1, 1_000 + 10 * i)
        log.flush()
        log.drop_prefix(OffsetAndEpoch(8, 1))
        before = archived(directory)
        assert len(before) == 4
        gone = log.trim_archive()
        assert archived(directory) == before[len(gone) :]
        assert len(archived(directory)) == expected, config


def test_a_header_in_the_archive_that_cannot_be_read_stops_nobody() -> None:
    """The segment's time is unknown then; a later read may succeed."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=LogConfig(segment_bytes=2048, archive_max_age_ms=0))
    for i in range(10):
        log.append([Topic("t" * 800, bytes(16))], 1, i)
    log.flush()
    log.drop_prefix(OffsetAndEpoch(8, 1))
    directory.fail_next_read()
    assert log.trim_archive() == []
    assert len(log.trim_archive()) == 3


def test_the_oldest_in_the_archive_goes_first_when_there_is_no_room() -> None:
    directory = MemoryDirectory()
    log = Log.open(directory, config=LogConfig(segment_bytes=2048))
    assert not log.drop_oldest_archived()
    for i in range(10):
        log.append([Topic("t" * 800, bytes(16))], 1, i)
    log.flush()
    log.drop_prefix(OffsetAndEpoch(8, 1))
    names = archived(directory)
    assert log.drop_oldest_archived()
    assert archived(directory) == names[1:]


def test_of_sealed_segments_only_a_few_are_kept_open(tmp_path: Path) -> None:
    """A long log must not use up the process's file descriptors."""
    log = Log.open(RealDirectory(tmp_path), config=LogConfig(segment_bytes=2048, tail_bytes=10))
    for i in range(60):
        log.append([Topic("t" * 1500, bytes(16))], 1, i)
    log.flush()
    for _ in range(2):
        assert len(log.read(0, 1 << 30)) == 60
        opened = [link for link in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(link.resolve())]
        assert len(opened) <= LogConfig().open_files_max + 3
        log.close()
        log = Log.open(RealDirectory(tmp_path), config=LogConfig(segment_bytes=2048, tail_bytes=10))
