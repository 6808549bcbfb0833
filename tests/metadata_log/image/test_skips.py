"""A skipped batch has no effect, and nothing else is lost: on replays that know the skip in time, and on those that do not."""

from random import Random

import pytest

from metadata_log.format import batch as batches
from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_record
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    FeatureLevel,
    NoOp,
    PartitionChange,
    Record,
    SkippedBatch,
    Topic,
)
from metadata_log.image.metadata_image import EMPTY_IMAGE
from metadata_log.image.replay import AppliedSkipped, Replay, ReplayStopped
from metadata_log.image.skips import dropped_range, levels_in, open_transaction
from tests.metadata_log.image.histories import LogWriter, uuid

POISON = PartitionChange(uuid(99), 0, leader=1)
LEVEL = FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX)


def names(replay: Replay) -> set[str]:
    return {topic.name for topic in replay.image.topics()}


def skip_of(batch: Batch, begun: int | None = None, later: tuple[Batch, ...] = ()) -> SkippedBatch:
    return SkippedBatch(batch.base_offset, batch.epoch, batch.chain, *dropped_range(batch, begun, later))


def unreadable(log: LogWriter) -> Batch:
    """A batch with a right CRC whose records are no MessagePack."""
    sealed = batches.encode(
        b"\xc1\xc1", base_offset=log.end, epoch=1, record_count=2, first_timestamp_ms=1, last_timestamp_ms=1,
        is_control=False, previous_chain=log.chain,
    )  # fmt: skip
    log.end, log.chain = sealed.end_offset, sealed.chain
    return sealed


def test_a_replay_that_stands_still_goes_on_when_it_is_told_of_the_skip() -> None:
    """The whole batch is dropped, also its record that fits; batches before and behind it take effect."""
    log, replay = LogWriter(), Replay()
    first, poison = log.batch(Topic("a", uuid(1))), log.batch(Topic("b", uuid(2)), POISON)
    with pytest.raises(ReplayStopped, match="offset 2"):
        replay.apply([first, poison])
    assert replay.offset == poison.base_offset

    replay.learn([skip_of(poison)])
    assert replay.stopped is None
    replay.apply([poison, log.batch(Topic("c", uuid(3))), log.batch(skip_of(poison), is_control=True)])
    assert names(replay) == {"a", "c"}
    assert replay.image.offset == log.end


def test_a_batch_that_nobody_can_read_is_skipped() -> None:
    log, replay = LogWriter(), Replay()
    poison = unreadable(log)
    with pytest.raises(ReplayStopped, match="not MessagePack"):
        replay.apply([poison])
    replay.learn([skip_of(poison)])
    replay.apply([poison, log.batch(Topic("a", uuid(1)))])
    assert names(replay) == {"a"}


def test_one_apply_of_the_batch_and_its_skip_drops_the_batch() -> None:
    """So tools that read a whole log need not look ahead."""
    log, replay = LogWriter(), Replay()
    poison = log.batch(POISON)
    replay.apply([poison, log.batch(skip_of(poison), is_control=True)])
    assert (replay.image.offset, replay.stopped) == (2, None)


def test_a_replay_that_has_applied_the_batch_stops_at_the_skip() -> None:
    """Its image has the effect of the batch, so the image must be made anew: nothing behind the skip is applied."""
    log, replay = LogWriter(), Replay()
    batch = log.batch(Topic("a", uuid(1)))
    replay.apply([batch])
    skip = log.batch(skip_of(batch), is_control=True)
    with pytest.raises(AppliedSkipped) as stopped:
        replay.apply([skip, log.batch(Topic("b", uuid(2)))])
    assert (stopped.value.skip, replay.offset, names(replay)) == (skip_of(batch), 1, {"a"})
    anew = Replay(EMPTY_IMAGE)
    anew.learn([stopped.value.skip])
    anew.apply([batch, skip])
    assert names(anew) == set()


def test_a_skip_of_another_batch_drops_nothing() -> None:
    """The chain names the whole history up to the batch: no replay drops another batch, whatever a broker is told."""
    log, replay = LogWriter(), Replay()
    batch = log.batch(Topic("a", uuid(1)))
    replay.learn([skip_of(batch)._replace(chain=bytes(32))])
    replay.apply([batch])
    assert names(replay) == {"a"}


END, ABORT = encode_record(EndTransaction()), encode_record(AbortTransaction(""))


