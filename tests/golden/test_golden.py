"""The formats on disk, pinned byte by byte. Old bytes must decode for ever.

A difference here means that logs and snapshots that exist would be read as something else. Where a *new* sample was added,
run `python -m tests.golden.test_golden`, which adds missing entries and never changes one that is there.
"""

import json
from pathlib import Path

from metadata_log.batch import decode, verify_chain
from metadata_log.codec import decode_records, encode_record
from metadata_log.ids import OffsetAndEpoch
from metadata_log.records import RECORD_TYPES
from metadata_log.segment import SegmentHeader, pack_header, unpack_header
from tests.golden.samples import HASH, RECORDS, sample_batches

FILE = Path(__file__).parent / "log_formats.json"
HEADER = SegmentHeader(OffsetAndEpoch(123_456, 7), HASH, 1_700_000_000_000)


def current() -> dict[str, str]:
    """Every sample's name and its bytes as this code writes them."""
    entries = {
        f"record {i:02d} {type(record).__name__}": encode_record(record).hex() for i, record in enumerate(RECORDS)
    }
    entries |= {f"batch {i}": batch.data.hex() for i, batch in enumerate(sample_batches())}
    return entries | {"segment header": pack_header(HEADER).hex()}


def golden() -> dict[str, str]:
    entries: dict[str, str] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return entries


def test_what_is_written_today_is_what_was_always_written() -> None:
    assert golden() == current()


def test_every_record_type_has_a_sample() -> None:
    assert {type(record) for record in RECORDS} == set(RECORD_TYPES.values())


def test_golden_records_decode_to_the_samples() -> None:
    entries = golden()

    for i, record in enumerate(RECORDS):
        payload = bytes.fromhex(entries[f"record {i:02d} {type(record).__name__}"])
        (decoded,) = decode_records(payload, 1)
        assert decoded == record
        assert type(decoded) is type(record)


def test_golden_batches_decode_and_are_chained() -> None:
    entries = golden()

    first, second = (decode(bytes.fromhex(entries[f"batch {i}"])) for i in (0, 1))

    assert [first, second] == sample_batches()
    assert verify_chain(second, first.chain)


def test_the_golden_segment_header_reads_back() -> None:
    assert unpack_header(bytes.fromhex(golden()["segment header"])) == HEADER


if __name__ == "__main__":
    FILE.write_text(json.dumps(current() | golden(), indent=1) + "\n")
