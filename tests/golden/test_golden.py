"""The formats on disk, pinned byte by byte. Old bytes must decode for ever.

A difference here means that logs and snapshots that exist would be read as something else. Where a *new* sample was added,
run `python -m tests.golden.test_golden`, which adds missing entries and never changes one that is there.
"""

import json
from pathlib import Path

from broker_agent.replica.high_watermarks import HIGH_WATERMARKS_NAME, read_high_watermarks, write_high_watermarks
from broker_agent.replica.log_directory import ReplicaPlace
from metadata_log.disk.identity import IDENTITY_NAME, Identity, read_identity, write_identity
from metadata_log.format.batch import decode, verify_chain
from metadata_log.format.codec import decode_records, encode_record
from metadata_log.format.data_batch import NO_STAMP, ProducerStamp, decode_data, stamp_of
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import RECORD_TYPES
from metadata_log.store.archived.merged_file import Index, Range, merged_name
from metadata_log.store.archived.view import ArchiveView, archived_batches
from metadata_log.store.log_notes import (
    FLUSHED_NAME,
    START_NAME,
    Flushed,
    FlushedNote,
    LogStart,
    read_start,
    write_start,
)
from metadata_log.store.segment import SegmentHeader, pack_header, segment_name, segment_names, unpack_header
from tests.golden.samples import HASH, ID_A, RECORDS, data_batches, late_batch, sample_batches
from tests.sim.world.disk import MemoryDirectory

FILE = Path(__file__).parent / "log_formats.json"
HEADER = SegmentHeader(OffsetAndEpoch(123_456, 7), HASH, 1_700_000_000_000)
LATE_HEADER = SegmentHeader(OffsetAndEpoch(123_456, (3 << 32) + 7), HASH, 1_700_000_000_000)
ONLY_READ = {
    "segment header": "version 1; version 2 is written",
    "merged file": "another zlib compresses to other bytes",
}
"""Entries that the code need not write, and always reads."""
MERGED = Index(Range(0, 3), [0, 2], [100, 3 << 20], [(50, 1), (1 << 20, 2), (1_000, 3), ((1 << 20) + 9, 1 << 31)])
START = LogStart(OffsetAndEpoch(123_456, 7), HASH, 1_700_000_000_000)
HIGH_WATERMARKS = {ReplicaPlace(ID_A, 12): 123_456}
IDENTITY = Identity("sample-cluster", 3, ID_A, 2, "controller", HASH)


def current() -> dict[str, str]:
    """Every sample's name and its bytes as this code writes them."""
    entries = {
        f"record {i:02d} {type(record).__name__}": encode_record(record).hex() for i, record in enumerate(RECORDS)
    }
    entries |= {f"batch {i}": batch.data.hex() for i, batch in enumerate(sample_batches())}
    entries |= {f"data batch {i}": batch.data.hex() for i, batch in enumerate(data_batches())}
    directory = MemoryDirectory()
    FlushedNote(directory).write(123_456, HASH)
    write_start(directory, START)
    write_identity(directory, IDENTITY)
    write_high_watermarks(directory, HIGH_WATERMARKS)
    names = (FLUSHED_NAME, START_NAME, IDENTITY_NAME, HIGH_WATERMARKS_NAME)
    entries |= {name: directory.read(name, 4096).hex() for name in names}
    entries |= {"segment header 2": pack_header(HEADER).hex(), "segment header 2, late": pack_header(LATE_HEADER).hex()}
    entries |= {"merged file, index": MERGED.pack().hex()}
    return entries | {"batch, late": late_batch().data.hex()}


def golden() -> dict[str, str]:
    entries: dict[str, str] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return entries


def test_what_is_written_today_is_what_was_always_written() -> None:
    assert {name: text for name, text in golden().items() if name not in ONLY_READ} == current()


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
    assert decode(bytes.fromhex(entries["batch, late"])) == late_batch()
    assert verify_chain(second, first.chain)


def test_golden_data_batches_decode_and_are_chained() -> None:
    first, second = (decode(bytes.fromhex(golden()[f"data batch {i}"])) for i in (0, 1))

    assert [first, second] == data_batches()
    assert verify_chain(second, first.chain)
    assert (stamp_of(first), stamp_of(second)) == (ProducerStamp(7, 2, 40), NO_STAMP)
    assert decode_data(first)[0] == (1_700_000_000_007, b"key", b"value", (("trace", b"\x01\x02"), ("empty", None)))
    assert decode_data(second) == [(0, b"", None, ())]


def test_a_golden_merged_file_reads_back() -> None:
    """The bytes were written by the first release with merged files. Another zlib may write other ones, and reads these."""
    directory = MemoryDirectory()
    directory.write_atomic(merged_name(MERGED.range), bytes.fromhex(golden()["merged file"]))
    assert list(archived_batches(directory)) == sample_batches()
    assert segment_names(ArchiveView(directory)) == [segment_name(0), segment_name(2)]


def test_golden_headers_and_small_files_read_back() -> None:
    entries = {name: bytes.fromhex(text) for name, text in golden().items()}
    directory = MemoryDirectory()
    for name in (FLUSHED_NAME, START_NAME, IDENTITY_NAME, HIGH_WATERMARKS_NAME):
        directory.write_atomic(name, entries[name])

    assert unpack_header(entries["segment header"]) == unpack_header(entries["segment header 2"]) == HEADER
    assert unpack_header(entries["segment header 2, late"]) == LATE_HEADER
    assert FlushedNote(directory).read() == Flushed(123_456, HASH)
    assert read_start(directory) == START
    assert read_identity(directory) == IDENTITY
    assert read_high_watermarks(directory) == HIGH_WATERMARKS


if __name__ == "__main__":
    FILE.write_text(json.dumps(current() | golden(), indent=1) + "\n")
