"""A replica's log under crashes: what was flushed is there after any crash, and the log is a prefix of what was appended."""

from random import Random

import pytest

from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.producers import PartitionRefused
from broker_agent.replica.retention import RetentionConfig
from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import NO_STAMP, ProducerStamp, stamp_of
from tests.broker_agent.replica.partition_logs import NOW_MS, SMALL, TOPIC_ID, opened, records
from tests.sim.world.disk import MemoryDirectory, PowerCut

CONFIG = SMALL._replace(segment_bytes=1_500, retention=RetentionConfig(-1, 5_000, -1))


class History:
    """The twin: every batch that the log should have, in a list."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.flushed_end = 0
        self.start = 0
        """The highest start that an operation has returned."""
        self.highest_start = 0
        """The highest start that an operation has asked for."""

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end_offset <= end]
        self.flushed_end = min(self.flushed_end, end)

    def boundaries(self) -> list[int]:
        return [0, *(batch.end_offset for batch in self.batches)]

    def last_sequences(self) -> dict[int, int]:
        """The next sequence of each producer, read from the batches alone."""
        following: dict[int, int] = {}
        for batch in self.batches:
            stamp = stamp_of(batch)
            if stamp.is_idempotent:
                following[stamp.producer_id] = stamp.last_sequence(batch.record_count) + 1
        return following


class Story:
    """One log and its twin, through random operations and crashes of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.directory = MemoryDirectory("/p")
        self.log = opened(self.directory, CONFIG)
        self.twin = History()
        self.epoch = 1
        self.cut_to: int | None = None
        """Where a truncation was under way when the power went."""

    def step(self) -> None:
        kind = self.rng.choices(
            (self.append, self.flush, self.half_flush, self.truncate, self.delete, self.retain, self.rest, self.elect),
            (10, 3, 2, 1, 0.5, 0.5, 1, 1),
        )[0]
        kind()
        assert self.log.shape.end == self.twin.end
        self.log.shape.check_invariants()

    def append(self) -> None:
        producer_id = self.rng.randrange(4) - 1
        following = self.twin.last_sequences().get(producer_id, 0)
        stamp = NO_STAMP if producer_id < 0 else ProducerStamp(producer_id, 0, following)
        before = self.log.shape.end
        appended = self.log.append(records(self.rng.randint(1, 4), self.rng.randrange(200)), stamp, self.epoch, NOW_MS)
        assert (appended.base_offset, appended.is_duplicate) == (before, False)
        self.twin.batches += self.log.read(before, 1, appended.end_offset)

    def flush(self) -> None:
        self.log.flush()
        self.twin.flushed_end = self.twin.end

    def half_flush(self) -> None:
        """Something is appended, or cut, while a worker flushes."""
        ticket = self.log.begin_flush()
        end = self.twin.end
        self.append()
        ticket.sync()
        assert self.log.complete_flush(ticket)
        self.twin.flushed_end = max(self.twin.flushed_end, end)

    def truncate(self) -> None:
        start = self.log.shape.start.offset
        end = self.rng.choice([each for each in self.twin.boundaries() if each >= start])
        self.cut_to = end
        self.log.truncate(end, NOW_MS)
        self.twin.cut(end)
        self.cut_to = None
        self.epoch += 1

    def delete(self) -> None:
        offset = self.rng.randint(0, self.twin.end)
        self.twin.highest_start = max(self.twin.highest_start, offset)
        self.started(self.log.delete_below(offset))

    def retain(self) -> None:
        self.twin.highest_start = self.twin.end
        self.started(self.log.apply_retention(self.twin.end, NOW_MS))

    def started(self, start: int) -> None:
        assert start in self.twin.boundaries()
        assert start >= self.twin.start
        self.twin.start = start
        self.twin.flushed_end = max(self.twin.flushed_end, self.log.shape.flushed_end)

    def rest(self) -> None:
        self.log.rest()

    def elect(self) -> None:
        self.epoch += 1

    # --- crashes -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The power goes between two operations, or inside the next one; or only the process dies."""
        is_killed = self.rng.random() < 0.3
        if self.rng.random() < 0.7:
            self.directory.cut_power_after(self.rng.randint(1, 12))
            try:
                for _ in range(12):
                    self.step()
            except PowerCut:
                pass
        self.directory = self.directory.kill() if is_killed else self.directory.crash(self.rng)
        self.log = opened(self.directory, CONFIG)
        self.check_found()

    def check_found(self) -> None:
        shape, twin = self.log.shape, self.twin
        shape.check_invariants()
        known_end = twin.flushed_end if self.cut_to is None else min(twin.flushed_end, self.cut_to)
        assert shape.end >= known_end, "what was flushed is there"
        assert shape.flushed_end == shape.end, "what was found is durable"
        assert twin.start <= shape.start.offset <= max(twin.highest_start, twin.start)
        found = self.all_batches()
        # An append inside which the power went may be there too, as a whole: nobody was told of it.
        unknown = [batch for batch in found if batch.base_offset >= twin.end]
        assert len(unknown) <= 1
        expected = [batch for batch in twin.batches if shape.start.offset <= batch.base_offset < shape.end]
        assert found == expected + unknown, "the log is a prefix of what was appended"
        twin.batches += unknown
        twin.cut(shape.end)
        twin.start, twin.flushed_end, twin.highest_start = shape.start.offset, shape.end, shape.start.offset
        self.cut_to = None
        self.epoch = max(self.epoch, shape.last_epoch)
        self.check_producers()

    def all_batches(self) -> list[Batch]:
        place = self.log.shape.start.offset
        found: list[Batch] = []
        while batches := self.log.read(place, 700, self.log.shape.end):
            found += batches
            place = batches[-1].end_offset
        return found

    def check_producers(self) -> None:
        """The producers whose last batch is still in the log go on exactly where they were."""
        for producer_id, following in self.twin.last_sequences().items():
            states = self.log.producers
            at = [batch.base_offset for batch in self.twin.batches if stamp_of(batch).producer_id == producer_id]
            if at[-1] >= self.log.shape.start.offset:
                assert states.check(ProducerStamp(producer_id, 0, following), 1) is None
                with pytest.raises(PartitionRefused):
                    states.check(ProducerStamp(producer_id, 0, following + 1), 1)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_flushed_is_there_after_any_crash(seed: int) -> None:
    story = Story(seed)
    for _ in range(8):
        for _ in range(story.rng.randint(0, 25)):
            story.step()
            if story.rng.random() < 0.1:
                story.check_producers()
        story.crash()


