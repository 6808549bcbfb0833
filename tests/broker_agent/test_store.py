"""The broker's own copy: what it recovers, what it refuses, and what it drops to begin anew."""

from pathlib import Path

import pytest

from broker_agent.own_disk.process_notes import CLEAN_SHUTDOWN_NAME
from broker_agent.session.lifecycle import EMPTY_POSITION
from broker_agent.store import BrokerStore, WrongHistory
from metadata_log.disk.files import RealDirectory
from metadata_log.format.codec import encode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import (
    BeginTransaction,
    EndTransaction,
    FeatureLevel,
    Record,
    RemoveTopic,
    SkippedBatch,
    Topic,
)
from metadata_log.image.replay import AppliedSkipped, ReplayStopped
from snapshots.format import snapshot_name
from tests.broker_agent.controllers import History, registration
from tests.sim.world.disk import MemoryDirectory


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "controllers")


def opened(tmp_path: Path) -> BrokerStore:
    store = BrokerStore(RealDirectory(tmp_path / "broker"))
    store.recover()
    return store


def follow(store: BrokerStore, history: History) -> None:
    """Fetches and applies, batch by batch, up to the end."""
    while store.position.offset < history.end:
        offset = store.position.offset
        store.apply(history.batches(offset, 1), history.chain_at(offset))


def download(store: BrokerStore, history: History, end: OffsetAndEpoch) -> None:
    data = history.snapshot_bytes(end)
    for position in range(0, len(data), 700):
        store.write_part(end, position, data[position : position + 700])


def topic(name: str) -> Topic:
    return Topic(name, name.encode().ljust(16, b"."))


def test_an_empty_store_adopts_the_history_that_it_is_given_first(tmp_path: Path, history: History) -> None:
    """It cannot know the genesis chain; from then on it holds others to it."""
    store = opened(tmp_path)
    assert store.position == EMPTY_POSITION

    history.write(registration(1, b"i" * 16))
    follow(store, history)
    assert store.position[:3] == (history.end, 1, history.log.shape.chain)
    assert store.image == history.image
    assert store.position.digest == history.image.digest_bytes


def test_a_restart_inside_of_a_transaction_goes_on_inside_of_it(tmp_path: Path, history: History) -> None:
    """The store is at its position, and the image before the transaction; with the end it has all of it."""
    history.write(FeatureLevel("metadata.version", 2))
    history.write(BeginTransaction("t"), topic("a"))
    history.write(topic("b"))
    store = opened(tmp_path)
    follow(store, history)
    assert (store.position.offset, store.position.digest) == (history.end, b"")
    assert store.image.topic_count == 0
    store.close()

    store = opened(tmp_path)
    assert store.position.offset == history.end and store.image.topic_count == 0
    history.write(topic("c"), EndTransaction())
    follow(store, history)
    assert store.image.topic_count == 3
    assert store.position.digest == history.image.digest_bytes


def test_what_was_flushed_is_there_after_a_restart_and_only_the_rest_is_fetched(
    tmp_path: Path, history: History
) -> None:
    """The image comes from disk."""
    store = opened(tmp_path)
    history.write(registration(1, b"i" * 16))
    history.write(topic("a"))
    follow(store, history)
    store.close()

    again = BrokerStore(RealDirectory(tmp_path / "broker")).recover()
    assert again.dropped is None
    assert again.position.offset == history.end
    assert again.image == history.image


def test_a_process_that_dies_without_flushing_recovers_a_prefix(tmp_path: Path, history: History) -> None:
    """Whatever the page cache still had is a prefix of the one history, and following goes on from it."""
    store = opened(tmp_path)
    for i in range(20):
        history.write(topic(f"t{i}"))
    follow(store, history)
    (segment,) = (tmp_path / "broker" / "@metadata").glob("*.log")
    with segment.open("r+b") as f:
        f.truncate(segment.stat().st_size - 1 if segment.stat().st_size < 10_000 else 1_500)

    again = BrokerStore(RealDirectory(tmp_path / "broker"))
    recovered = again.recover()
    assert recovered.dropped is None
    assert 0 < recovered.position.offset <= history.end
    assert recovered.position.chain == history.chain_at(recovered.position.offset)

    follow(again, history)
    assert again.image == history.image


