"""Changes of a log of Kafka: bytes that flip, and records that are written anew under a right checksum."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c

from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline.kafka.batches import raw_records
from snapshots.offline.kafka.records import Record, records
from snapshots.offline.kafka.scan import Scanned, scan_file
from tests.snapshots.kafka.given import METADATA

SEGMENT = f"{0:020}.log"


def batches_of(node: Path, name: str = SEGMENT) -> list[Scanned]:
    return list(scan_file(LocalDirectory(node / METADATA), name))


def flip(node: Path, at: int, name: str = SEGMENT, mask: int = 1) -> None:
    path = node / METADATA / name
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def reseal(batch: bytearray) -> bytes:
    batch[17:21] = struct.pack(">I", google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def rewrite(node: Path, scanned: Scanned, old: bytes, new: bytes, name: str = SEGMENT) -> None:
    """Replace bytes of one batch, and make its checksum right."""
    assert scanned.batch is not None and len(old) == len(new) and scanned.batch.data.count(old) == 1
    path = node / METADATA / name
    data = bytearray(path.read_bytes())
    end = scanned.position + scanned.length
    data[scanned.position : end] = reseal(bytearray(scanned.batch.data.replace(old, new)))
    path.write_bytes(data)


class Found:
    """One record, with the batch in which it is."""

    def __init__(self, scanned: Scanned, offset: int, record: Record, value: bytes) -> None:
        self.scanned, self.offset, self.record, self.value = scanned, offset, record, value


def find(node: Path, wanted: Callable[[Record], bool], name: str = SEGMENT) -> Iterator[Found]:
    """Return the records that `wanted` names."""
    for scanned in batches_of(node, name):
        batch = scanned.batch
        assert batch is not None
        for placed, raw in zip(records(batch), raw_records(batch), strict=True):
            if isinstance(placed.record, Record) and wanted(placed.record):
                yield Found(scanned, placed.offset, placed.record, raw.value or b"")
