"""One file of batches."""

import google_crc32c
import pytest

from metadata_log.format.batch import HEADER_BYTES, Batch, encode
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import EPOCH_MAX, OffsetAndEpoch
from metadata_log.store.salvage import intact_batches
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    SegmentHeader,
    UnsupportedSegment,
    base_offset_of,
    pack_header,
    segment_name,
    unpack_header,
    walk,
)
from metadata_log.store.segment_file import INDEX_STEP_BYTES, PREALLOCATE_BYTES, PREALLOCATE_FIRST_BYTES, Segment
from tests.sim.world.disk import MemoryDirectory

HEADER = SegmentHeader(OffsetAndEpoch(100, 2), bytes(range(32)), 5)
LATE = SegmentHeader(OffsetAndEpoch(100, EPOCH_MAX), bytes(range(32)), 5)


def batches(count: int, payload: bytes = b"x") -> list[Batch]:
    chain, made = HEADER.previous_chain, []
    for i in range(count):
        batch = encode(
            payload, base_offset=100 + 2 * i, epoch=2, record_count=2, first_timestamp_ms=5, last_timestamp_ms=5,
            is_control=False, previous_chain=chain,
        )  # fmt: skip
        made.append(batch)
        chain = batch.chain
    return made


def filled(directory: MemoryDirectory, many: list[Batch], segment_bytes: int = 64 << 20) -> Segment:
    segment = Segment.create(directory, HEADER)
    chain = HEADER.previous_chain
    for batch in many:
        segment.append(batch.data, segment_bytes)
        segment.extend(batch, chain)
        chain = batch.chain
    return segment


def test_names_sort_as_offsets_do() -> None:
    assert segment_name(123) == "00000000000000000123.log"
    assert base_offset_of("00000000000000000123.log") == 123
    for other in ("flushed", "123.log", "00000000000000000123-0000000001.checkpoint", "00000000000000000123.log.tmp"):
        assert base_offset_of(other) is None


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    for header in (HEADER, LATE):
        data = pack_header(header)
        assert unpack_header(data) == header
        for place in range(SEGMENT_HEADER_BYTES):
            for bit in range(8):
                damaged = bytearray(data)
                damaged[place] ^= 1 << bit
                with pytest.raises(LogFormatError):
                    unpack_header(bytes(damaged))


def test_an_intact_header_of_a_later_version_is_no_damage() -> None:
    data = bytearray(pack_header(HEADER))
    data[8:10] = b"\x00\x03"
    data[68:] = google_crc32c.value(bytes(data[:68])).to_bytes(4, "big")

    with pytest.raises(UnsupportedSegment, match="version 3; this release reads 1 and 2"):
        unpack_header(bytes(data))


def test_what_was_appended_is_walked_over_in_order() -> None:
    directory = MemoryDirectory()
    many = batches(20)
    segment = filled(directory, many)

    assert [batch for _, batch in segment.batches(SEGMENT_HEADER_BYTES)] == many
    assert [batch for _, batch in walk(segment.file, SEGMENT_HEADER_BYTES, segment.file.size())] == many
    assert segment.tail_is_zero()
    assert (segment.base_offset, segment.end_offset) == (100, 140)


def test_batches_larger_than_a_read_window_are_walked_over_too() -> None:
    directory = MemoryDirectory()
    many = batches(5, bytes(700_000))

    assert [batch for _, batch in filled(directory, many).batches(SEGMENT_HEADER_BYTES)] == many


def test_a_file_grows_in_steps_and_not_above_its_limit() -> None:
    directory = MemoryDirectory()
    assert filled(directory, batches(3)).file.size() == PREALLOCATE_FIRST_BYTES + SEGMENT_HEADER_BYTES
    large = filled(MemoryDirectory(), batches(3, bytes(900_000)))
    assert large.end_position < large.file.size() <= large.end_position + PREALLOCATE_BYTES
    small = MemoryDirectory()
    assert filled(small, batches(3), segment_bytes=4096).file.size() == 4096


def test_a_sealed_segment_has_its_exact_length() -> None:
    directory = MemoryDirectory()
    segment = filled(directory, batches(3))
    segment.seal()

    assert segment.file.size() == segment.end_position


