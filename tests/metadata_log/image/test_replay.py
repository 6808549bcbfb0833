"""The image follows the log: in whole batches, through transactions, up to the first record that does not fit."""

from collections.abc import Callable
from random import Random

import pytest

from metadata_log.format import batch as batches
from metadata_log.format.batch import Batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    AbortTransaction,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    NoOp,
    Partition,
    PartitionChange,
    Record,
    RemoveTopic,
    SnapshotMark,
    Topic,
)
from metadata_log.image.changes import Changes
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage, Provenance
from metadata_log.image.replay import Replay, ReplayResult, ReplayStopped
from tests.metadata_log.image.histories import History, LogWriter, broker, newest_level, uuid

POISON = PartitionChange(uuid(99), 0, leader=1)


def names(replay: Replay) -> list[str]:
    return [topic.name for topic in replay.image.topics()]


def test_one_apply_makes_one_image_of_many_batches() -> None:
    """Offset, epoch and time are those of the last batch; publishers are called once, in order of subscription."""
    log, replay, heard = LogWriter(), Replay(), []
    replay.subscribe(lambda result: heard.append(("first", result)))
    replay.subscribe(lambda result: heard.append(("second", result)))
    result = replay.apply(
        [log.batch(broker(1), Topic("a", uuid(1))), log.batch(Topic("b", uuid(2)), epoch=4, timestamp_ms=9)]
    )
    assert replay.image.provenance == Provenance(3, 4, 9)
    assert replay.offset == 3
    assert result.before is EMPTY_IMAGE
    assert result.image is replay.image
    assert result.changed.created_topics == {uuid(1), uuid(2)}
    assert heard == [("first", result), ("second", result)]
    assert replay.image.brokers[1].broker_epoch == 0


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_into_batches_and_applies_gives_the_same_image(seed: int) -> None:
    """The image depends on the history only, not on the division into batches and calls."""
    history = History(seed).run(50)
    log, replay = LogWriter(), Replay()
    pending: list[Batch] = []
    rest = list(history.log)
    while rest:
        size = history.dice.randint(1, 20)
        pending.append(log.batch(*rest[:size]))
        rest = rest[size:]
        if history.dice.random() < 0.5:
            replay.apply(pending)
            pending = []
    replay.apply(pending)
    replay.image.check_invariants()
    assert replay.image == history.image


def test_control_records_move_the_offset_only() -> None:
    """They are reported with their offsets."""
    log, replay = LogWriter(), Replay()
    change = LeaderChange(1, (1,), (1,))
    result = replay.apply([log.batch(change, is_control=True), log.batch(Topic("a", uuid(1)))])
    assert result.control_records == ((0, change),)
    assert replay.offset == 2
    alone = replay.apply([log.batch(change, is_control=True, epoch=2)])
    assert alone.image.digest == result.image.digest
    assert alone.image.provenance == Provenance(3, 2, 1_000)
    assert not alone.changed


def test_a_mark_keeps_the_image_exactly_there() -> None:
    """The marked image has no later record of the same apply; `changed` has all of them."""
    log, replay = LogWriter(), Replay()
    result = replay.apply(
        [
            log.batch(Topic("a", uuid(1))),
            log.batch(SnapshotMark("bytes"), is_control=True, epoch=3),
            log.batch(Topic("b", uuid(2)), epoch=3),
            log.batch(SnapshotMark("asked"), is_control=True, epoch=3),
        ]
    )
    first, second = result.marks
    assert (first.end, first.reason, second.end) == (OffsetAndEpoch(2, 3), "bytes", OffsetAndEpoch(4, 3))
    assert first.image.provenance.end == first.end
    assert first.image.topic("b") is None
    assert second.image is result.image
    assert result.changed.created_topics == {uuid(1), uuid(2)}


