"""Reads the files of a data directory for people: segments and snapshots, of a stopped or a running node, whole or damaged.

The reader changes nothing, and does not stop at damage: damage is a row too, and reading goes on at the next intact batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from metadata_log.disk.files import File
from metadata_log.disk.read_only import LocalDirectory, LocalFile
from metadata_log.format.batch import (
    BATCH_BYTES_MAX,
    DATA_FORMAT_VERSION,
    HEADER_BYTES,
    Batch,
    batch_length,
    decode,
    verify_chain,
)
from metadata_log.format.codec import decode_batch, record_to_json
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.record_rows import rows_of as rows_of_batch
from metadata_log.store.archived.merged_file import MERGED_SUFFIX, MergedFile, range_of
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, segment_name, unpack_header
from quorum.cli.commands.log.data_rows import data_rows, producer_of
from snapshots.format import FIRST_CHAIN

_WINDOW_BYTES: Final = 4 << 20
_BATCH_BEGINNINGS: Final = (b"\x01\x00\x00\x00", b"\x01\x01\x00\x00", b"\x02\x00\x00\x00")
"""Format version, flags and reserved bytes: the reader looks for them behind damage."""

Row = dict[str, Any]


def files_of(path: Path) -> list[Path]:
    """The segments, merged files and snapshots that `path` stands for: a file, or an `@metadata` directory, or the directory of a
    node or of a replica.
    """
    if path.is_file():
        return [path]
    inner = path / "@metadata"
    directory = inner if inner.is_dir() else path
    return sorted(file for file in directory.iterdir() if file.suffix in (".log", ".checkpoint", MERGED_SUFFIX))


def rows_of(path: Path, *, with_records: bool) -> Iterator[Row]:
    """Lists one file: a row for each batch (with its records, if wanted) and for each damaged range.

    Raises:
        OSError: the file cannot be read.
    """
    if path.suffix == MERGED_SUFFIX:
        yield from _merged_rows(path, with_records=with_records)
        return
    with closing(LocalFile(path)) as file:
        if path.suffix == ".checkpoint":
            yield from _batches(_Window(file), path, 0, FIRST_CHAIN, with_records=with_records)
        else:
            yield from _segment_rows(file, path, with_records=with_records)


def _segment_rows(file: File, path: Path, *, with_records: bool) -> Iterator[Row]:
    head = file.read_at(0, SEGMENT_HEADER_BYTES)
    try:
        chain = unpack_header(head).previous_chain
    except LogFormatError as e:
        yield _damage(path, 0, str(e))
        chain = b""
    yield from _batches(_Window(file), path, SEGMENT_HEADER_BYTES, chain, with_records=with_records)


def _merged_rows(path: Path, *, with_records: bool) -> Iterator[Row]:
    """The rows of the segments in a merged file; each segment under its own name. Damage of a block ends its segment."""
    if range_of(path.name) is None:
        yield _damage(path, 0, "not the name of a merged file")
        return
    try:
        merged = MergedFile(LocalDirectory(path.parent), path.name)
    except LogFormatError as e:
        yield _damage(path, 0, str(e))
        return
    for base in merged.index.bases:
        with closing(merged.open(base)) as file:
            try:
                yield from _segment_rows(file, path.with_name(segment_name(base)), with_records=with_records)
            except CorruptLog as e:
                yield _damage(path, 0, str(e))


class _Window:
    """A part of a file, moved along as it is read."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._data = b""

    def at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""
        if position < self._start or position + length > self._start + len(self._data):
            self._start, self._data = position, self._file.read_at(position, max(length, _WINDOW_BYTES))
        begin = position - self._start
        return self._data[begin : begin + length]


def _batches(window: _Window, path: Path, position: int, chain: bytes, *, with_records: bool) -> Iterator[Row]:
    while head := window.at(position, HEADER_BYTES):
        if head[0] == 0 and not any(window.at(position, _WINDOW_BYTES)):
            return  # preallocated space
        try:
            batch = decode(window.at(position, batch_length(head)))
        except LogFormatError as e:
            yield _damage(path, position, str(e))
            following = _next_intact(window, position + 1)
            if following is None:
                return
            position, chain = following, b""
            continue
        yield _row(path, position, batch, chain, with_records=with_records)
        position, chain = position + len(batch.data), batch.chain


def _next_intact(window: _Window, position: int) -> int | None:
    """The position of the next intact batch; None if the rest of the file has none."""
    while data := window.at(position, _WINDOW_BYTES):
        found = min((at for at in map(data.find, _BATCH_BEGINNINGS) if at >= 0), default=None)
        if found is None:
            position += max(1, len(data) - len(_BATCH_BEGINNINGS[0]) + 1)
            continue
        position += found
        try:
            decode(window.at(position, BATCH_BYTES_MAX))
        except LogFormatError:
            position += 1
        else:
            return position
    return None


def _damage(path: Path, position: int, reason: str) -> Row:
    return {"kind": "damage", "file": path.name, "position": position, "reason": reason}


def _row(path: Path, position: int, batch: Batch, chain: bytes, *, with_records: bool) -> Row:
    row: Row = {
        "kind": "batch",
        "file": path.name,
        "position": position,
        "base_offset": batch.base_offset,
        "end_offset": batch.end_offset,
        "epoch": batch.epoch,
        "record_count": batch.record_count,
        "is_control": batch.is_control,
        "first_timestamp_ms": batch.first_timestamp_ms,
        "last_timestamp_ms": batch.last_timestamp_ms,
        "bytes": len(batch.data),
        "chain": batch.chain.hex(),
        "chain_is_valid": verify_chain(batch, chain) if chain else None,
    }
    if batch.format_version == DATA_FORMAT_VERSION:
        return row | _data_row(batch, with_records=with_records)
    if with_records:
        try:
            records = decode_batch(batch)
            row["records"] = [
                {"offset": offset, **record_to_json(record)} for offset, record in enumerate(records, batch.base_offset)
            ]
        except LogFormatError as e:
            row["records"], row["reason"] = [each._asdict() for each in rows_of_batch(batch)], str(e)
    return row


def _data_row(batch: Batch, *, with_records: bool) -> Row:
    """Returns the further cells of a data batch: the producer, and the records if wanted."""
    try:
        row: Row = {"producer": producer_of(batch)}
        return {**row, "records": data_rows(batch)} if with_records else row
    except LogFormatError as e:
        return {"records": [], "reason": str(e)}
