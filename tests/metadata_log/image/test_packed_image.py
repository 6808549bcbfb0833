"""An image with packed partitions is the same image, whatever happens to it later."""

import random
from collections.abc import Iterable, Iterator

import pytest

from metadata_log.format import packed_states
from metadata_log.format.codec import decode_record, encode_record
from metadata_log.format.columns import may_have, pack_numbers
from metadata_log.format.errors import LogFormatError
from metadata_log.format.packed_states import packed_run_of
from metadata_log.format.partition_runs import PartitionRun, columns_of
from metadata_log.format.records import MetadataRecord, Partition, PartitionChange, PartitionColumns, Topic
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.packed_check import check_packed
from metadata_log.image.packed_chunk import CHANGED_MAX, PackedChunk
from metadata_log.image.replay import Loading
from metadata_log.image.topic_image import TopicImage
from tests.metadata_log.image.histories import History, broker, uuid
from tests.metadata_log.image.test_partition_runs import loaded, partition

A = uuid(1)
END = Provenance(900, 3, 7)


def packed_pieces(image: MetadataImage) -> Iterator[MetadataRecord | PartitionRun]:
    for piece in image.canonical_pieces():
        if not isinstance(piece, PartitionRun):
            yield piece
            continue
        record = decode_record(encode_record(columns_of(piece)))
        assert isinstance(record, PartitionColumns)
        yield packed_run_of(record)


def load(pieces: Iterable[MetadataRecord | PartitionRun]) -> MetadataImage:
    loading = Loading()
    for piece in pieces:
        loading.take(piece)
    return loading.finish(END)


def replayed(image: MetadataImage, records: Iterable[MetadataRecord], offset: int = 1_000) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record, offset)
        offset += 1
    return delta.finish(Provenance(offset, 4, 8))


def large(count: int, seed: int = 7) -> MetadataImage:
    """Topic a with this many partitions on five brokers."""
    dice = random.Random(seed)
    records: list[MetadataRecord] = [*(broker(n, broker_epoch=n) for n in range(1, 6)), Topic("a", A)]
    for number in range(count):
        replicas = tuple(dice.sample(range(1, 6), 3))
        records.append(Partition(A, number, replicas, replicas, (), (), replicas[0], 0, 0, 0))
    return loaded(records)


def topic_of(image: MetadataImage) -> TopicImage:
    topic = image.topic("a")
    assert topic is not None
    return topic


def assert_same(one: MetadataImage, other: MetadataImage) -> None:
    assert one == other
    assert [*one.canonical_records()] == [*other.canonical_records()]
    assert [*one.canonical_pieces()] == [*other.canonical_pieces()]
    one.check_invariants()
    for topic in other.topics():
        found = one.topic(topic.name)
        assert found is not None and found.reassigning == topic.reassigning
        for broker_id in range(8):
            assert [*found.partitions_on(broker_id)] == [*topic.partitions_on(broker_id)]
            assert found.has_replica_on(broker_id) == topic.has_replica_on(broker_id)
        assert [*found.replica_counts().items()] == [*topic.replica_counts().items()]


@pytest.mark.parametrize("seed", range(15))
def test_any_history_goes_on_from_a_packed_image(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed image is the image, and the next forty records of its history change both in the same way."""
    monkeypatch.setattr(packed_states, "PACKED_MIN", 1)
    history = History(seed).run(40)
    start, offset = len(history.log), history.image.offset
    eager, packed = load(history.image.canonical_records()), load(packed_pieces(history.image))
    assert_same(packed, eager)
    later = history.run(40).log[start:]
    assert_same(replayed(packed, later, offset), replayed(eager, later, offset))
    assert_same(packed, eager)


@pytest.mark.parametrize("count", [16, 63, 64, 65, 1_000, 1_001, 2_500])
def test_chunks_are_full_wherever_a_run_ends(count: int) -> None:
    image = large(count)
    packed = load(packed_pieces(image))
    assert any(isinstance(chunk, PackedChunk) for chunk in topic_of(packed).chunks)
    assert_same(packed, image)


@pytest.mark.parametrize("seed", range(4))
def test_changes_and_new_partitions_on_packed_chunks(seed: int) -> None:
    """Commit after commit: few changes of a chunk, many of them, the same partition twice, and partitions behind the last."""
    dice = random.Random(seed)
    eager = large(1_100, seed)
    packed = load(packed_pieces(eager))
    for _ in range(12):
        records: list[MetadataRecord] = []
        for number in dice.choices(range(dice.choice([40, 1_100])), k=dice.choice([1, 5, 60])):
            state = topic_of(eager).state(number)
            assert state is not None
            leader = dice.choice(state[0])
            records.append(PartitionChange(A, number, isr=(leader,), leader=leader))
        if dice.random() < 0.5:
            count = topic_of(eager).partition_count
            records += [Partition(A, count + n, (1, 2), (1, 2), (), (), 1, 0, 0, 0) for n in range(dice.randrange(70))]
        before = packed
        unchanged = [*before.canonical_records()]
        eager, packed = replayed(eager, records), replayed(packed, records)
        assert_same(packed, eager)
        assert [*before.canonical_records()] == unchanged, "an image never changes"


def test_a_broker_without_replicas_costs_one_search_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk of the broker asks 5,000 topics in one turn of the event loop. Here 1,000 partitions are 16 chunks of one run."""
    searched: list[int] = []

    def search(data: bytes, number: int) -> bool:
        searched.append(number)
        return may_have(data, number)

    monkeypatch.setattr(packed_states, "may_have", search)
    topic = topic_of(load(packed_pieces(large(1_000))))
    assert not topic.has_replica_on(99) and searched == [99]
    assert topic.has_replica_on(3)


def test_a_replica_that_has_moved_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed run still names the old replica, and does not name the new one."""
    monkeypatch.setattr(packed_states, "PACKED_MIN", 1)
    brokers = [broker(n, broker_epoch=n) for n in (1, 2)]
    packed = load(packed_pieces(loaded([*brokers, Topic("a", A), partition(A, 0, (1,))])))
    moved = topic_of(replayed(packed, [PartitionChange(A, 0, isr=(2,), leader=2, replicas=(2,))]))
    assert isinstance(moved.chunks[0], PackedChunk) and moved.index is None
    assert moved.has_replica_on(2) and not moved.has_replica_on(1)
    assert moved.replica_counts() == {2: 1}


def test_a_chunk_with_many_changes_is_unpacked() -> None:
    """Few changes are beside the packed states, so that the death of a broker unpacks nothing."""
    packed = load(packed_pieces(large(64)))
    few = replayed(packed, [PartitionChange(A, n, leader=-1) for n in range(CHANGED_MAX)])
    assert isinstance(topic_of(few).chunks[0], PackedChunk)
    many = replayed(few, [PartitionChange(A, CHANGED_MAX, leader=-1)])
    assert isinstance(topic_of(many).chunks[0], tuple)


def test_the_check_finds_a_state_that_cannot_be() -> None:
    """The bytes are whole, and each length fits: only the meaning is wrong. The check names the topic."""
    [*pieces] = packed_pieces(large(100))
    sound = load(pieces)
    assert sum(check_packed(sound)) == 100
    [run] = [each for each in large(100).canonical_pieces() if isinstance(each, PartitionRun)]
    columns = columns_of(run)
    wrong = columns._replace(numbers=(pack_numbers([9] * 100), *columns.numbers[1:]))
    image = load([each if not isinstance(each, PartitionRun) else packed_run_of(wrong) for each in pieces])
    with pytest.raises(LogFormatError, match="topic 'a': partition 0: leader 9 is not in isr"):
        [*check_packed(image)]