@pytest.mark.parametrize("poisoned", range(3))
@pytest.mark.parametrize("ends", [True, False])
def test_a_batch_of_a_transaction_takes_all_of_the_transaction_along(poisoned: int, ends: bool) -> None:
    """A replay before the transaction, one inside of it, and one behind it come to the same image."""
    log = LogWriter()
    before = log.batch(LEVEL, Topic("before", uuid(9)))
    slices: list[list[Record]] = [[BeginTransaction("t"), Topic("a", uuid(1))], [Topic("b", uuid(2))]]
    slices.append([Topic("c", uuid(3)), *([EndTransaction()] if ends else [])])
    inside = [log.batch(*records) for records in slices]
    behind = [log.batch(Topic("behind", uuid(4)))] if ends else []
    begun = open_transaction([before, *inside[:poisoned]])
    skip = skip_of(inside[poisoned], begun, (*inside[poisoned + 1 :], *behind))
    assert (skip.dropped_start, skip.dropped_end) == (inside[0].base_offset, inside[-1].end_offset)
    control = log.batch(skip, is_control=True)
    last = log.batch(Topic("last", uuid(5)))

    for known_from in range(4):
        replay = Replay()
        replay.apply([before, *inside[:known_from]])
        if known_from == 3 and ends:
            with pytest.raises(AppliedSkipped):
                replay.apply([*behind, control])
            continue
        if known_from == 3:
            with pytest.raises(AppliedSkipped):
                replay.apply([control])
            continue
        replay.learn([skip])
        replay.apply([*inside[known_from:], *behind, control, last])
        assert replay.transaction is None
        assert names(replay) == {"before", "last", *(["behind"] if ends else [])}


def test_bytes_that_look_like_an_end_are_no_end() -> None:
    """The last bytes of a record may equal a packed EndTransaction; only a whole record ends a transaction."""
    log = LogWriter()
    begin = log.batch(BeginTransaction("t"), Topic("a", uuid(1)))
    lookalike = log.batch(Topic("b", uuid(2)[:13] + END))
    end = log.batch(EndTransaction())
    assert lookalike.payload.endswith(END)
    assert dropped_range(begin, None, [lookalike, end]) == (0, end.end_offset)
    assert open_transaction([begin, lookalike]) == 0
    assert open_transaction([begin, lookalike, end]) is None


def test_the_levels_around_a_batch_are_found() -> None:
    """A controller that applies the batch may have lowered the level since: nodes of an older release may be there."""
    log = LogWriter()
    named = log.batch(Topic(METADATA_VERSION, uuid(1)))
    lower, higher = log.batch(FeatureLevel(METADATA_VERSION, 1), NoOp()), log.batch(LEVEL)
    found = list(levels_in([named, unreadable(log), lower, higher]))
    assert found == [(lower.base_offset, 1), (higher.base_offset, LEVEL.level)]


@pytest.mark.parametrize("seed", range(20))
def test_all_replays_end_with_the_image_of_the_log_without_the_batch(seed: int) -> None:
    """A random log with one skip. A replay is told of the skip at a random place, restarts at random, and makes its image anew
    where it must. The dumb twin replays the log with `NoOp`s in place of the batch.
    """
    dice, log, twin_log = Random(seed), LogWriter(), LogWriter()
    count = dice.randint(2, 8)
    poisoned, told = dice.randrange(count), dice.randrange(count + 1)
    written, twin_written = [], []
    for number in range(count):
        records: list[Record] = [
            Topic(f"{number}-{each}", uuid(1 + 10 * number + each)) for each in range(dice.randint(1, 3))
        ]
        if number == poisoned and dice.random() < 0.5:
            records.append(POISON)
        written.append(log.batch(*records))
        twin_written.append(twin_log.batch(*([NoOp()] * len(records) if number == poisoned else records)))
    skip = skip_of(written[poisoned])
    written.append(log.batch(skip, is_control=True))
    twin_written.append(twin_log.batch(NoOp()))

    twin = Replay()
    twin.apply(twin_written)
    replay, knows, at = Replay(), False, 0
    while at < len(written):
        if at >= told or dice.random() < 0.1:
            knows = True
            replay.learn([skip])
        try:
            replay.apply([written[at]])
            at += 1
        except AppliedSkipped:
            replay, at, told = Replay(), 0, 0
        except ReplayStopped:
            assert not knows
            told = 0
    assert replay.image.digest == twin.image.digest
    assert replay.image.offset == log.end