def test_every_boundary_is_found_and_nothing_else() -> None:
    directory = MemoryDirectory()
    many = batches(3 * INDEX_STEP_BYTES // 1000, bytes(1000))
    segment = filled(directory, many)

    position, chain = SEGMENT_HEADER_BYTES, HEADER.previous_chain
    for batch in many:
        assert segment.locate(batch.base_offset) == (position, chain)
        assert segment.locate(batch.base_offset + 1) is None
        found = segment.last_batch_below(batch.end_offset)
        assert found == batch
        position += len(batch.data)
        chain = batch.chain
    assert segment.locate(many[-1].end_offset) == (position, chain)
    assert segment.locate(99) is None
    assert segment.locate(many[-1].end_offset + 1) is None
    assert segment.last_batch_below(100) is None


def test_a_cut_is_exact_and_durable() -> None:
    directory = MemoryDirectory()
    many = batches(3 * INDEX_STEP_BYTES // 1000, bytes(1000))
    segment = filled(directory, many)
    flushes = directory.flushes
    place = segment.locate(many[30].base_offset)
    assert place is not None
    segment.cut(many[30].base_offset, place[0])

    assert directory.flushes == flushes + 1
    assert [batch for _, batch in segment.batches(SEGMENT_HEADER_BYTES)] == many[:30]
    assert segment.file.size() == segment.end_position
    segment.append(many[30].data, 64 << 20)
    segment.extend(many[30], many[29].chain)
    assert [batch for _, batch in segment.batches(SEGMENT_HEADER_BYTES)] == many[:31]


def test_damage_in_what_was_written_names_file_position_and_offset() -> None:
    directory = MemoryDirectory()
    many = batches(20)
    segment = filled(directory, many)
    position, _ = segment.locate(many[7].base_offset) or (0, b"")
    directory.flip_bit(segment.name, position + 79)

    with pytest.raises(CorruptLog, match=segment.name) as e:
        list(segment.batches(SEGMENT_HEADER_BYTES))
    assert (e.value.position, e.value.offset) == (position, many[7].base_offset)


def test_zeros_where_a_batch_was_written_are_damage() -> None:
    directory = MemoryDirectory()
    many = batches(20)
    segment = filled(directory, many)
    position, _ = segment.locate(many[7].base_offset) or (0, b"")
    directory.edit(segment.name, lambda data: data.__setitem__(slice(position, position + 512), bytes(512)))

    with pytest.raises(CorruptLog, match="is zero, where a batch was written"):
        list(segment.batches(SEGMENT_HEADER_BYTES))


def test_a_segment_under_another_s_name_is_refused() -> None:
    directory = MemoryDirectory()
    segment = filled(directory, batches(1))
    directory.rename(segment.name, segment_name(200))

    with pytest.raises(LogFormatError, match="names base offset 100"):
        Segment.open(directory, segment_name(200))


def test_walking_over_mutations_finds_batches_or_a_bad_batch() -> None:
    """Nothing else may come out of any byte, and all that comes out was written."""
    directory = MemoryDirectory()
    many = batches(4)
    segment = filled(directory, many, segment_bytes=1024)
    for place in range(SEGMENT_HEADER_BYTES, segment.end_position + 8):
        for byte in (0, 1, 0x7F, 0xFF):
            copy = MemoryDirectory()
            data = bytearray(segment.file.read_at(0, 2048))
            data[place] = byte
            copy.write_atomic("a", bytes(data))
            try:
                found = [batch.data for _, batch in walk(copy.open("a"), SEGMENT_HEADER_BYTES, len(data))]
            except BadBatch as e:
                assert e.position >= SEGMENT_HEADER_BYTES
                continue
            # a control flag (not in the CRC's range) may differ; the chain shows that
            flagless = [batch.data[:1] + batch.data[2:] for batch in many]
            assert [each[:1] + each[2:] for each in found] == flagless[: len(found)]


def test_an_intact_batch_behind_damage_is_found() -> None:
    directory = MemoryDirectory()
    written = batches(3)
    segment = filled(directory, written)
    (position, _), (last, _) = segment.locate(102) or (0, b""), segment.locate(104) or (0, b"")
    directory.flip_bit(segment.name, position + 79)

    assert list(intact_batches(segment.file, position, 102)) == [(last, written[2])]
    assert list(intact_batches(segment.file, position, 105)) == []
    directory.flip_bit(segment.name, last + 79)
    assert list(intact_batches(segment.file, position, 102)) == []


@pytest.mark.parametrize("like", [b"\x01", batches(1)[0].data[:HEADER_BYTES]], ids=["version", "header"])
def test_batches_are_found_wherever_they_begin(like: bytes) -> None:
    """Also across the borders of what is read at once, behind a megabyte of bytes that all look like a beginning."""
    directory = MemoryDirectory()
    written = batches(2)
    for before in (0, 1, (256 << 10) - 1, 256 << 10, (1280 << 10) - 50, 3 << 20):
        damage = (like * (1 + before // len(like)))[:before]
        directory.write_atomic("a", damage + b"".join(batch.data for batch in written) + like * 100)
        found = [position for position, _ in intact_batches(directory.open("a"), 0, 0)]
        assert found == [before, before + len(written[0].data)]