@pytest.mark.parametrize("seed", range(15))
def test_a_follower_that_crashes_catches_up_with_its_leader(seed: int) -> None:
    """Whatever the follower has lost, it fetches again from its own end, and has the leader's bytes and producers."""
    rng = Random(seed)
    leader = opened(config=CONFIG)
    directory = MemoryDirectory("/f")
    follower = opened(directory, CONFIG)
    for _ in range(6):
        for i in range(rng.randint(1, 20)):
            following = leader.shape.end
            leader.append(records(1, rng.randrange(200)), ProducerStamp(7, 0, following), 1 + i // 30, NOW_MS)
        directory.cut_power_after(rng.randint(1, 30))
        try:
            while batches := leader.read(follower.shape.end, 900, leader.shape.end):
                follower.append_fetched(batches, NOW_MS)
                if rng.random() < 0.5:
                    follower.flush()
        except PowerCut:
            pass
        directory = directory.crash(rng)
        follower = opened(directory, CONFIG)
    copy(leader, follower)
    leader.flush()
    assert follower.shape == leader.shape
    assert follower.producers.check(ProducerStamp(7, 0, leader.shape.end - 1), 1) is not None


def copy(leader: PartitionLog, follower: PartitionLog) -> None:
    while batches := leader.read(follower.shape.end, 900, leader.shape.end):
        follower.append_fetched(batches, NOW_MS)
    follower.flush()


def test_a_new_log_costs_four_fsyncs() -> None:
    """One of the log directory, for the new name; the note `flushed`, the segment's header, and both of their names."""
    disk = MemoryDirectory("/d")
    LogDirectory(disk).open(ReplicaPlace(TOPIC_ID, 0), wall_ms=NOW_MS)
    assert disk.flushes == 4


@pytest.mark.parametrize("operation", range(1, 20))
def test_a_power_cut_inside_the_creation_of_a_log_leaves_a_place_for_it(operation: int) -> None:
    """The cut comes at each change of the disk, up to the first records. What was flushed is there, and the log goes on."""
    place = ReplicaPlace(TOPIC_ID, 0)
    for seed in range(30):
        disk, flushed = MemoryDirectory("/d"), 0
        disk.cut_power_after(operation)
        try:
            log = LogDirectory(disk).open(place, wall_ms=NOW_MS)
            for _ in range(3):
                log.append(records(2), NO_STAMP, 1, NOW_MS)
                log.append(records(1, 700), NO_STAMP, 1, NOW_MS)
                log.flush()
                flushed = log.shape.end
        except PowerCut:
            pass
        for count in (3, 40):
            disk = disk.crash(Random(seed))
            log = LogDirectory(disk).open(place, wall_ms=NOW_MS)
            assert log.shape.end >= flushed
            for _ in range(count):
                log.append(records(2, 300), NO_STAMP, 1, NOW_MS)
        log.flush()
        assert log.shape.flushed_end >= flushed + 80