def test_a_gap_or_overlap_is_refused_and_nothing_taken() -> None:
    """F2: the base of the next batch is the end of the one before."""
    log, replay = LogWriter(), Replay()
    first, second = log.batch(Topic("a", uuid(1))), log.batch(Topic("b", uuid(2)))
    for wrong in ([second], [first, first], [second, first]):
        with pytest.raises(LogFormatError):
            replay.apply(wrong)
        assert replay.image is EMPTY_IMAGE
    replay.apply([first, second])
    assert names(replay) == ["a", "b"]


def unknown_record(log: LogWriter) -> Batch:
    payload = b"\x93\x3f\x00\xa1x"  # [63, 0, "x"]
    return batches.encode(
        payload, base_offset=log.end, epoch=1, record_count=1, first_timestamp_ms=0, last_timestamp_ms=0,
        is_control=False, previous_chain=log.chain,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "offset"),
    [
        (lambda log: log.batch(Topic("c", uuid(3)), POISON), 3),
        (lambda log: log.batch(BeginTransaction("t"), Topic("c", uuid(3)), EndTransaction(), POISON), 5),
        (lambda log: log.batch(Topic("c", uuid(3)), EndTransaction()), 3),
        (lambda log: log.batch(BeginTransaction("t"), BeginTransaction("u")), 3),
        (lambda log: log.batch(AbortTransaction("none")), 2),
        (unknown_record, 2),
    ],
)
def test_a_bad_batch_counts_not_at_all(bad: Callable[[LogWriter], Batch], offset: int) -> None:
    """Batches before a bad one are published, the bad one is not; replay then refuses to go on until it gets a new
    image.
    """
    log, replay, heard = LogWriter(), Replay(newest_level()), list[ReplayResult]()
    replay.subscribe(heard.append)
    good = [log.batch(Topic("a", uuid(1))), log.batch(Topic("b", uuid(2)))]
    with pytest.raises(ReplayStopped) as caught:
        replay.apply([*good, bad(log)])
    assert caught.value.offset == offset
    assert names(replay) == ["a", "b"]
    assert replay.image.provenance == Provenance(2, 1, 1_000)
    replay.image.check_invariants()
    assert [result.changed.created_topics for result in heard] == [{uuid(1), uuid(2)}]
    assert caught.value.result == heard[0]
    with pytest.raises(ReplayStopped):
        replay.apply([])
    assert replay.stopped is caught.value
    replay.load_snapshot([Topic("z", uuid(9))], Provenance(20, 1, 1))
    assert replay.stopped is None


def test_a_transaction_becomes_visible_at_its_end() -> None:
    """KIP-868: across batches and applies; the position moves on while the image waits."""
    log, replay, heard = LogWriter(), Replay(newest_level()), list[ReplayResult]()
    replay.subscribe(heard.append)
    replay.apply([log.batch(Topic("a", uuid(1)), BeginTransaction("boot"), Topic("b", uuid(2)))])
    assert names(replay) == ["a"]
    assert (replay.image.offset, replay.offset, replay.transaction) == (1, 3, "boot")
    replay.apply(
        [log.batch(broker(5), Config(2, "b", "k", "v")), log.batch(SnapshotMark("never here"), is_control=True)]
    )
    assert (replay.image.offset, replay.offset) == (1, 6)
    result = replay.apply([log.batch(Topic("c", uuid(3)), EndTransaction(), Topic("d", uuid(4)))])
    assert names(replay) == ["a", "b", "c", "d"]
    assert replay.image.brokers[5].broker_epoch == 3
    assert replay.image.offset == replay.offset == 9
    assert result.changed.created_topics == {uuid(2), uuid(3), uuid(4)}
    assert result.marks == ()
    replay.image.check_invariants()


def test_an_aborted_transaction_never_was() -> None:
    """After the abort the image is the one before the transaction, at the offset after the abort."""
    log, replay = LogWriter(), Replay(newest_level())
    replay.apply([log.batch(Topic("a", uuid(1)))])
    digest = replay.image.digest
    replay.apply([log.batch(BeginTransaction("t"), Topic("b", uuid(2))), log.batch(AbortTransaction("because"))])
    assert (replay.image.digest, replay.image.offset) == (digest, 4)
    replay.apply([log.batch(Topic("b", uuid(2)))])
    assert names(replay) == ["a", "b"]


