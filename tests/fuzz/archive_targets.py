"""A merged file of an archive: its index, its blocks, and the segments inside."""

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from random import Random
from typing import Final

import google_crc32c

from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.archived.merged_file import Index, Range, compressed, merged_name
from metadata_log.store.archived.merging import merge
from metadata_log.store.archived.view import ArchiveView, archived_batches
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import segment_names, unpack_header
from tests.fuzz.mutation import mutated
from tests.fuzz.sealing import sealed_segment
from tests.fuzz.target import Target
from tests.sim.world.disk import MemoryDirectory

_TRAILER: Final = 48


@cache
def _segments() -> tuple[bytes, ...]:
    """Some segments from offset 0 on, without the last one of their log."""
    directory = MemoryDirectory("/fuzz")
    log = Log.open(directory, config=LogConfig(segment_bytes=600, tail_bytes=400))
    while log.end < 48:
        log.append([Topic(f"topic-{log.end}-{at}", bytes([at]) * 16) for at in range(4)], 1, 1_000 + log.end)
    log.flush()
    log.drop_prefix(OffsetAndEpoch(log.end, 1))
    log.close()
    archive = directory.subdirectory(ARCHIVE_NAME)
    return tuple(archive.read(name, 1 << 20) for name in segment_names(archive))


def _samples() -> list[bytes]:
    return [_file(_segments())]


def _bases() -> list[int]:
    return [unpack_header(each).start.offset for each in _segments()]


@cache
def _range() -> Range:
    """Each segment has two batches of four records."""
    return Range(0, _bases()[-1] + 8)


def _file(segments: Sequence[bytes]) -> bytes:
    """A merged file with these bytes in place of the segments, whose checksums fit."""
    blocks = [compressed(each) for each in segments]
    sums = [(len(each), google_crc32c.value(each)) for each in blocks]
    index = Index(_range(), _bases()[: len(segments)], [len(each) for each in segments], sums)
    return b"".join(blocks) + index.pack()


def _sealed(data: bytes) -> bytes:
    """The checksums of index and blocks fit, as far as the counts in the trailer fit the file."""
    if len(data) < _TRAILER:
        return data
    out = bytearray(data)
    trailer = len(out) - _TRAILER
    segments, blocks = (int.from_bytes(out[trailer + at : trailer + at + 4], "big") for at in (12, 16))
    index = trailer - segments * 16 - blocks * 8
    if index < 0:
        return data
    position = 0
    for number in range(blocks):
        entry = index + segments * 16 + number * 8
        stored = int.from_bytes(out[entry : entry + 4], "big")
        crc = google_crc32c.value(bytes(out[position : min(position + stored, index)]))
        out[entry + 4 : entry + 8] = crc.to_bytes(4, "big")
        position = min(position + stored, index)
    out[-4:] = google_crc32c.value(bytes(out[index:-4])).to_bytes(4, "big")
    return bytes(out)


def _mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return mutated(rng, samples)
    if kind < 3:
        return _sealed(mutated(rng, samples))
    segments = list(_segments())
    number = rng.randrange(len(segments))
    segments[number] = sealed_segment(mutated(rng, segments), chained=rng.random() < 0.5) or b"\x00"
    return _file(segments)


def _take(data: bytes) -> str | None:
    """An archive that is read to its end is merged again, to the same batches."""
    archive = MemoryDirectory("/fuzz")
    archive.write_atomic(merged_name(_range()), data)
    batches = list(archived_batches(archive))
    again = MemoryDirectory("/again")
    for name, content in _contents(archive).items():
        again.write_atomic(name, content)
    merge(again)
    assert list(archived_batches(again)) == batches
    return None


def _contents(archive: Directory) -> dict[str, bytes]:
    view, found = ArchiveView(archive), {}
    for name in segment_names(view):
        with closing(view.open(name)) as file:
            found[name] = file.read_at(0, file.size())
    return found


TARGETS = (Target("merged-archive", _samples, _take, (LogFormatError,), _mutated),)
