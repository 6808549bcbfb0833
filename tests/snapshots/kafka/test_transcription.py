"""The transcription of Kafka's log: offset by offset, and with the state that Kafka itself has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.batch import BATCH_BYTES_MAX, verify_chain
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.records import (
    METADATA_VERSION,
    BrokerRegistrationChange,
    NoOp,
    PartitionChange,
    Record,
    RegisterBroker,
)
from snapshots.offline.kafka.batches import Batch as KafkaBatch
from snapshots.offline.kafka.log_files import KafkaLog, find_kafka_log
from snapshots.offline.kafka.records import Placed, UnknownRecord
from snapshots.offline.kafka.records import Record as KafkaRecord
from snapshots.offline.kafka.scan import Scanned, read_log
from snapshots.offline.kafka.tables import METADATA
from snapshots.offline.kafka.transcribe import batches as transcription
from snapshots.offline.kafka.transcribe.batches import Transcription, transcribed
from snapshots.offline.kafka.transcribe.records import KAFKA_METADATA_VERSION, MIGRATING_DIRECTORY, Transcriber
from snapshots.offline.kafka.transcribe.states import NO_CHAIN, CannotTranscribe, base_of, load_snapshot, newest_state
from tests.snapshots.kafka.given import LOGS, nodes, unpack
from tests.snapshots.kafka.given import METADATA as DIRECTORY
from tests.snapshots.kafka.twin import twin_of

ALL_NODES = [(name, node) for name in LOGS for node in nodes(name)]


def log_of(name: str, node: str, tmp_path: Path) -> KafkaLog:
    return find_kafka_log(LocalDirectory(unpack(name, node, tmp_path)))


@pytest.mark.parametrize(("name", "node"), ALL_NODES)
def test_each_snapshot_of_kafka_is_the_state_that_the_log_makes(name: str, node: str, tmp_path: Path) -> None:
    """Kafka wrote snapshot and log on two code paths. In our records both have one digest, so nothing was read wrongly."""
    log = log_of(name, node, tmp_path)
    from_here = log.snapshots[:1] if log.start_offset > 0 else ()
    for file in log.snapshots:
        if file.end.offset == 0:
            continue
        transcriber = Transcriber()
        by_log = newest_state(log._replace(snapshots=from_here), transcriber, file.end.offset).image
        by_snapshot = load_snapshot(log.directory, file, transcriber.beside())
        assert set(by_log.canonical_records()) == set(by_snapshot.canonical_records())
        assert by_log.digest == by_snapshot.digest
        assert by_log.provenance == by_snapshot.provenance


@pytest.mark.parametrize("name", LOGS)
def test_each_offset_has_one_record_of_its_epoch_and_time(name: str, tmp_path: Path) -> None:
    log = log_of(name, nodes(name)[0], tmp_path)
    ours = list(transcribed(log, Transcriber(), NO_CHAIN, 0))
    theirs = list(read_log(log))
    placed = [(offset, batch.epoch) for batch in ours for offset in range(batch.base_offset, batch.end_offset)]
    assert placed == [(each.offset, each.epoch) for each in theirs]
    records = [record for batch in ours for record in decode_batch(batch)]
    for theirs_one, record in zip(theirs, records, strict=True):
        without = theirs_one.record.name in ("NoOpRecord", "ZkMigrationStateRecord")
        assert isinstance(record, NoOp) is without, theirs_one
    times = {each.offset: each.timestamp_ms for each in theirs}
    assert all(times[batch.base_offset] == batch.first_timestamp_ms for batch in ours)
    chain = NO_CHAIN
    for batch in ours:
        assert verify_chain(batch, chain)
        chain = batch.chain


@pytest.mark.parametrize("name", LOGS)
def test_the_state_is_the_one_of_a_second_fold(name: str, tmp_path: Path) -> None:
    node = nodes(name)[0]
    twin, image = twin_of(unpack(name, node, tmp_path)), newest_state(log_of(name, node, tmp_path), Transcriber()).image
    assert {topic.topic_id: topic.name for topic in image.topics()} == twin.topics
    partitions = {
        (topic.name, number): state for topic in image.topics() for number, state in enumerate(topic.states())
    }
    names = ("replicas", "isr", "removingReplicas", "addingReplicas", "leader", "leaderRecoveryState", "leaderEpoch")
    more = ("partitionEpoch", "directories", "eligibleLeaderReplicas", "lastKnownElr")
    assert partitions == {
        place: tuple(fields[name] for name in (*names, *more)) for place, fields in twin.partitions.items()
    }
    assert dict(image.configs.items()) == {key: values for key, values in twin.configs.items() if values}
    features = dict(image.features.items())
    features[METADATA_VERSION] = features.pop(KAFKA_METADATA_VERSION)
    assert features == twin.features
    assert {broker_id: broker.fenced for broker_id, broker in image.brokers.items()} == {
        broker_id: fields["fenced"] for broker_id, fields in twin.brokers.items()
    }
    assert len(list(image.acls.values())) == len(twin.acls)
    assert set(image.scram_credentials.keys()) == set(twin.scram)


# --- single records ---------------------------------------------------------------------------------------------------


def kafka(name: str, **fields: Any) -> KafkaRecord:
    """Return a record of Kafka in its latest version; all other fields have their defaults."""
    (message,) = [each for each in METADATA.values() if each.name == f"{name}Record"]
    values = {field.name: field.default_value for field in message.fields}
    assert values.keys() >= fields.keys()
    return KafkaRecord(message, message.latest, {**values, **fields})


def ours(transcriber: Transcriber, record: KafkaRecord | UnknownRecord, offset: int, base: int | None = None) -> Record:
    return transcriber.record(Placed(offset, 1, 0, record), offset if base is None else base)


def test_a_broker_epoch_is_the_offset_of_the_registration() -> None:
    """Kafka gives the end of the log as epoch, and writes a record before the registration. Later changes name Kafka's epoch."""
    transcriber = Transcriber()
    registered = ours(
        transcriber, kafka("RegisterBroker", brokerId=2, brokerEpoch=264, incarnationId=b"a" * 16), 265, 264
    )
    assert isinstance(registered, RegisterBroker) and registered.broker_epoch == 265
    change = ours(transcriber, kafka("BrokerRegistrationChange", brokerId=2, brokerEpoch=264, fenced=-1), 270)
    assert change == BrokerRegistrationChange(2, 265, fenced=False)
    assert ours(transcriber, kafka("FenceBroker", id=2, epoch=264), 271) == BrokerRegistrationChange(
        2, 265, fenced=True
    )
    again = ours(transcriber, kafka("RegisterBroker", brokerId=2, brokerEpoch=264, incarnationId=b"a" * 16), 300)
    assert isinstance(again, RegisterBroker) and again.broker_epoch == 265, "the same process keeps its epoch"


