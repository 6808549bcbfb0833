"""Data batches: the records of clients, and the stamp of their producer."""

from collections.abc import Callable

import google_crc32c
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.format.batch import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    HEADER_BYTES,
    HEADER_PATTERN,
    Batch,
    batch_length,
    decode,
    verify_chain,
)
from metadata_log.format.codec import decode_batch
from metadata_log.format.data_batch import (
    HEADER_NAME_BYTES_MAX,
    HEADERS_MAX,
    NO_STAMP,
    RECORDS_BYTES_MAX,
    SEQUENCE_MAX,
    DataRecord,
    ProducerStamp,
    check_records,
    decode_data,
    encode_data,
    pack_record,
    pack_records,
    stamp_of,
    unpack_records,
)
from metadata_log.format.errors import BatchTooLarge, LogFormatError
from tests.golden.samples import data_batches, sample_batches

CHAIN = bytes(range(32))
STAMP = ProducerStamp(7, 2, 40)
BYTES = st.none() | st.binary(max_size=40)
RECORD = st.builds(
    DataRecord,
    st.integers(0, (1 << 63) - 1),
    BYTES,
    BYTES,
    st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3).map(tuple),
)


def sealed(records: list[DataRecord], stamp: ProducerStamp = STAMP) -> Batch:
    return encode_data(pack_records(records), stamp, base_offset=500, epoch=3, previous_chain=CHAIN)


@given(st.lists(RECORD, min_size=1, max_size=20), st.sampled_from([STAMP, NO_STAMP]))
def test_records_read_back_as_they_were_packed(records: list[DataRecord], stamp: ProducerStamp) -> None:
    batch = sealed(records, stamp)

    read = decode(batch.data)
    assert read == batch and verify_chain(read, CHAIN) and HEADER_PATTERN.match(read.data)
    assert decode_data(read) == records and stamp_of(read) == stamp
    times = [record.timestamp_ms for record in records]
    assert (read.first_timestamp_ms, read.last_timestamp_ms) == (min(times), max(times))


def test_every_flipped_bit_of_a_data_batch_is_noticed() -> None:
    batch = data_batches()[0]
    for place in range(len(batch.data)):
        for bit in range(8):
            data = bytearray(batch.data)
            data[place] ^= 1 << bit
            with pytest.raises(LogFormatError):
                decode(bytes(data))


def test_every_header_of_a_data_batch_looks_like_one() -> None:
    """The search behind damage tries only what matches the pattern."""
    largest = pack_records([DataRecord(1, None, bytes(RECORDS_BYTES_MAX - 9))])
    assert len(largest.packed) == RECORDS_BYTES_MAX
    for batch in (*data_batches(), encode_data(largest, STAMP, base_offset=1, epoch=9, previous_chain=CHAIN)):
        for place in range(HEADER_BYTES):
            for value in range(256):
                head = bytearray(batch.data[:HEADER_BYTES])
                head[place] = value
                try:
                    batch_length(bytes(head))
                except LogFormatError:
                    continue
                assert HEADER_PATTERN.match(head), (place, value)


def test_a_batch_is_read_as_what_it_is() -> None:
    """A reader of metadata refuses the batch of a partition, and a reader of a partition refuses metadata."""
    with pytest.raises(LogFormatError, match="format version 2, and the batches of this log have 1"):
        decode_batch(data_batches()[0])
    for read in (decode_data, stamp_of):
        with pytest.raises(LogFormatError, match="format version 1, and the batches of this log have 2"):
            read(sample_batches()[0])


def resealed(change: Callable[[bytearray], object]) -> bytes:
    data = bytearray(data_batches()[0].data)
    change(data)
    data[4:8] = len(data).to_bytes(4, "big")
    data[8:12] = google_crc32c.value(bytes(data[12:])).to_bytes(4, "big")
    return bytes(data)


def test_a_batch_without_room_for_a_record_or_with_a_flag_is_refused() -> None:
    """Although its checksum fits."""
    with pytest.raises(LogFormatError, match="does not have"):
        decode(resealed(lambda data: data.__delitem__(slice(HEADER_BYTES + 16, None))))
    with pytest.raises(LogFormatError, match="does not have"):
        decode(resealed(lambda data: data.__setitem__(1, 1)))
    with pytest.raises(LogFormatError, match="format version 3"):
        decode(resealed(lambda data: data.__setitem__(0, 3)))


@pytest.mark.parametrize("stamp", [(-1, 0, 0), (7, -1, 0), (7, 0, -1), (-2, -2, -2), (-1, -1, 5)])
def test_an_impossible_stamp_is_refused(stamp: tuple[int, int, int]) -> None:
    with pytest.raises(LogFormatError, match="stamp"):
        sealed([DataRecord(1, None, b"x")], ProducerStamp(*stamp))
    packed = b"".join(each.to_bytes(size, "big", signed=True) for each, size in zip(stamp, (8, 4, 4), strict=True))
    bad = decode(resealed(lambda data: data.__setitem__(slice(HEADER_BYTES, HEADER_BYTES + 16), packed)))
    with pytest.raises(LogFormatError, match="stamp"):
        stamp_of(bad)


