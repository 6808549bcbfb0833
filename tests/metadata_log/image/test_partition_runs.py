"""Loading a snapshot in runs gives the same image as loading its records one by one."""

import random
from collections.abc import Iterable, Iterator

import msgpack
import pytest

from metadata_log.format.codec import UnknownRecord, encode_record, encode_records
from metadata_log.format.errors import LogFormatError
from metadata_log.format.partition_runs import PartitionRun, PartitionRuns
from metadata_log.format.records import METADATA_VERSION, FeatureLevel, MetadataRecord, Partition, Topic
from metadata_log.image.delta import InvalidRecord
from metadata_log.image.digest import record_hash
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Replay
from tests.metadata_log.image.histories import History, broker, uuid

A, B = uuid(1), uuid(2)
END = Provenance(900, 3, 7)


def partition(topic: bytes, number: int, replicas: tuple[int, ...] = (1, 2, 3), **fields: object) -> Partition:
    record = Partition(topic, number, replicas, replicas, (), (), replicas[0], 0, 0, 0)
    return record._replace(**fields)  # type: ignore[arg-type]


def pieces(records: Iterable[MetadataRecord], *sizes: int) -> Iterator[PartitionRun | MetadataRecord | UnknownRecord]:
    """What a reader makes of `records`, cut into payloads of `sizes` records; the last payload has the rest."""
    reader, rest = PartitionRuns(), list(records)
    for size in (*sizes, len(rest)):
        payload, rest = rest[:size], rest[size:]
        yield from reader.read(encode_records(payload), len(payload))  # type: ignore[misc]


def loaded(records: Iterable[MetadataRecord], *sizes: int) -> MetadataImage:
    return Replay().load_snapshot(pieces(records, *sizes), END)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_runs_make_the_same_image_as_records(seed: int) -> None:
    """Any history, cut into payloads at any places: maps, counts, digest and the index of brokers are the same."""
    dice = random.Random(seed)
    records = list(History(seed).run(40).image.canonical_records())
    one_by_one = Replay().load_snapshot(records, END)
    image = loaded(records, *(dice.randrange(1, 30) for _ in range(20)))
    assert image == one_by_one
    assert list(image.canonical_records()) == records
    image.check_invariants()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 200])
@pytest.mark.parametrize("cut", [1, 64, 100])
def test_chunks_are_full_wherever_a_payload_ends(count: int, cut: int) -> None:
    """A payload ends inside a topic, and the next payload goes on in the middle of a chunk."""
    records: list[MetadataRecord] = [broker(n, broker_epoch=n) for n in (1, 2, 3)]
    records += [Topic("a", A), *(partition(A, n) for n in range(count)), Topic("b", B), partition(B, 0, (3, 1))]
    image = loaded(records, 4 + min(cut, count))
    image.check_invariants()
    assert image.topic("a") is not None and image.partition_count == count + 1


def test_a_run_has_the_partitions_of_one_topic_that_follow_each_other() -> None:
    numbers = [*range(300)]
    read = list(pieces([Topic("a", A), *(partition(A, n) for n in numbers), partition(B, 0), Topic("c", uuid(3))]))
    assert [type(each).__name__ for each in read] == ["Topic", "PartitionRun", "PartitionRun", "Topic"]
    run = read[1]
    assert isinstance(run, PartitionRun) and (run.topic_id, run.first, len(run.states)) == (A, 0, 300)
    assert list(run.records()) == [partition(A, n) for n in numbers]
    assert run.hashes == sum(map(record_hash, run.records()))


def test_a_partition_with_other_bytes_than_its_encoding_is_not_part_of_a_run() -> None:
    """Its hash is that of its values, not that of its bytes; otherwise two nodes could have one state and two digests.
    Example: a number in more bytes than it needs; a default that the encoding leaves out."""
    fields = (3, 0, A, 5, *partition(A, 5)[2:10])
    long_number = encode_record(partition(A, 5)).replace(A + b"\x05", A + b"\xcd\x00\x05")
    with_defaults = msgpack.packb((*fields, (), (), ()), use_bin_type=True)
    for packed in (long_number, with_defaults):
        assert packed != encode_record(partition(A, 5))
        assert list(PartitionRuns().read(packed, 1)) == [partition(A, 5)]


def test_states_that_are_equal_in_python_and_not_in_bytes_are_not_mixed_up() -> None:
    """True equals 1 in Python: as a broker's id it is damage, also after a partition with broker 1."""
    good = encode_record(partition(A, 0, (1,)))
    assert good.count(b"\x91\x01") == 2
    bad = encode_record(partition(A, 1, (1,))).replace(b"\x91\x01", b"\x91\xc3", 1)
    with pytest.raises(LogFormatError, match="True"):
        list(PartitionRuns().read(good + bad, 2))


@pytest.mark.parametrize(
    "records, why",
    [
        ([Topic("a", A), partition(A, 1)], "partition 1 of topic 'a' is not the next; the topic has 0"),
        (
            [Topic("a", A), partition(A, 0), partition(A, 2)],
            "partition 2 of topic 'a' is not the next; the topic has 1",
        ),
        ([partition(A, 0)], "there is no topic"),
        ([Topic("a", A), partition(A, 0, leader=9)], "leader 9 is not in isr"),
    ],
)
def test_partitions_that_do_not_fit_are_refused(records: list[MetadataRecord], why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        loaded(records)


@pytest.mark.parametrize("level", [1, 2])
def test_a_run_obeys_the_level_of_the_snapshot(level: int) -> None:
    """At level 1 no partition has eligible leader replicas: such a snapshot was written by a mistake."""
    reassigned = partition(A, 1, isr=(1,), elr=(2,))
    records: list[MetadataRecord] = [FeatureLevel(METADATA_VERSION, level), Topic("a", A), partition(A, 0), reassigned]
    if level == 2:
        assert loaded(records).partition_count == 2
        return
    with pytest.raises(InvalidRecord, match=r"record at offset 3 .* elr needs metadata\.version 2"):
        loaded(records)
