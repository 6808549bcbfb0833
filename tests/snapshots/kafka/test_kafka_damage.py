"""Damage in Kafka's logs: each flipped byte is found at its place, a torn tail is told apart, garbage raises typed errors."""

import random
import struct
from functools import cache
from pathlib import Path

import google_crc32c
import pytest

from metadata_log.format.errors import CorruptLog, LogFormatError
from snapshots.offline.kafka.batches import BATCH_BYTES_MAX, HEADER_BYTES, decode, raw_records
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import NoKafkaLogHere, find_kafka_log
from snapshots.offline.kafka.records import decode_record, records
from snapshots.offline.kafka.scan import Scanned, read_log, read_snapshot, scan_log, scan_snapshot
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.kafka.given import contents

SEGMENT = f"{0:020}.log"
LATER = 12
EPOCH_AT = range(12, 16)


@cache
def log_bytes() -> bytes:
    """Return the one segment of a real log with several epochs."""
    return contents("elr-4.1.1")[f"node-1/__cluster_metadata-0/{SEGMENT}"]


@cache
def sound() -> list[Scanned]:
    return scan(log_bytes())


def directory_of(**files: bytes) -> MemoryDirectory:
    directory = MemoryDirectory("/node")
    for name, data in files.items():
        directory.write_atomic(name, data)
    return directory


def scan(data: bytes) -> list[Scanned]:
    return list(scan_log(find_kafka_log(directory_of(**{SEGMENT: data}))))


def flipped(data: bytes, at: int, mask: int = 0x10) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def inner_data_batch() -> Scanned:
    """Return a batch of metadata with several records and batches on both sides."""
    found = [
        s for s in sound()[LATER:-LATER] if s.batch is not None and not s.batch.is_control and s.batch.record_count > 2
    ]
    return found[0]


# --- flipped bits


def test_each_flipped_byte_is_found_at_its_batch() -> None:
    """Header, checksum or body: one error, which names the position and the offset. All other batches are read."""
    victim = inner_data_batch()
    for at in range(victim.length):
        found = scan(flipped(log_bytes(), victim.position + at))
        (bad,) = [scanned for scanned in found if scanned.error is not None]
        assert (bad.file, bad.position, bad.expected_offset, bad.is_torn) == (
            SEGMENT,
            victim.position,
            victim.expected_offset,
            False,
        )
        assert bad.length == victim.length
        assert [s.batch for s in found if s.error is None] == [
            s.batch for s in sound() if s.position != victim.position
        ]


def test_a_reader_that_must_not_err_gets_the_place(tmp_path: Path) -> None:
    victim = inner_data_batch()
    log = find_kafka_log(directory_of(**{SEGMENT: flipped(log_bytes(), victim.position + HEADER_BYTES + 3)}))
    read: list[int] = []
    with pytest.raises(CorruptLog, match="checksum") as caught:
        read.extend(placed.offset for placed in read_log(log))
    assert read == list(range(victim.expected_offset or 0))
    error = caught.value
    assert (error.file, error.position, error.offset) == (f"/node/{SEGMENT}", victim.position, victim.expected_offset)


def test_a_raised_epoch_of_a_leaders_first_batch_is_found_at_the_next_batch() -> None:
    """Epoch 2 becomes 18. The batch has a LeaderChange, so it may begin an epoch; the next batch is of epoch 2 again."""
    batches = [scanned.batch for scanned in sound() if scanned.batch is not None]
    index = next(i for i in range(1, len(batches)) if batches[i].epoch > batches[i - 1].epoch)
    epoch = batches[index].epoch
    found = scan(flipped(log_bytes(), sound()[index].position + EPOCH_AT[-1], 0x10))
    assert [(s.position, s.error) for s in found if s.error is not None] == [
        (
            sound()[index + 1].position,
            f"the batch names epoch {epoch}, after epoch {epoch + 16}: one of the two batches is damaged",
        )
    ]


def test_a_cut_out_batch_is_one_error() -> None:
    """The bytes of one batch are gone, as no flip of a bit could do. All records behind are shown."""
    victim = inner_data_batch()
    data = log_bytes()[: victim.position] + log_bytes()[victim.position + victim.length :]
    found = scan(data)
    (bad,) = [scanned for scanned in found if scanned.error is not None]
    assert bad.batch is not None and "should follow" in (bad.error or "")
    assert len(found) == len(sound()) - 1