def test_sequences_begin_again_at_zero() -> None:
    assert ProducerStamp(7, 0, 40).last_sequence(10) == 49
    assert ProducerStamp(7, 0, SEQUENCE_MAX).last_sequence(2) == 0


@pytest.mark.parametrize(
    ("record", "match"),
    [
        (7, "not an array"),
        ((1, b"k", b"v"), "not an array"),
        ((1, b"k", b"v", (), 5), "not an array"),
        ((-1, b"k", b"v", ()), "not a timestamp"),
        ((True, b"k", b"v", ()), "not a timestamp"),
        ((1 << 63, b"k", b"v", ()), "not a timestamp"),
        ((1.5, b"k", b"v", ()), "not a timestamp"),
        ((1, "k", b"v", ()), "neither bytes nor nil"),
        ((1, b"k", 5, ()), "neither bytes nor nil"),
        ((1, b"k", b"v", None), "not an array"),
        ((1, b"k", b"v", (("a",),)), "not a header"),
        ((1, b"k", b"v", ((b"a", b"b"),)), "not a header"),
        ((1, b"k", b"v", (("a", 1),)), "not a header"),
        ((1, b"k", b"v", (("a", b""),) * (HEADERS_MAX + 1)), "not MessagePack"),
        ((1, b"k", b"v", (("a" * (HEADER_NAME_BYTES_MAX + 1), b""),)), "not MessagePack"),
        ((1, b"k", b"v", {}), "headers are not an array"),
        ((1, b"k", b"v", {"a": 1}), "not MessagePack"),
    ],
)
def test_a_record_that_is_none_is_refused(record: object, match: str) -> None:
    with pytest.raises(LogFormatError, match=match):
        check_records(msgpack.packb((1, None, bytes(9), ())) + msgpack.packb(record), 2)


def test_the_largest_record_is_accepted() -> None:
    record = DataRecord(1, b"", b"", (("a" * HEADER_NAME_BYTES_MAX, b""),) * HEADERS_MAX)
    assert decode_data(sealed([record])) == [record]


def test_lengths_that_lie_are_refused_before_anybody_allocates_by_them() -> None:
    for packed in (
        b"\xdd\xff\xff\xff\xff0000",
        b"\x94\x01\xc6\xff\xff\xff\xff0",
        b"\x94\x01\xc0\xdb\x7f\xff\xff\xff",
        b"\x91" * 5_000,
    ):
        with pytest.raises(LogFormatError):
            check_records(packed, 1)


def test_the_number_of_records_and_of_bytes_is_limited() -> None:
    record = msgpack.packb((1, None, None, ()))
    assert check_records(record * BATCH_RECORDS_MAX, BATCH_RECORDS_MAX).record_count == BATCH_RECORDS_MAX
    for count in (0, BATCH_RECORDS_MAX + 1, -1):
        with pytest.raises(BatchTooLarge):
            check_records(record * max(count, 0), count)
    with pytest.raises(BatchTooLarge):
        pack_records([DataRecord(1, None, bytes(BATCH_BYTES_MAX))])
    with pytest.raises(LogFormatError, match="too few bytes"):
        check_records(record, 2)
    with pytest.raises(LogFormatError, match="5 bytes after the 1 records"):
        check_records(record * 2, 1)


@pytest.mark.parametrize("record", [DataRecord(1 << 70, None, None), DataRecord(1, None, "text")])  # type: ignore[arg-type]
def test_a_producer_learns_at_once_that_its_record_is_none(record: DataRecord) -> None:
    with pytest.raises(LogFormatError):
        pack_records([record])


@given(st.lists(RECORD, min_size=1, max_size=20))
def test_records_that_were_packed_one_by_one_are_the_records_of_a_batch(chosen: list[DataRecord]) -> None:
    """A producer packs each record when it comes, and joins the bytes later."""
    packed = b"".join(map(pack_record, chosen))
    assert packed == pack_records(chosen).packed
    assert unpack_records(packed, len(chosen)) == chosen


@pytest.mark.parametrize(
    "bad",
    [
        DataRecord(-1, None, b""),
        DataRecord(0, "text", b""),  # type: ignore[arg-type]
        DataRecord(0, None, 5),  # type: ignore[arg-type]
        DataRecord(0, None, b"", (("n" * 1_025, b""),)),
        DataRecord(0, None, b"", (("name", b""),) * 129),
        DataRecord(0, None, b"", (("name", "text"),)),  # type: ignore[arg-type]
        DataRecord(0, None, b"", [("name", b"")]),  # type: ignore[arg-type]
    ],
)
def test_a_record_that_no_batch_takes_is_not_packed(bad: DataRecord) -> None:
    with pytest.raises(LogFormatError):
        pack_record(bad)