def test_an_epoch_that_kafka_could_not_have_given_stays_visible() -> None:
    registered = ours(
        Transcriber(), kafka("RegisterBroker", brokerId=2, brokerEpoch=90, incarnationId=b"a" * 16), 265, 264
    )
    assert isinstance(registered, RegisterBroker) and registered.broker_epoch == 90


def test_a_partition_without_directories_is_migrating() -> None:
    partition = ours(Transcriber(), kafka("Partition", replicas=(1, 2), isr=(1, 2), leader=1), 5)
    assert partition.directories == (MIGRATING_DIRECTORY,) * 2  # type: ignore[union-attr]


def test_a_change_names_only_what_has_changed() -> None:
    change = ours(Transcriber(), kafka("PartitionChange", partitionId=3, leader=-1), 5)
    assert change == PartitionChange(bytes(16), 3, leader=-1)
    assert ours(Transcriber(), kafka("PartitionChange", partitionId=3), 5) == PartitionChange(bytes(16), 3)


def test_a_record_without_a_counterpart_is_listed() -> None:
    transcriber = Transcriber()
    assert ours(transcriber, UnknownRecord(False, 90, 0, b""), 7) == NoOp()
    assert ours(transcriber, kafka("ZkMigrationState"), 8) == NoOp()
    assert ours(transcriber, kafka("ZkMigrationState"), 9) == NoOp()
    assert [(each.what, each.number, each.first_offset) for each in transcriber.left.list()] == [
        ("Unknown(90 v0)", 1, 7),
        ("ZkMigrationStateRecord", 2, 8),
    ]


def test_a_large_batch_becomes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of Kafka have up to 8 MiB, ours 1 MiB. Offsets and chain go on."""
    records = [Placed(40 + i, 3, 0, kafka("Config", resourceName="x" * 60_000, value="")) for i in range(40)]
    batch = KafkaBatch(40, 3, 0, 0, 5, 6, -1, -1, -1, 40, b"")
    monkeypatch.setattr(transcription, "records", lambda _: iter(records))
    found: Iterator[Scanned] = iter([Scanned("f", 0, 0, batch, 40, None)])
    made = list(Transcription(Transcriber(), NO_CHAIN).batches(found, LocalDirectory(Path("/nowhere"))))
    assert len(made) == 3 and all(len(each.data) <= BATCH_BYTES_MAX for each in made)
    assert [each.base_offset for each in made[1:]] == [each.end_offset for each in made[:-1]]
    assert (made[0].base_offset, made[-1].end_offset) == (40, 80)
    assert verify_chain(made[1], made[0].chain)


def test_a_record_above_our_largest_batch_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with `a batch of 8388703 bytes ... Nothing was appended`, and no file and no offset."""
    records = [
        Placed(40 + i, 3, 0, kafka("Config", resourceName="x", value="y" * size)) for i, size in enumerate((5, 8 << 20))
    ]
    batch = KafkaBatch(40, 3, 0, 0, 5, 6, -1, -1, -1, 2, b"")
    monkeypatch.setattr(transcription, "records", lambda _: iter(records))
    found: Iterator[Scanned] = iter([Scanned("f", 72, 0, batch, 40, None)])
    with pytest.raises(
        CorruptLog, match=r"^/nowhere/f: damage at byte 72, offset 40: the record at offset 41 has 8388\d+ bytes"
    ):
        [*Transcription(Transcriber(), NO_CHAIN).batches(found, LocalDirectory(Path("/nowhere")))]


# --- what cannot be transcribed ---------------------------------------------------------------------------------------


def test_damage_is_named_with_its_place(tmp_path: Path) -> None:
    node = unpack("voters-3.9.1", "node-101", tmp_path)
    segment = node / DIRECTORY / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[3_000] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptLog, match=rf"{0:020}\.log"):
        list(transcribed(find_kafka_log(LocalDirectory(node)), Transcriber(), NO_CHAIN, 0))


def test_a_log_without_its_beginning_needs_a_snapshot(tmp_path: Path) -> None:
    log = log_of("elr-4.1.1", "node-1", tmp_path)
    later = log._replace(segments=(log.segments[0]._replace(base_offset=225),))
    assert base_of(later) == log.snapshots[-1]
    with pytest.raises(CannotTranscribe, match=r"copy the \.checkpoint files"):
        base_of(later._replace(snapshots=log.snapshots[:3]))


def test_an_offset_inside_a_batch_has_no_state(tmp_path: Path) -> None:
    log = log_of("elr-4.1.1", "node-1", tmp_path)
    with pytest.raises(CannotTranscribe, match="no batch ends at offset 5"):
        newest_state(log, Transcriber(), 5)
