"""Merges the segments of an archive into larger, compressed files. The node may run, archive more and delete meanwhile.

Each file is made in this order, so that a crash loses no record:

  1. the segments are read: each segment is whole, and continues the segment before
  2. a `.part` file with the segments is written and flushed
  3. the part is read again: its segments are those on the disk, byte for byte, and the batches are one history
  4. the part gets its name, and the directory is flushed
  5. the segments are deleted. After a crash before this step the segments lie in both forms: the next run compares and deletes

A damaged segment ends a file, and so does a segment that does not continue the segment before. The damaged segment stays in the
archive, for the audit. Example: the archive has segments at 0, 1,244, 2,500 and 3,700, and segment 1,244 is damaged.
  1. The segment at 0 becomes the file 0-1244. The segment at 1,244 is reported, and stays.
  2. The segments at 2,500 and 3,700 become the file 2500-5000.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.archived.merged_file import (
    PART_SUFFIX,
    SEGMENTS_MAX,
    Index,
    MergedFile,
    Range,
    chunks,
    compressed,
    merged_name,
    range_of,
)
from metadata_log.store.archived.view import batches_in
from metadata_log.store.segment import base_offset_of, is_leftover, segment_name, segment_names

TARGET_BYTES: Final = 256 << 20
RESERVE_BYTES: Final = 64 << 20
"""How many bytes of the disk stay free: a node with a full disk refuses writes."""


class CannotMerge(Exception):
    """No (further) file was merged. The message says why, and what to do; no record is lost."""


class Written(NamedTuple):
    """One file that was made."""

    name: str
    segments: int
    raw_bytes: int
    stored_bytes: int


@dataclass(slots=True)
class Result:
    """The result of one run."""

    written: list[Written] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Segments and files that stay as they are, with the reasons."""
    removed: list[str] = field(default_factory=list)
    """Segments that an earlier run had merged and not deleted."""


class _Group(NamedTuple):
    """Consecutive segments of one history."""

    bases: list[Offset]
    raw_bytes: int
    last: Batch


def merge(archive: Directory, *, keep: int = 0, target_bytes: int = TARGET_BYTES) -> Result:
    """Merge all segments of `archive` but the newest `keep`, into files with about `target_bytes` of segments each.

    The caller has locked the archive's directory, against a second merge.

    Raises:
        CannotMerge: the disk has no room, or the node deleted a segment that was being merged.
        OSError, FlushFailed: the disk failed. The merged files stay.
    """
    result = Result()
    for name in archive.names():
        if name.endswith(PART_SUFFIX) and range_of(name.removesuffix(PART_SUFFIX)) is not None:
            archive.remove(name)
    _remove_merged(archive, result)
    covered = [found for found in map(range_of, archive.names()) if found is not None]
    names = [
        name
        for name in segment_names(archive)
        if not any(each.base <= (base_offset_of(name) or 0) < each.end for each in covered)
    ]
    for group in _groups(archive, names[: max(0, len(names) - keep)], target_bytes, result):
        try:
            result.written.append(_merge_group(archive, group))
        except FileNotFoundError as e:
            raise CannotMerge(
                f"{archive.path_text}: a segment was deleted while it was merged ({e.filename}): the node keeps its archive "
                "below its limits. The merged files stay. Run this again"
            ) from e
    return result


# --- choosing --------------------------------------------------------------------------------------------------------


def _groups(archive: Directory, names: Sequence[str], target_bytes: int, result: Result) -> Iterator[_Group]:
    group: _Group | None = None
    for name in names:
        base = base_offset_of(name)
        assert base is not None, name
        read = _read(archive, name, base, None if group is None else group.last, result)
        if read is None:
            if group is not None:
                yield group
            group = None
            continue
        size, last = read
        if group is not None and not _takes(group, base, size, target_bytes):
            yield group
            group = None
        if group is None:
            group = _Group([base], size, last)
        else:
            group = _Group([*group.bases, base], group.raw_bytes + size, last)
    if group is not None:
        yield group


def _takes(group: _Group, base: Offset, size: int, target_bytes: int) -> bool:
    is_next = group.last.end_offset == base
    return is_next and group.raw_bytes + size <= target_bytes and len(group.bases) < SEGMENTS_MAX


