"""Pieces that arrive in time, and batches that arrive in parts: sentences about `metadata_log.format.fetch_size`."""

import random

import pytest

from metadata_log.format.batch import BATCH_BYTES_MAX, Batch, encode
from metadata_log.format.errors import LogFormatError
from metadata_log.format.fetch_size import KNOWN_MS, BatchPart, FetchSize, PartialBatch, as_asked, held_at, joined

TIMEOUT_MS = 500


def batch_of(payload_bytes: int, offset: int = 7, seed: int = 0) -> Batch:
    return encode(
        random.Random(seed).randbytes(payload_bytes),
        base_offset=offset,
        epoch=1,
        record_count=1,
        first_timestamp_ms=0,
        last_timestamp_ms=0,
        is_control=False,
        previous_chain=bytes(32),
    )


def transfer(bytes_per_s: int, total: int, latency_ms: int = 2) -> tuple[list[int], int]:
    """The sizes of the pieces that were asked for, and how many of them were too late."""
    pieces, asked, late = FetchSize(4 << 10, 1 << 20, TIMEOUT_MS), [], 0
    while total > 0:
        size = pieces.bytes
        asked.append(size)
        took_ms = latency_ms + 1_000 * min(size, total) // bytes_per_s
        if took_ms >= TIMEOUT_MS:
            late += 1
            pieces.start_small()
            continue
        pieces.came(min(size, total), 0, took_ms)
        total -= size
    return asked, late


@pytest.mark.parametrize("kbit_per_s", [140, 256, 300, 512, 1_000, 3_000, 12_000, 30_000, 1_000_000])
@pytest.mark.parametrize("latency_ms", [0, 2, 40, 90])
def test_no_piece_is_ever_too_late_on_a_steady_link(kbit_per_s: int, latency_ms: int) -> None:
    """For a link of any speed the size grows until it uses the allowed time, and stays there."""
    asked, late = transfer(kbit_per_s * 125, 4 << 20, latency_ms)
    assert late == 0
    assert asked == sorted(asked), "it grows, and does not swing"


def test_on_a_fast_link_the_ninth_piece_is_the_largest() -> None:
    """4 KiB, 8 KiB, ... 1 MiB."""
    asked, _ = transfer(125_000_000, 4 << 20)
    assert asked[:9] == [4096 << n for n in range(9)] and asked[8] == 1 << 20


def test_a_distant_leader_is_not_taken_for_a_slow_one() -> None:
    """With a round trip of 180 ms, at any speed, the size still grows."""
    asked, _ = transfer(125_000_000, 8 << 20, latency_ms=180)
    assert asked[-1] == 1 << 20


def test_a_piece_that_did_not_come_is_followed_by_the_smallest() -> None:
    """Bytes of the late piece may still be in the link's queue, so the next one must be small."""
    pieces = FetchSize(4 << 10, 1 << 20, TIMEOUT_MS)
    for _ in range(8):
        pieces.came(pieces.bytes, 0, 1)
    assert pieces.bytes == 1 << 20
    pieces.start_small()
    assert pieces.bytes == 4 << 10


def test_what_was_learned_of_a_link_is_forgotten_when_it_was_idle() -> None:
    """The link may have become slow meanwhile. A large answer would block everything behind it."""
    pieces = FetchSize(4 << 10, 1 << 20, TIMEOUT_MS)
    for now_ms in range(1_000, 9_000, 1_000):
        pieces.came(pieces.next(now_ms), now_ms, now_ms)
    assert pieces.next(8_000 + KNOWN_MS) == 1 << 20
    assert pieces.next(8_001 + KNOWN_MS) == 4 << 10


def test_a_piece_that_took_most_of_the_time_is_followed_by_a_smaller_one() -> None:
    pieces = FetchSize(4 << 10, 1 << 20, TIMEOUT_MS)
    for _ in range(3):
        pieces.came(pieces.bytes, 0, 1)
    pieces.came(32 << 10, 0, 401)
    assert pieces.bytes == 16 << 10


def test_few_bytes_that_were_quick_say_nothing_of_many() -> None:
    """The last part of a batch may be short, and a broker's heartbeat brings one byte. Such answers do not change the
    size.
    """
    pieces = FetchSize(4 << 10, 1 << 20, TIMEOUT_MS)
    for count in (1, 200, 2 << 10):
        pieces.came(count, 0, 1)
        assert pieces.bytes == 4 << 10


def test_batches_that_fill_more_than_half_of_a_piece_let_it_grow() -> None:
    """Otherwise a follower with batches of 3 KB would fetch one batch in each round trip for ever."""
    pieces = FetchSize(4 << 10, 1 << 20, TIMEOUT_MS)
    for _ in range(20):
        pieces.came(pieces.bytes // 3_000 * 3_000, 0, 150)
    assert pieces.bytes == 1 << 20


def test_a_batch_that_fits_is_sent_whole_with_those_behind_it() -> None:
    batches = (batch_of(100), batch_of(50, 8))
    assert as_asked(batches, 4096, 0) == (batches, None)


@pytest.mark.parametrize("piece", [1, 80, 81, 4096, 9_999])
def test_a_batch_that_is_larger_comes_in_parts_and_is_the_same(piece: int) -> None:
    """Each part begins where what is held ends; the last one may be short."""
    batch = batch_of(9_920)
    partial: PartialBatch | None = None
    while partial is None or not partial.is_whole:
        batches, part = as_asked((batch, batch_of(10, 8)), piece, held_at(partial, 7))
        assert batches == () and part is not None and len(part.data) <= piece
        partial = joined(partial, 7, part)
        assert partial is not None
    assert partial.decode() == batch


def test_a_batch_that_was_begun_in_parts_is_finished_in_parts() -> None:
    """Also when the piece has grown meanwhile, and would hold all of it."""
    batch = batch_of(1_000)
    assert as_asked((batch,), 1 << 20, 500) == ((), BatchPart(500, 1_080, batch.data[500:]))


def test_who_takes_no_parts_gets_whole_batches() -> None:
    """A node of an earlier release does not send `part_position`."""
    batch = batch_of(9_920)
    assert as_asked((batch,), 1, None) == ((batch,), None)


def test_a_part_that_does_not_continue_what_is_held_is_refused() -> None:
    """Another position, another batch's size, another offset, more than there is, nothing at all."""
    held = PartialBatch(7, 100, bytes(50))
    for part in (
        BatchPart(49, 100, bytes(10)),
        BatchPart(51, 100, bytes(10)),
        BatchPart(50, 101, bytes(10)),
        BatchPart(50, 100, bytes(51)),
        BatchPart(50, 100, b""),
        BatchPart(0, BATCH_BYTES_MAX + 1, bytes(10)),
    ):
        assert joined(held, 7, part) is None
    assert joined(held, 8, BatchPart(50, 100, bytes(10))) is None
    assert joined(held, 7, BatchPart(50, 100, bytes(50))) == PartialBatch(7, 100, bytes(100))


def test_parts_of_two_batches_are_not_taken_for_one() -> None:
    """The CRC is over all of it."""
    one, other = batch_of(1_000).data, batch_of(1_000, seed=1).data
    with pytest.raises(LogFormatError):
        PartialBatch(7, len(one), one[:500] + other[500:]).decode()