def test_a_bad_record_inside_a_transaction_leaves_the_image_before_it() -> None:
    """Earlier batches of the transaction are dropped with it."""
    log, replay = LogWriter(), Replay(newest_level())
    replay.apply([log.batch(Topic("a", uuid(1))), log.batch(BeginTransaction("t"), Topic("b", uuid(2)))])
    with pytest.raises(ReplayStopped):
        replay.apply([log.batch(Topic("c", uuid(3))), log.batch(POISON)])
    assert names(replay) == ["a"]
    assert replay.image.offset == 1


def test_a_loaded_snapshot_replaces_everything() -> None:
    """S4: no key of the old image survives; publishers get the difference, and the information that it was a reload."""
    old, new = History(1).run(40).image, History(2).run(40).image
    replay, heard = Replay(old), list[ReplayResult]()
    replay.subscribe(heard.append)
    loaded = replay.load_snapshot(new.canonical_records(), new.provenance)
    assert loaded == new
    loaded.check_invariants()
    (result,) = heard
    assert result.reloaded
    assert result.changed.deleted_topics.keys() == {*old.topics_by_id} - {*new.topics_by_id}
    assert result.changed.created_topics == {*new.topics_by_id} - {*old.topics_by_id}
    for topic_id in {*old.topics_by_id} & {*new.topics_by_id}:
        for number in range(200):
            differs = old.partition(topic_id, number) != new.partition(topic_id, number)
            assert differs == (number in result.changed.partitions.get(topic_id, ()))


def test_a_snapshot_that_does_not_fit_leaves_the_image() -> None:
    """A bad snapshot never replaces a good image."""
    image = History(1).run(10).image
    replay = Replay(image)
    with pytest.raises(LogFormatError):
        replay.load_snapshot([Topic("a", uuid(1)), Topic("a", uuid(2))], Provenance(99, 1, 1))
    assert replay.image is image


def test_a_log_goes_on_from_a_loaded_snapshot() -> None:
    """Replaying everything, and replaying the end on top of a snapshot of the beginning, give the same image (S1)."""
    records: list[Record] = [broker(1), Topic("a", uuid(1)), NoOp(), Topic("b", uuid(2))]
    log, whole = LogWriter(), Replay()
    first, second = log.batch(*records[:2]), log.batch(*records[2:])
    whole.apply([first])
    snapshot = [*whole.image.canonical_records()]
    late = Replay()
    late.load_snapshot(snapshot, whole.image.provenance)
    whole.apply([second])
    late.apply([second])
    assert late.image == whole.image


def test_a_transaction_below_its_level_stops_replay() -> None:
    """Release 0.1.0 writes no transaction, so a level-1 log with a transaction is damaged."""
    log, replay = LogWriter(), Replay()
    with pytest.raises(ReplayStopped, match=r"offset 1: BeginTransaction needs metadata\.version 2"):
        replay.apply([log.batch(Topic("a", uuid(1))), log.batch(BeginTransaction("t"), Topic("b", uuid(2)))])
    assert names(replay) == ["a"]
    log, replay = LogWriter(), Replay()
    raised = log.batch(FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX), BeginTransaction("t"), Topic("b", uuid(2)))
    replay.apply([raised, log.batch(EndTransaction())])
    assert names(replay) == ["b"]