def _read(
    archive: Directory, name: str, base: Offset, before: Batch | None, result: Result
) -> tuple[int, Batch] | None:
    """Read a segment; return its size and its last batch, or None if it stays as it is."""
    try:
        if is_leftover(archive, name):
            return None
        with closing(archive.open(name)) as file:
            last = None
            for batch in batches_in(file, f"{archive.path_text}/{name}", base, before):
                last = batch
            if last is None:
                result.skipped.append((name, "it has no batches"))
                return None
            return file.size(), last
    except FileNotFoundError:
        return None  # the node has deleted the segment
    except LogFormatError as e:
        result.skipped.append((name, str(e)))
        return None


# --- writing ---------------------------------------------------------------------------------------------------------


def _merge_group(archive: Directory, group: _Group) -> Written:
    free = archive.free_bytes()
    if free < group.raw_bytes + RESERVE_BYTES:
        raise CannotMerge(
            f"{archive.path_text}: {free:,} bytes are free, and {group.raw_bytes + RESERVE_BYTES:,} may be needed for the next "
            "file. The merged files stay, and this file was not begun. Make room, or lower --target-mib"
        )
    range_ = Range(group.bases[0], group.last.end_offset)
    name = merged_name(range_)
    try:
        _write(archive, name, range_, group.bases)
        _verify(archive, name)
        archive.rename(name + PART_SUFFIX, name)
    except (LogFormatError, OSError):
        if archive.exists(name + PART_SUFFIX):
            archive.remove(name + PART_SUFFIX)
        raise
    archive.flush()
    with closing(archive.open(name)) as file:
        stored = file.size()
    for base in group.bases:
        _remove(archive, segment_name(base))
    archive.flush()
    return Written(name, len(group.bases), group.raw_bytes, stored)


def _write(archive: Directory, name: str, range_: Range, bases: Sequence[Offset]) -> None:
    sizes, blocks, position = [], [], 0
    with closing(archive.open(name + PART_SUFFIX, create=True)) as part:
        part.truncate(0)
        for base in bases:
            size = 0
            with closing(archive.open(segment_name(base))) as file:
                for raw in chunks(file):
                    data = compressed(raw)
                    part.write_at(position, data)
                    position, size = position + len(data), size + len(raw)
                    blocks.append((len(data), google_crc32c.value(data)))
            sizes.append(size)
        part.write_at(position, Index(range_, bases, sizes, blocks).pack())
        part.flush()


def _verify(archive: Directory, name: str) -> None:
    """Read a part again, and compare it with the segments.

    Raises:
        CorruptLog: the part does not hold the segments, or the batches are not one history.
    """
    part = MergedFile(archive, name, part=True)
    last: Batch | None = None
    for base in part.index.bases:
        if last is not None and last.end_offset != base:
            raise CorruptLog(f"{part.path}: no record at {last.end_offset}; the file was not made")
        with closing(part.open(base)) as inside:
            for batch in batches_in(inside, f"{part.path}, segment {base}", base, last):
                last = batch
        if not _is_same(archive, part, base):
            raise CorruptLog(
                f"{part.path}: the segment {base} reads as other bytes; the file was not made. Check the disk"
            )
    if last is None or last.end_offset != part.index.range.end:
        raise CorruptLog(f"{part.path}: the records do not reach {part.index.range.end}; the file was not made")


def _is_same(archive: Directory, merged: MergedFile, base: Offset) -> bool:
    """Return True if a merged segment has the bytes of the segment's own file.

    Raises:
        FileNotFoundError: the segment's file is gone.
    """
    with closing(archive.open(segment_name(base))) as file, closing(merged.open(base)) as inside:
        if file.size() != inside.size():
            return False
        return all(theirs == ours for theirs, ours in zip(chunks(file), chunks(inside), strict=True))


def _remove_merged(archive: Directory, result: Result) -> None:
    """Delete the segments that a run with a crash has left behind, if their merged form is whole."""
    for name in archive.names():
        if range_of(name) is None:
            continue
        try:
            merged = MergedFile(archive, name)
            for base in merged.index.bases:
                segment = segment_name(base)
                if not archive.exists(segment):
                    continue
                if _is_same(archive, merged, base):
                    _remove(archive, segment)
                    result.removed.append(segment)
                else:
                    result.skipped.append((segment, f"{name} has the segment, too, with other bytes"))
        except FileNotFoundError:
            continue  # the node has deleted one of the two
        except LogFormatError as e:
            result.skipped.append((name, str(e)))
    if result.removed:
        archive.flush()


def _remove(archive: Directory, name: str) -> None:
    try:
        archive.remove(name)
    except FileNotFoundError:
        return  # the node has deleted the segment, too
