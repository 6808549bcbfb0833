"""The batch: sealed, checked, chained."""

import google_crc32c
import pytest

from metadata_log.format.batch import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    CHAIN_BYTES,
    HEADER_BYTES,
    HEADER_PATTERN,
    Batch,
    batch_length,
    decode,
    decode_all,
    encode,
    genesis_chain,
    verify_chain,
)
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import EPOCH_MAX
from tests.golden.samples import sample_batches


def seal(payload: bytes = b"x", count: int = 1, chain: bytes = bytes(CHAIN_BYTES)) -> Batch:
    return encode(
        payload, base_offset=5, epoch=2, record_count=count, first_timestamp_ms=10, last_timestamp_ms=11,
        is_control=False, previous_chain=chain,
    )  # fmt: skip


def test_a_batch_reads_back_as_it_was_sealed() -> None:
    batch = seal(b"payload", 3)

    assert decode(batch.data) == batch
    assert (batch.end_offset, batch.payload) == (8, b"payload")


def test_batches_end_to_end_read_back_one_by_one() -> None:
    batches = sample_batches()

    assert list(decode_all(b"".join(batch.data for batch in batches))) == batches


def test_every_flipped_bit_is_noticed() -> None:
    """In header and payload. The bytes before the CRC's range are checked by their meaning."""
    batch = seal(b"payload")
    for place in range(len(batch.data)):
        for bit in range(8):
            data = bytearray(batch.data)
            data[place] ^= 1 << bit
            try:
                decoded = decode(bytes(data))
            except LogFormatError:
                continue
            # Only the control flag is in neither range; the chain covers it.
            assert place == 1
            assert not verify_chain(decoded, bytes(CHAIN_BYTES))


def of_epoch(epoch: int) -> Batch:
    return encode(
        b"payload", base_offset=1 << 40, epoch=epoch, record_count=3, first_timestamp_ms=5, last_timestamp_ms=6,
        is_control=False, previous_chain=bytes(CHAIN_BYTES),
    )  # fmt: skip


def test_an_epoch_has_sixty_four_bits() -> None:
    for epoch in (0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (7 << 40) + 5, EPOCH_MAX - 1, EPOCH_MAX):
        batch = of_epoch(epoch)
        assert decode(batch.data) == batch and batch.epoch == epoch
        assert verify_chain(batch, bytes(CHAIN_BYTES)) and HEADER_PATTERN.match(batch.data)


def test_an_epoch_of_thirty_two_bits_has_the_bytes_that_it_always_had() -> None:
    """The upper half of an epoch uses bytes that were zero: logs and snapshots of two releases stay equal."""
    small, late = of_epoch((1 << 32) - 1).data, of_epoch((2 << 32) - 1).data

    assert small[28:32] == bytes(4) and late[28:32] == bytes([0, 0, 0, 1])
    assert small[:8] + small[12:28] == late[:8] + late[12:28]


def test_an_epoch_beyond_the_last_is_refused_though_its_checksum_fits() -> None:
    """Java, Spark and protobuf have signed numbers, so no log may have an epoch beyond them."""
    data = bytearray(of_epoch(EPOCH_MAX).data)
    data[28] |= 0x80
    data[8:12] = google_crc32c.value(bytes(data[12:])).to_bytes(4, "big")

    with pytest.raises(LogFormatError, match="epoch beyond 9223372036854775807"):
        decode(bytes(data))
    with pytest.raises(AssertionError):
        of_epoch(EPOCH_MAX + 1)


def test_every_header_of_a_batch_looks_like_one() -> None:
    """The pattern matches the headers of the smallest and the largest batch, with every valid change of a byte."""
    for batch in (
        seal(),
        of_epoch(EPOCH_MAX),
        seal(b"x" * (BATCH_BYTES_MAX - HEADER_BYTES), BATCH_RECORDS_MAX),
        *sample_batches(),
    ):
        for place in range(HEADER_BYTES):
            for value in range(256):
                head = bytearray(batch.data[:HEADER_BYTES])
                head[place] = value
                try:
                    batch_length(bytes(head))
                except LogFormatError:
                    continue
                assert HEADER_PATTERN.match(head), (place, value)


def test_every_cut_is_noticed() -> None:
    batch = seal(b"payload")
    for length in range(len(batch.data)):
        with pytest.raises(LogFormatError):
            decode(batch.data[:length])


def test_the_chain_covers_what_went_before() -> None:
    first, second = sample_batches()

    assert verify_chain(first, genesis_chain("sample-cluster", b"voters"))
    assert verify_chain(second, first.chain)
    assert not verify_chain(second, genesis_chain("sample-cluster", b"voters"))


def test_clusters_that_were_formatted_apart_have_other_chains() -> None:
    assert genesis_chain("a", b"bc") != genesis_chain("ab", b"c")
    assert genesis_chain("a", b"v") != genesis_chain("b", b"v")


def test_the_limits_hold_when_sealing_and_when_reading() -> None:
    largest = seal(bytes(BATCH_BYTES_MAX - HEADER_BYTES), BATCH_RECORDS_MAX)
    assert decode(largest.data) == largest

    with pytest.raises(LogFormatError, match="limit"):
        seal(bytes(BATCH_BYTES_MAX - HEADER_BYTES + 1))
    for count in (0, BATCH_RECORDS_MAX + 1):
        with pytest.raises(LogFormatError, match="at least 1"):
            seal(b"x", count)


def test_a_length_that_lies_is_refused_before_anybody_allocates_by_it() -> None:
    head = bytearray(seal().data[:HEADER_BYTES])
    head[4:8] = b"\xff\xff\xff\xff"

    with pytest.raises(LogFormatError, match="length"):
        batch_length(bytes(head))