def test_damage_below_what_was_durable_drops_the_store_and_says_why(tmp_path: Path, history: History) -> None:
    """Nothing is repaired: everything is fetched anew."""
    store = opened(tmp_path)
    for i in range(20):
        history.write(topic(f"t{i}"))
    follow(store, history)
    store.close()
    (segment,) = (tmp_path / "broker" / "@metadata").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[700] ^= 1
    segment.write_bytes(data)

    again = BrokerStore(RealDirectory(tmp_path / "broker"))
    recovered = again.recover()
    assert recovered.dropped is not None
    assert recovered.position == EMPTY_POSITION
    follow(again, history)
    assert again.image == history.image


def test_batches_of_another_history_are_refused(tmp_path: Path, history: History) -> None:
    """The chain below them is not this log's."""
    store = opened(tmp_path)
    follow(store, history)
    history.write(topic("a"))

    with pytest.raises(WrongHistory):
        store.apply(history.batches(store.position.offset), b"x" * 32)


def test_damaged_batches_leave_the_store_as_it_was(tmp_path: Path, history: History) -> None:
    """One flipped bit, and nothing of the answer is taken."""
    store = opened(tmp_path)
    follow(store, history)
    before = store.position
    history.write(topic("a"))
    history.write(topic("b"))
    data = bytearray(history.batches(before.offset))
    data[-1] ^= 1

    with pytest.raises(LogFormatError):
        store.apply(bytes(data), before.chain)
    assert store.position == before
    assert store.image.topic("a") is None


def test_a_record_that_does_not_fit_stops_the_store(tmp_path: Path, history: History) -> None:
    """The image stays before its batch; the broker must not go on as if nothing were."""
    store = opened(tmp_path)
    history.write(topic("a"))
    follow(store, history)
    batch = history.log.append([topic("a")], 1, 5_000)

    with pytest.raises(ReplayStopped):
        store.apply(batch.data, store.position.chain)
    assert store.image == history.image


def test_at_a_mark_the_store_writes_the_controllers_snapshot_byte_for_byte(tmp_path: Path, history: History) -> None:
    """And the log before it goes."""
    store = opened(tmp_path)
    history.write(registration(1, b"i" * 16))
    history.write(topic("a"))
    end = history.mark()
    history.write(topic("b"))
    follow(store, history)

    job = store.take_snapshot_job()
    assert job is not None
    assert store.take_snapshot_job() is None
    job.run()
    store.snapshot_written(job)
    (ours,) = (tmp_path / "broker" / "@metadata").glob("*.checkpoint")
    assert ours.read_bytes() == history.snapshot_bytes(end)
    assert ours.name == next(Path(history.directory.path).glob("*.checkpoint")).name

    store.close()
    again = BrokerStore(RealDirectory(tmp_path / "broker")).recover()
    assert again.dropped is None
    assert again.image == history.image


def test_a_broken_off_download_is_in_the_way_of_no_later_one(tmp_path: Path, history: History) -> None:
    """A download of the snapshot at the first mark breaks off, and the broker fetches the batches instead. Its own snapshot at
    that mark takes the name of the unfinished file. The next download wanted to delete this file, and the broker ended.
    """
    history.write(topic("a"))
    first = history.mark()
    store = opened(tmp_path)
    store.write_part(first, 0, history.snapshot_bytes(first)[:700])
    follow(store, history)
    job = store.take_snapshot_job()
    assert job is not None and job.meta.end == first
    job.run()
    store.snapshot_written(job)

    history.write(topic("b"))
    second = history.mark()
    download(store, history, second)
    store.install(second)
    assert store.position.offset == second.offset


def test_marks_go_on_after_the_log_was_cut(tmp_path: Path, history: History) -> None:
    """The voter set that a snapshot carries is remembered when its record has gone with the log."""
    store = opened(tmp_path)
    for name in "abc":
        history.write(topic(name))
        end = history.mark()
        follow(store, history)
        job = store.take_snapshot_job()
        assert job is not None
        job.run()
        store.snapshot_written(job)
        (only,) = (tmp_path / "broker" / "@metadata").glob("*.checkpoint")
        assert only.read_bytes() == history.snapshot_bytes(end)


def test_a_snapshot_is_installed_and_followed_on_from(tmp_path: Path, history: History) -> None:
    """The log begins at its end with its chain, so that the next batches prove that they continue it."""
    history.write(registration(1, b"i" * 16))
    end = history.mark()
    history.write(topic("late"))
    store = opened(tmp_path)
    download(store, history, end)
    store.install(end)
    assert store.position[:3] == (end.offset, end.epoch, history.chain_at(end.offset))

    follow(store, history)
    assert store.image == history.image
    store.close()
    assert BrokerStore(RealDirectory(tmp_path / "broker")).recover().image == history.image


