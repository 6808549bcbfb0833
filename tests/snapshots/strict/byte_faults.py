"""Faults of a disk, or of somebody who writes to one node's files: each is planted into one copy of a healthy log.

A fault returns the finding: rule, file, byte, and offset.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import TOPIC_RESOURCE, Config
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME, LOST_NAME, Flushed, write_lost
from snapshots.format import parse_name
from snapshots.reader import read_snapshot
from snapshots.writer import write_records
from tests.snapshots.nodes import batches_of, edit, flip, segments
from tests.snapshots.strict.faults import Small, outcome
from tests.snapshots.strict.planting import resealed

Place = tuple[str, str, int | None, Offset | None]
"""Rule, file, byte, offset."""


def long_log(path: Path, value: str = "1") -> Small:
    """Make a healthy log of several segments, with an early config of this value."""
    node = Small(path, 1, config=LogConfig(segment_bytes=4 << 10, tail_bytes=1 << 10)).beginning()
    node.apply(Config(TOPIC_RESOURCE, "orders", "k", value))
    for number in range(80):
        node.apply(outcome(number + 10, slot=number))
    node.end()
    return node


class ByteFault(NamedTuple):
    name: str
    plant: Callable[[Path], set[Place]]


def _batches(path: Path) -> tuple[Path, list[tuple[int, Batch]]]:
    """Return the second segment, in the middle of the log."""
    segment = segments(path)[1]
    return segment, batches_of(segment)


def _flipped(at: Callable[[Batch], int]) -> Callable[[Path], set[Place]]:
    def plant(path: Path) -> set[Place]:
        segment, found = _batches(path)
        position, batch = found[3]
        flip(segment, position + at(batch), 2)
        return {("damaged-batch", segment.name, position, batch.base_offset)}

    return plant


def _flipped_segment_header(path: Path) -> set[Place]:
    segment, found = _batches(path)
    flip(segment, 20)
    return {("damaged-batch", segment.name, 0, found[0][1].base_offset)}


def _missing(path: Path) -> set[Place]:
    segment, found = _batches(path)
    (here, _), (there, later) = found[3:5]
    edit(segment, lambda data: data.__delitem__(slice(here, there)))
    return {("offset-gap", segment.name, here, later.base_offset)}


def _doubled(path: Path) -> set[Place]:
    segment, found = _batches(path)
    (_, batch), (there, _) = found[3:5]
    edit(segment, lambda data: data.__setitem__(slice(there, there), batch.data))
    return {("offset-gap", segment.name, there, batch.base_offset)}


def _swapped(path: Path) -> set[Place]:
    segment, found = _batches(path)
    (here, one), (_, two), (end, _) = found[3:6]
    edit(segment, lambda data: data.__setitem__(slice(here, end), two.data + one.data))
    return {("offset-gap", segment.name, here, two.base_offset)}


def _missing_segment(path: Path) -> set[Place]:
    segments(path)[1].unlink()
    later = segments(path)[1]
    position, batch = batches_of(later)[0]
    return {("offset-gap", later.name, position, batch.base_offset)}


def _diverging(path: Path) -> set[Place]:
    """The node has a history of its own from one committed record on, with all checksums, chains and notes, and no snapshot."""
    other = long_log(path.parent / f"{path.name}-other", value="2")
    shutil.rmtree(path / "@metadata")
    shutil.copytree(other.path / "@metadata", path / "@metadata")
    for snapshot in (path / "@metadata").glob("*.checkpoint"):
        if "0" * 20 not in snapshot.name:
            snapshot.unlink()
    segment, position, batch = next(
        (segment, position, batch)
        for segment in segments(path)
        for position, batch in batches_of(segment)
        if Config(TOPIC_RESOURCE, "orders", "k", "2") in decode_batch(batch)
    )
    return {("history-differs", segment.name, position, batch.base_offset)}


def with_lower_epoch(path: Path) -> set[Place]:
    """A batch has a lower epoch than the batch before, and all checksums and chains behind it are right. For a short log."""
    (segment,) = segments(path)
    found = batches_of(segment)
    index = next(i for i, (_, batch) in enumerate(found) if batch.epoch > found[0][1].epoch) + 1
    position, batch = found[index]
    sealed = found[index - 1][1]
    data = b""
    for at, (_, each) in enumerate(found[index:]):
        sealed = resealed(each, sealed.chain, epoch=found[0][1].epoch if at == 0 else None)
        data += sealed.data
    edit(segment, lambda content: content.__setitem__(slice(position, position + len(data)), data))
    metadata = RealDirectory(path / "@metadata")
    for name in metadata.names():
        if name.endswith(".checkpoint") and not name.startswith("0" * 20):  # they name the old chains
            metadata.remove(name)
    write_lost(metadata, Flushed(sealed.end_offset, sealed.chain))
    metadata.rename(LOST_NAME, FLUSHED_NAME)  # the two notes have one form
    return {("epoch-regression", segment.name, position, batch.base_offset)}


def _other_snapshot(path: Path) -> set[Place]:
    """One value of a snapshot is another one, and the sums of the file are right."""
    metadata = RealDirectory(path / "@metadata")
    name = max(each for each in metadata.names() if each.endswith(".checkpoint"))
    parsed = parse_name(name)
    assert parsed is not None
    contents = read_snapshot(metadata, parsed[0])
    records = [each._replace(value="7") if isinstance(each, Config) else each for each in contents.records]
    metadata.remove(name)
    write_records(metadata, contents.meta, records)
    return {("snapshot-state", name, None, parsed[0].offset)}


BYTE_FAULTS: Final = (
    ByteFault("bit of a header", _flipped(lambda _: 9)),
    ByteFault("bit of a chain", _flipped(lambda _: 60)),
    ByteFault("bit of a record", _flipped(lambda batch: len(batch.data) - 3)),
    ByteFault("bit of a segment's header", _flipped_segment_header),
    ByteFault("missing batch", _missing),
    ByteFault("doubled batch", _doubled),
    ByteFault("swapped batches", _swapped),
    ByteFault("missing segment", _missing_segment),
    ByteFault("replica with another history", _diverging),
    ByteFault("snapshot with another value", _other_snapshot),
)