def test_a_missing_segment_is_named() -> None:
    middle = sound()[len(sound()) // 2]
    first, rest = log_bytes()[: sound()[10].position], log_bytes()[middle.position :]
    files = {SEGMENT: first, f"{middle.expected_offset:020}.log": rest}
    found = list(scan_log(find_kafka_log(directory_of(**files))))
    (bad,) = [scanned for scanned in found if scanned.error is not None]
    assert bad.file == f"{middle.expected_offset:020}.log"
    assert (
        bad.error
        == f"a segment is missing: offset {bad.expected_offset} should follow, and the file begins at {middle.expected_offset}"
    )


def test_damage_above_a_range_does_not_matter() -> None:
    victim = inner_data_batch()
    log = find_kafka_log(directory_of(**{SEGMENT: flipped(log_bytes(), victim.position + 70)}))
    until = victim.expected_offset or 0
    assert [placed.offset for placed in read_log(log, until=until)] == list(range(until))


# --- the end of the log


def test_a_log_cut_at_any_byte_has_a_torn_tail() -> None:
    """An append that a power failure cut. Every batch before is read; at a boundary nothing is torn."""
    last, before = sound()[-1], sound()[:-1]
    for size in range(last.position, last.position + last.length):
        found = scan(log_bytes()[:size])
        assert [s.batch for s in found if s.batch is not None] == [s.batch for s in before]
        torn = [s for s in found if s.batch is None]
        assert [(s.position, s.expected_offset, s.is_torn) for s in torn] == [
            (last.position, last.expected_offset, True)
        ] * (size > last.position)


def test_zeros_behind_the_last_batch_are_a_torn_tail() -> None:
    for zeros in (1, 61, 5_000):
        (torn,) = [s for s in scan(log_bytes() + bytes(zeros)) if s.batch is None]
        assert (torn.position, torn.length, torn.is_torn) == (len(log_bytes()), zeros, True)


def test_a_torn_tail_ends_the_reading_without_an_error() -> None:
    log = find_kafka_log(directory_of(**{SEGMENT: log_bytes()[:-5]}))
    assert [placed.offset for placed in read_log(log)] == list(range(sound()[-1].expected_offset or 0))


def test_a_flip_in_the_last_batch_is_damage_and_no_torn_tail() -> None:
    """Only an epoch of a LeaderChange could hide; and a length that became longer is known by the checksum of the rest."""
    last = sound()[-1]
    assert last.batch is not None and not last.batch.is_control
    for at in range(last.length):
        (bad,) = [s for s in scan(flipped(log_bytes(), last.position + at)) if s.error is not None]
        assert (bad.position, bad.expected_offset, bad.is_torn) == (last.position, last.expected_offset, False), at


def test_a_cut_in_an_older_segment_is_damage() -> None:
    """Only the last segment may end inside a batch."""
    middle = sound()[20]
    files = {
        SEGMENT: log_bytes()[: middle.position - 3],
        f"{middle.expected_offset:020}.log": log_bytes()[middle.position :],
    }
    found = list(scan_log(find_kafka_log(directory_of(**files))))
    (bad,) = [scanned for scanned in found if scanned.error is not None]
    assert (bad.file, bad.position, bad.is_torn) == (SEGMENT, sound()[19].position, False)


def test_a_cut_snapshot_is_damage() -> None:
    """A snapshot ends with its footer, or it is not complete."""
    files = contents("elr-4.1.1")
    path = max(
        path for path in files if path.startswith("node-1/") and path.endswith(".checkpoint") and "-" in path[7:]
    )
    name, data = path.rpartition("/")[2], files[path]
    whole = list(scan_snapshot(directory_of(**{name: data}), name))
    assert all(scanned.error is None for scanned in whole)
    for size in (0, 30, whole[1].position, whole[-1].position, len(data) - 1):
        cut = directory_of(**{name: data[:size]})
        errors = [s for s in scan_snapshot(cut, name) if s.error is not None]
        assert len(errors) == 1 and not errors[0].is_torn
        with pytest.raises(CorruptLog):
            list(read_snapshot(cut, name))


def test_an_empty_directory_has_no_log() -> None:
    with pytest.raises(NoKafkaLogHere):
        find_kafka_log(directory_of(**{"00000000000000000000.index": b""}))


# --- garbage


def sealed(body: bytes, count: int, attributes: int = 0) -> bytes:
    """Make a batch with a right checksum around any bytes."""
    tail = struct.pack(">hiqqqhii", attributes, count - 1, 0, 0, -1, -1, -1, count) + body
    head = struct.pack(">qiib", 0, 9 + len(tail), 1, 2)
    return head + struct.pack(">I", google_crc32c.value(tail)) + tail


def test_garbage_under_a_right_checksum_raises_only_the_typed_error() -> None:
    """The worst case: somebody has sealed garbage. Bytes of real records are changed, and of none too many are believed."""
    dice = random.Random(3)
    bodies = [(s.batch.data[HEADER_BYTES:], s.batch) for s in sound() if s.batch is not None]
    refused = 0
    for _ in range(4_000):
        body, batch = dice.choice(bodies)
        changed = bytearray(body)
        for _ in range(dice.choice([1, 1, 2, 8])):
            changed[dice.randrange(len(changed))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        if dice.random() < 0.1:
            del changed[dice.randrange(len(changed)) :]
            changed += bytes(7 * batch.record_count)
        mutant = decode(sealed(bytes(changed), batch.record_count, batch.attributes), 0)
        try:
            list(records(mutant))
        except KafkaFormatError:
            refused += 1
    assert 1_000 < refused < 4_000


def test_garbage_in_a_file_raises_nothing() -> None:
    """A scan reports garbage as places; it never raises, and it reads on."""
    dice = random.Random(4)
    for _ in range(150):
        data = bytearray(log_bytes()[: dice.randrange(1, 6_000)])
        for _ in range(dice.randrange(1, 12)):
            at = dice.randrange(len(data))
            data[at : at + dice.choice([1, 4, 40])] = dice.randbytes(dice.choice([1, 4, 40]))
        found = scan(bytes(data))
        assert sum(scanned.length for scanned in found) == len(data)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, BATCH_BYTES_MAX, 2**31 - 1])