def test_a_snapshot_that_does_not_verify_changes_nothing(tmp_path: Path, history: History) -> None:
    """Image, log and position are as they were."""
    store = opened(tmp_path)
    follow(store, history)
    before = store.position, store.image
    history.write(topic("a"))
    end = history.mark()
    data = bytearray(history.snapshot_bytes(end))
    data[len(data) // 2] ^= 1
    store.write_part(end, 0, bytes(data))

    with pytest.raises(LogFormatError):
        store.install(end)
    assert (store.position, store.image) == before
    assert not list((tmp_path / "broker" / "@metadata").glob("*.checkpoint*"))


def test_a_crash_between_a_snapshots_rename_and_the_logs_reset_is_finished_at_the_next_start(
    tmp_path: Path, history: History
) -> None:
    """The snapshot lies beyond the log's end: the log begins anew at it."""
    store = opened(tmp_path)
    follow(store, history)
    store.close()
    history.write(topic("a"))
    end = history.mark()
    name = next(Path(history.directory.path).glob("*.checkpoint")).name
    (tmp_path / "broker" / "@metadata" / name).write_bytes(history.snapshot_bytes(end))

    recovered = BrokerStore(RealDirectory(tmp_path / "broker")).recover()
    assert recovered.dropped is None
    assert recovered.position.offset == end.offset
    assert recovered.image == history.image


def test_a_log_whose_snapshot_is_gone_is_dropped(tmp_path: Path, history: History) -> None:
    """The log starts above 0 and nothing reaches that far."""
    history.write(topic("a"))
    end = history.mark()
    store = opened(tmp_path)
    download(store, history, end)
    store.install(end)
    store.close()
    for snapshot in (tmp_path / "broker" / "@metadata").glob("*.checkpoint"):
        snapshot.unlink()

    recovered = BrokerStore(RealDirectory(tmp_path / "broker")).recover()
    assert recovered.dropped is not None
    assert "no whole snapshot" in recovered.dropped
    assert recovered.position == EMPTY_POSITION


def test_a_log_whose_snapshot_cannot_be_read_is_dropped(history: History) -> None:
    """All of it is to be had of the controllers. Read once more it may be here, after all."""
    history.write(topic("a"))
    end = history.mark()
    disk = MemoryDirectory("/broker")
    store = BrokerStore(disk)
    store.recover()
    download(store, history, end)
    store.install(end)
    store.close()
    disk.fail_next_read()
    store = BrokerStore(disk)
    assert store.recover().image == history.image
    store.close()

    disk.subdirectory("@metadata").break_sector(snapshot_name(end), 0)
    recovered = BrokerStore(disk).recover()
    assert recovered.dropped is not None
    assert "no whole snapshot" in recovered.dropped
    assert recovered.position == EMPTY_POSITION


@pytest.mark.parametrize("part", ["the end of the log", "the note"])
def test_a_store_of_which_the_disk_cannot_read_a_part_is_dropped(part: str, history: History) -> None:
    """A controller does not start then, because others count on its records. Nobody counts on a broker's copy."""
    disk = MemoryDirectory("/broker")
    metadata = disk.subdirectory("@metadata")
    store = BrokerStore(disk)
    store.recover()
    history.write(topic("a"))
    follow(store, history)
    store.close()
    name = "flushed" if part == "the note" else next(each for each in metadata.names() if each.endswith(".log"))
    metadata.break_sector(name, 0 if part == "the note" else 100)
    recovered = BrokerStore(disk).recover()
    assert recovered.dropped is not None
    assert "the disk cannot read" in recovered.dropped
    assert recovered.position == EMPTY_POSITION


def test_whoever_held_the_store_before_is_known_until_somebody_is_registered(tmp_path: Path) -> None:
    """A process may die registered before it could note so: every candidate is remembered, the newest first."""
    store = opened(tmp_path)
    one, two, three = b"1" * 16, b"2" * 16, b"3" * 16
    store.note_attempt(one)
    store.note_attempt(one)
    store.note_attempt(two)
    assert opened(tmp_path).recover().previous_incarnations == (two, one)

    store.note_registered(three)
    assert opened(tmp_path).recover().previous_incarnations == (three,)


def test_the_proof_of_a_clean_shutdown_is_taken_once(tmp_path: Path) -> None:
    """A process deletes the proof of the last one before it does anything else, because it may crash at any time (KIP-966)."""
    opened(tmp_path).note_clean_shutdown(57)
    assert BrokerStore(RealDirectory(tmp_path / "broker")).recover().clean_broker_epoch == 57
    assert BrokerStore(RealDirectory(tmp_path / "broker")).recover().clean_broker_epoch is None


@pytest.mark.parametrize("content", [b"", b"-1", b"57x", b"9" * 21, bytes(1_000)])
def test_a_proof_that_no_store_wrote_proves_nothing(tmp_path: Path, content: bytes) -> None:
    opened(tmp_path)
    (tmp_path / "broker" / CLEAN_SHUTDOWN_NAME).write_bytes(content)
    assert opened(tmp_path).recover().clean_broker_epoch is None
    assert not (tmp_path / "broker" / CLEAN_SHUTDOWN_NAME).exists()


def test_a_proof_that_the_disk_cannot_read_proves_nothing() -> None:
    disk = MemoryDirectory("/broker")
    store = BrokerStore(disk)
    store.recover()
    store.note_clean_shutdown(57)
    store.close()
    disk.break_sector(CLEAN_SHUTDOWN_NAME, 0)
    recovered = BrokerStore(disk).recover()
    assert (recovered.dropped, recovered.clean_broker_epoch) == (None, None)


def test_a_swollen_list_of_predecessors_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    """It is nobody's list then; the next attempt writes a new one. (Found by the fuzzer.)"""
    opened(tmp_path).note_attempt(b"1" * 16)
    (tmp_path / "broker" / "incarnations").write_bytes(bytes(129))
    store = opened(tmp_path)
    assert store.recover().previous_incarnations == ()
    store.note_attempt(b"2" * 16)
    assert opened(tmp_path).recover().previous_incarnations == (b"2" * 16,)


def test_an_unreadable_list_of_predecessors_keeps_no_broker_from_starting(history: History) -> None:
    """The predecessor's session has to end first, as with a swollen list. The store itself is whole, and stays."""
    disk = MemoryDirectory("/broker")
    store = BrokerStore(disk)
    store.recover()
    history.write(topic("a"))
    follow(store, history)
    store.note_attempt(b"1" * 16)
    store.close()
    disk.break_sector("incarnations", 0)
    store = BrokerStore(disk)
    recovered = store.recover()
    assert (recovered.dropped, recovered.previous_incarnations) == (None, ())
    assert recovered.image == history.image
    store.note_attempt(b"2" * 16)
    store.close()
    assert BrokerStore(disk).recover().previous_incarnations == (b"2" * 16,)


def poisoned(history: History, *records: Record) -> SkippedBatch:
    """Commits a batch that a replay cannot apply, unless it takes the first record only."""
    batch = history.log.append(records, 1, 1_100)
    return SkippedBatch(batch.base_offset, batch.epoch, batch.chain, batch.base_offset, batch.end_offset)


def test_a_store_that_is_told_of_a_skip_drops_the_batch(tmp_path: Path, history: History) -> None:
    """The controllers send the record that skips a batch along with the batch. A restart finds it in the store's own log."""
    store = opened(tmp_path)
    history.write(topic("a"))
    follow(store, history)
    skip = poisoned(history, topic("b"), RemoveTopic("nobody", b"x" * 16))
    here, data = store.position, history.batches(store.position.offset)
    with pytest.raises(ReplayStopped):
        store.apply(data, here.chain)

    store.reset()
    store.apply(history.batches(0), history.chain_at(0), [encode_record(skip)])
    history.log.append([skip], 1, 1_200)
    follow(store, history)
    assert [each.name for each in store.image.topics()] == ["a"]
    assert store.position.digest
    store.close()
    again = opened(tmp_path)
    assert again.position == store_position(history)
    assert [each.name for each in again.image.topics()] == ["a"]


def store_position(history: History) -> tuple[int, int, bytes, bytes]:
    store = BrokerStore(MemoryDirectory())
    store.recover()
    store.apply(history.batches(0), history.chain_at(0))
    return store.position


def test_a_store_that_has_applied_a_skipped_batch_is_dropped(tmp_path: Path, history: History) -> None:
    """Its image has the effect of the batch; the loader reports the store as broken, and fetches everything anew."""
    store = opened(tmp_path)
    skip = poisoned(history, topic("b"))
    follow(store, history)
    history.log.append([skip], 1, 1_200)
    with pytest.raises(AppliedSkipped, match="is skipped"):
        follow(store, history)
