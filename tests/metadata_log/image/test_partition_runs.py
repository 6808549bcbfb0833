"""Loading a snapshot in runs gives the same image as loading its records one by one."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.format.codec import decode_record, encode_record
from metadata_log.format.columns import pack_lists
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_runs import RUN_IDS_MAX, RUN_PARTITIONS_MAX, PartitionRun, columns_of, run_of
from metadata_log.format.partition_state import PartitionState, misfit
from metadata_log.format.records import ListColumn, MetadataRecord, Partition, PartitionColumns, Topic
from metadata_log.image.delta import InvalidRecord
from metadata_log.image.digest import MODULUS, record_hash
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.image.replay import Replay
from metadata_log.image.topic_image import in_runs, runs_of
from snapshots.format import SnapshotCorrupt
from snapshots.reader import verify_snapshot
from snapshots.writer import write_image
from tests.metadata_log.image.histories import History, broker, uuid
from tests.metadata_log.image.test_delta import replayed
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.images import meta_of, records_in

A, B = uuid(1), uuid(2)
END = Provenance(900, 3, 7)


def partition(topic: bytes, number: int, replicas: tuple[int, ...] = (1, 2, 3), **fields: object) -> Partition:
    record = Partition(topic, number, replicas, replicas, (), (), replicas[0], 0, 0, 0)
    return record._replace(**fields)  # type: ignore[arg-type]


def pieces(records: Iterable[MetadataRecord]) -> Iterator[PartitionRun | MetadataRecord]:
    """The records that a reader of a snapshot with these records gets: each run is packed and unpacked."""
    for piece in in_runs(records):
        yield over_the_disk(piece) if isinstance(piece, PartitionRun) else piece


def over_the_disk(run: PartitionRun) -> PartitionRun:
    record = decode_record(encode_record(columns_of(run)))
    assert isinstance(record, PartitionColumns)
    return run_of(record)


def loaded(records: Iterable[MetadataRecord]) -> MetadataImage:
    return Replay().load_snapshot(pieces(records), END)


def columns(**changes: object) -> PartitionColumns:
    """The columns of three partitions, some of them replaced."""
    [run] = runs_of(A, [partition(A, n)[2:] for n in range(3)])
    return columns_of(run)._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_runs_make_the_same_image_as_records(seed: int) -> None:
    """Any history: maps, counts, digest and the indexes of brokers and reassignments are the same."""
    history = History(seed).run(40)
    records = list(history.image.canonical_records())
    assert [*records_in(history.image.canonical_pieces())] == records
    one_by_one = Replay().load_snapshot(records, END)
    image = loaded(records)
    assert image == one_by_one
    assert list(image.canonical_records()) == records
    image.check_invariants()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 999, 1_000, 1_001, 2_500])
def test_chunks_are_full_wherever_a_run_ends(count: int) -> None:
    """A run ends inside a topic, and the next run goes on in the middle of a chunk. Image and records make equal runs."""
    records: list[MetadataRecord] = [broker(n, broker_epoch=n) for n in (1, 2, 3)]
    records += [Topic("a", A), *(partition(A, n) for n in range(count)), Topic("b", B), partition(B, 0, (3, 1))]
    image = loaded(records)
    image.check_invariants()
    assert image.topic("a") is not None and image.partition_count == count + 1
    assert [*image.canonical_pieces()] == [*in_runs(image.canonical_records())]


def test_a_run_has_the_partitions_of_one_topic_that_follow_each_other() -> None:
    numbers = [*range(300)]
    read = list(pieces([Topic("a", A), *(partition(A, n) for n in numbers), partition(B, 0), Topic("c", uuid(3))]))
    assert [type(each).__name__ for each in read] == ["Topic", "PartitionRun", "PartitionRun", "Topic"]
    run = read[1]
    assert isinstance(run, PartitionRun) and (run.topic_id, run.first, len(run.states)) == (A, 0, 300)
    assert list(run.records()) == [partition(A, n) for n in numbers]
    assert run.hashes == sum(map(record_hash, run.records())) % MODULUS


def test_a_bit_that_flips_in_memory_is_in_no_sum() -> None:
    """The image keeps the digest of its records. A state that is wrong since then gives runs whose hashes do not fit the digest,
    and every reader refuses the snapshot."""
    records: list[MetadataRecord] = [*(broker(n, broker_epoch=n) for n in (1, 2, 3)), Topic("a", A)]
    image = loaded([*records, *(partition(A, n) for n in range(9))])
    topic = image.topic("a")
    assert topic is not None
    wrong = (*topic.chunks[0][:7], partition(A, 7, leader=3)[2:], topic.chunks[0][8])
    object.__setattr__(topic, "chunks", (wrong,))
    disk = MemoryDirectory("/d")
    info = write_image(disk, meta_of(image), image)
    with pytest.raises(SnapshotCorrupt, match="digest"):
        verify_snapshot(disk, info.end)


def test_a_run_ends_before_it_has_too_many_replicas() -> None:
    """Topics with 100 replicas: 50 partitions are a run. A partition with more than the limit is a run of its own."""
    many = tuple(range(100))
    lengths = [len(run.states) for run in runs_of(A, [partition(A, 0, many)[2:]] * 120)]
    assert lengths == [50, 50, 20]
    huge = partition(A, 0, tuple(range(RUN_IDS_MAX + 1)))[2:]
    assert [len(run.states) for run in runs_of(A, [huge, huge])] == [1, 1]


STATES = st.builds(
    lambda replicas, isr, leader, epochs, other, directories: (
        tuple(replicas),
        tuple(each for each in replicas if each in isr),
        tuple(replicas[:other]),
        tuple(replicas[other:]) if other else (),
        replicas[0] if leader and replicas[0] in isr else NO_LEADER,
        other % 2,
        *epochs,
        tuple(uuid(each % 3) for each in replicas) if directories else (),
        tuple(each for each in replicas if each not in isr) if other else (),
        tuple(replicas[:other]),
    ),
    st.lists(st.sampled_from([1, 2, 127, 128, 40_000, 2**31 - 1]), min_size=1, max_size=4, unique=True),
    st.sets(st.sampled_from([1, 2, 127, 128, 40_000, 2**31 - 1])),
    st.booleans(),
    st.tuples(st.sampled_from([0, 1, 127, 2**40]), st.sampled_from([0, 5, 2**62])),
    st.integers(0, 2),
    st.booleans(),
)


@given(st.lists(STATES, min_size=1, max_size=12))
def test_any_states_come_back_from_their_columns(states: list[PartitionState]) -> None:
    for state in states:
        assert misfit(state) is None
    [run] = runs_of(A, states, 7)
    assert over_the_disk(run) == run


def test_equal_states_and_lists_are_shared() -> None:
    """Two topics that were created in the same way have the same states: memory holds each of them once."""
    first, second = (run for topic in (A, B) for run in runs_of(topic, [partition(topic, n)[2:] for n in range(9)]))
    one, other = over_the_disk(first), over_the_disk(second)
    assert all(mine is yours for mine, yours in zip(one.states, other.states, strict=True))


@pytest.mark.parametrize(
    "bad, why",
    [
        (columns(partition_count=0), "a run of 0 partitions"),
        (columns(partition_count=RUN_PARTITIONS_MAX + 1), "a run of 1001 partitions"),
        (columns(first=-1), "a run of 3 partitions from -1"),
        (columns(hashes=b"short"), "a hash of 5 bytes"),
        (columns(lists=()), "0 and 4 columns; 7 and 4 are expected"),
        (columns(numbers=(b"", b"", b"", b"\x03123")), "numbers of 3 bytes"),
        (columns(numbers=(b"", b"", b"", b"\x01ab")), "a column of 3 bytes where 3 numbers of 1 bytes"),
        (columns(numbers=(b"\x01\x09", b"", b"", b"")), "partition 0: leader 9 is not in isr"),
        (columns(numbers=(b"\x01\x01", b"", b"\x01\xff", b"")), "partition 0: leader epoch -1"),
        (columns(lists=(pack_lists([[1, 1]] * 3), *columns().lists[1:])), r"replicas \(1, 1\)"),
        (columns(lists=(ListColumn(b"", b""), *columns().lists[1:])), "partition 0: replicas"),
        (columns(lists=(ListColumn(b"\x02\x7f\xff", b"\x01\x01"), *columns().lists[1:])), "lists with 98301 numbers"),
        (columns(lists=(ListColumn(b"\x01\xff", b""), *columns().lists[1:])), "a negative size"),
        (columns(lists=(*columns().lists[:6], pack_lists([[0, 1, 2]] * 3))), "outside the 0 directories"),
    ],
)
def test_columns_that_do_not_fit_are_damage(bad: PartitionColumns, why: str) -> None:
    """Every length is checked before a list of this length is made."""
    with pytest.raises(LogFormatError, match=why):
        run_of(bad)


@pytest.mark.parametrize(
    "records, why",
    [
        ([Topic("a", A), partition(A, 1)], "partition 1 of topic 'a' is not the next; the topic has 0"),
        (
            [Topic("a", A), partition(A, 0), partition(A, 2)],
            "partition 2 of topic 'a' is not the next; the topic has 1",
        ),
        ([partition(A, 0)], "there is no topic"),
    ],
)
def test_partitions_that_do_not_fit_are_refused(records: list[MetadataRecord], why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        loaded(records)


def test_columns_are_of_snapshots_only() -> None:
    """A log has `Partition` records: an entity is folded, watched and compared by its records."""
    with pytest.raises(InvalidRecord, match="PartitionColumns is not a record of the image"):
        replayed(EMPTY_IMAGE, columns())


@pytest.mark.parametrize(
    "fields",
    [
        {"removing_replicas": (1, 1)},
        {"adding_replicas": (2, 2)},
        {"replicas": (1, 2, 3, 1 << 31)},
        {"leader_epoch": 1 << 63},
        {"partition_epoch": 1 << 63},
        {"last_known_elr": (1 << 31,)},
        {"last_known_elr": (-1,)},
    ],
)
def test_what_no_column_could_hold_is_in_no_image(fields: dict[str, Any]) -> None:
    """Counter-example: all nodes apply such a record, write it into their snapshots, and can load none of them."""
    assert misfit(partition(A, 0, **fields)[2:]) is not None