class Story:
    """A random log of topics, partitions and configs, with transactions, and a dumb twin: the list of what takes effect."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.records: list[Record] = []
        self.effective: list[tuple[int, MetadataRecord]] = []
        """The records that take effect once everything is applied, with their offsets."""
        self._names = 0

    def write(self, record: MetadataRecord) -> tuple[int, MetadataRecord]:
        self.records.append(record)
        return len(self.records) - 1, record

    def some(self, image: MetadataImage) -> list[tuple[int, MetadataRecord]]:
        """A few valid changes of `image`, which every one of them changes in turn."""
        delta, placed = MetadataDelta(image), []
        for _ in range(self.dice.randint(1, 6)):
            topics = list(delta.finish(NOWHERE).topics())
            delta = MetadataDelta(delta.finish(NOWHERE))
            if not topics or self.dice.random() < 0.4:
                self._names += 1
                record: MetadataRecord = Topic(f"t{self._names}", self._names.to_bytes(16, "big"))
            else:
                topic = self.dice.choice(topics)
                record = self.dice.choice(
                    (
                        Config(2, topic.name, "k", str(self.dice.randrange(3))),
                        RemoveTopic(topic.name, topic.topic_id),
                        Partition(topic.topic_id, topic.partition_count, (1,), (1,), (), (), 1, 0, 0, 0),
                        Partition(topic.topic_id, topic.partition_count, (1,), (1,), (), (), 1, 0, 0, 0),
                    )
                )
            delta.replay(record, len(self.records))
            placed.append(self.write(record))
        self.reached = delta.finish(NOWHERE)
        return placed

    def run(self, length: int) -> None:
        self.effective += [self.write(FeatureLevel("metadata.version", 2)), self.write(broker(1))]
        image = folded(self.effective)
        for _ in range(length):
            kind = self.dice.choice(("plain", "ended", "aborted"))
            if kind == "plain":
                self.effective += self.some(image)
                image = self.reached
                continue
            self.write(BeginTransaction("t"))
            inside, now = [], image
            for _ in range(self.dice.randint(1, 4)):
                inside += self.some(now)
                now = self.reached
            self.write(EndTransaction() if kind == "ended" else AbortTransaction("no"))
            if kind == "ended":
                self.effective += inside
                image = now


def folded(placed: list[tuple[int, MetadataRecord]]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, record in placed:
        delta.replay(record, offset)
    return delta.finish(NOWHERE)


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_through_transactions_gives_the_image_of_what_takes_effect(seed: int) -> None:
    """Wherever batches and applies end, inside of a transaction or not: the image is that of the ended transactions, and the
    changes that were published add up to the whole difference.
    """
    story, log, replay = Story(seed), LogWriter(), Replay()
    story.run(12)
    heard = Changes()
    seen: list[int] = []
    rest, pending = list(story.records), list[Batch]()
    while rest or pending:
        size = story.dice.randint(1, 5)
        if rest:
            pending.append(log.batch(*rest[:size]))
            rest = rest[size:]
        if story.dice.random() < 0.6 or not rest:
            heard.add(replay.apply(pending).changed)
            pending = []
            seen.append(replay.image.offset)
            visible = [each for each in story.effective if each[0] < replay.image.offset]
            assert replay.image.digest == folded(visible).digest
            replay.image.check_invariants()
    assert replay.transaction is None and replay.offset == replay.image.offset == len(story.records)
    assert heard.created_topics == {*replay.image.topics_by_id}
    assert seen == sorted(seen)


def test_a_leader_hands_its_open_transaction_over() -> None:
    """What it has built of the transaction goes on in replay, whichever way the transaction ends."""
    for end, found in ((EndTransaction(), ["a", "b", "c"]), (AbortTransaction("no"), ["a"])):
        log, leader, follower = LogWriter(), Replay(), Replay()
        leader.apply([log.batch(FeatureLevel("metadata.version", 2), Topic("a", uuid(1)))])
        leader.apply([log.batch(BeginTransaction("t"), Topic("b", uuid(2)))])
        follower.adopt(leader.image, leader.end, leader.open)
        assert (follower.image, follower.offset, follower.transaction) == (leader.image, leader.offset, "t")
        result = follower.apply([log.batch(Topic("c", uuid(3)), end)])
        assert names(follower) == found
        assert result.before is leader.image
        follower.image.check_invariants()