def test_an_impossible_length_is_refused_before_it_is_read(length: int) -> None:
    data = struct.pack(">qiib", 0, length, 1, 2) + bytes(100)
    with pytest.raises(KafkaFormatError, match="impossible length"):
        decode(data, 0)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (sealed(bytes(14), 3), "names 3 records"),
        (sealed(bytes(14), 0), "names 0 records"),
        (sealed(bytes(14), 2, attributes=3), "compressed with lz4"),
    ],
)
def test_a_header_that_no_controller_writes(batch: bytes, reason: str) -> None:
    with pytest.raises(KafkaFormatError, match=reason):
        decode(batch, 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("10 00 00 00 01 02 aa 00 00", "wrong length or offset"),  # a length of 8, and 7 bytes follow, and one more
        ("0e 00 00 02 01 02 aa 00", "wrong length or offset"),  # offset delta 1 of the first record
        ("0e 00 00 00 01 02 aa 00 00", "follow the last record"),
        ("40 00 00 00 01 02 aa 00", "impossible length"),
        ("0e 00 00 00 03 02 aa 00", "impossible length"),
        ("0e 00 00 00 01 7e aa 00", "end inside"),
        ("0e 00 00 00 01 02 aa 40", "impossible number"),
        ("0e 00 00 00 01 02 80 80", "end inside"),
        ("10 00 00 00 01 01 02 01 01", "has no name"),
    ],
)
def test_damaged_records(body: str, reason: str) -> None:
    with pytest.raises(KafkaFormatError, match=reason):
        list(raw_records(decode(sealed(bytes.fromhex(body), 1), 0)))


def test_a_record_with_headers() -> None:
    """Kafka's controllers write no headers; another writer could."""
    batch = decode(sealed(bytes.fromhex("20 00 06 00 04 aabb 02 cc 04 02 6b 02 76 02 6c 01"), 1), 0)
    (record,) = raw_records(batch)
    assert record == (0, 3, b"\xaa\xbb", b"\xcc", ((b"k", b"v"), (b"l", None)))


@pytest.mark.parametrize(("body", "attributes"), [("0c 00 00 00 01 01 00", 0), ("0e 00 00 00 01 02 00 00", 1 << 5)])
def test_a_record_without_a_value_or_key(body: str, attributes: int) -> None:
    batch = decode(sealed(bytes.fromhex(body), 1, attributes), 0)
    (raw,) = raw_records(batch)
    with pytest.raises(LogFormatError, match="has no"):
        decode_record(batch, raw)
