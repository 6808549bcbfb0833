"""The damage of bad disks and power cuts, done to the files of a controller: torn ends, lost ends, flipped bits, lost sectors.

Each function takes a directory and dice, and gives False where there is nothing to be damaged. Records above the note
`flushed` were promised to nobody. Records below were, and the other controllers must make a loss good.
"""

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory, File, RealDirectory
from metadata_log.store.log_notes import FLUSHED_NAME, Flushed, FlushedNote, read_start
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, BadBatch, base_offset_of, segment_names, walk
from quorum.runtime.disk import election_file
from snapshots.format import BOOTSTRAP_END, parse_name, snapshot_name

SECTOR_BYTES: Final = 512


# --- what was promised to nobody -----------------------------------------------------------------------------------------


def tear(metadata: Directory, dice: random.Random) -> bool:
    """Damages the log above its flushed note: garbage, a cut, or zeros in between."""
    flushed = _flushed(metadata)
    names = segment_names(metadata)
    if flushed is None or not names or (base_offset_of(names[-1]) or 0) > flushed.end:
        return False
    with closing(metadata.open(names[-1])) as file:
        position, end = SEGMENT_HEADER_BYTES, base_offset_of(names[-1]) or 0
        try:
            for position, batch in walk(file, SEGMENT_HEADER_BYTES, file.size()):
                if batch.base_offset >= flushed.end:
                    break
                position, end = position + len(batch.data), batch.end_offset
        except BadBatch as e:
            if end < flushed.end:
                return False  # rot below the log's start, which nobody repairs: what follows was flushed
            position = e.position  # a write that was cut short by the kill
        match dice.choice(["garbage", "cut", "zeros"]):
            case "garbage":
                file.write_at(position + dice.randint(0, 200), dice.randbytes(dice.randint(1, 3_000)))
            case "cut":
                file.truncate(min(file.size(), position + dice.randint(0, 300)))
            case _:
                file.write_at(position, bytes(dice.randint(1, 600)))
    return True


# --- what others count on ------------------------------------------------------------------------------------------------


def cut_end(metadata: Directory, dice: random.Random) -> bool:
    """Up to 50 batches are gone from the log's end that were flushed."""
    names = segment_names(metadata)
    if not names:
        return False
    with closing(metadata.open(names[-1])) as file:
        ends = [SEGMENT_HEADER_BYTES]
        with suppress(BadBatch):  # what the kill has torn is cut with the rest
            ends += [position + len(batch.data) for position, batch in walk(file, ends[0], file.size())]
        file.truncate(dice.choice(ends[-50:]))
    return True


def rot_log(metadata: Directory, dice: random.Random) -> bool:
    """Somewhere in what was flushed, whatever segment it stands in: a bit flips, or three, or a sector reads as zeros.

    Or the note itself rots that says how much was flushed: then only the bytes of the log can say it.
    """
    places = list(_durable(metadata))
    if not places:
        return False
    if dice.random() < 0.1:
        with closing(metadata.open(FLUSHED_NAME)) as file:
            _flip(file, 0, file.size(), dice)
        return True
    kind = dice.choice(["bit", "bit", "bits", "sector"])
    for place in dice.choices(places, k=3 if kind == "bits" else 1):
        with closing(metadata.open(place.name)) as file:
            if kind == "sector":
                position = dice.randrange(place.position, place.end)
                file.write_at(position, bytes(min(SECTOR_BYTES, place.end - position)))
            else:
                _flip(file, place.position, place.end, dice)
    return True


def rot_snapshot(metadata: Directory, dice: random.Random) -> bool:
    """A bit flips in a snapshot, but never in the only one that the log stands on: such a node starts no more, and says so."""
    snapshots = [parsed[0] for parsed in map(parse_name, metadata.names()) if parsed is not None and not parsed[1]]
    ends = sorted(end for end in snapshots if end != BOOTSTRAP_END)
    start = read_start(metadata)
    needed = [end for end in ends if start is not None and end.offset >= start.start.offset]
    if not ends or (start is not None and start.start.offset > 0 and len(needed) < 2):
        return False
    name = snapshot_name(ends[-1] if dice.random() < 0.7 else dice.choice(ends))
    with closing(metadata.open(name)) as file:
        _flip(file, 0, file.size(), dice)
    return True


def forget_vote(directory: RealDirectory, dice: random.Random) -> bool:
    """`quorum-state` is gone, empty, too long, or has a bit that flipped."""
    path = directory.path / election_file.FILE_NAME
    if not path.exists() or not path.stat().st_size:
        return False  # forgotten already, and not written anew yet
    match dice.choice(["gone", "empty", "long", "flipped"]):
        case "gone":
            path.unlink(missing_ok=True)
        case "empty":
            path.write_bytes(b"")
        case "long":
            path.write_bytes(dice.randbytes(election_file.FILE_BYTES_MAX + 1))
        case _:
            data = bytearray(path.read_bytes())
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            path.write_bytes(data)
    return True


class _Place(NamedTuple):
    """Bytes of a segment that were flushed once; `end` is exclusive."""

    name: str
    position: int
    end: int


def _durable(metadata: Directory) -> Iterator[_Place]:
    """Each header and each batch that was flushed."""
    note = _flushed(metadata)
    for name in segment_names(metadata):
        with closing(metadata.open(name)) as file, suppress(BadBatch):
            yield _Place(name, 0, SEGMENT_HEADER_BYTES)
            for position, batch in walk(file, SEGMENT_HEADER_BYTES, file.size()):
                if note is None or batch.end_offset > note.end:
                    return
                yield _Place(name, position, position + len(batch.data))


def _flushed(metadata: Directory) -> Flushed | None:
    note = FlushedNote(metadata)
    try:
        return note.read()
    finally:
        note.close()


def _flip(file: File, position: int, end: int, dice: random.Random) -> None:
    """One bit of the bytes from `position` to `end` (exclusive)."""
    at = dice.randrange(position, end)
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1 << dice.randrange(8)]))
