"""The rot of a controller's disk: of a bit or a sector inside its log, or the end of what was durable.

All are done to the files as a crash has left them, and only below the note `flushed`: above it there may be anything, and
nobody can tell rot from a torn tail there. A power cut may have brought back an older note, of a log that was shorter. What
`mangle_end` takes away then reaches from below that note to the very end: the node has promised more than it can know. Rot takes
its time: the operating system has written the note back before, which it does within half a minute.
"""

import random
from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.store.log_notes import FLUSHED_NAME, Flushed, FlushedNote, read_start
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, BadBatch, segment_names, walk
from tests.sim.world.disk import MemoryDirectory, Observer
from tests.sim.world.disk_content import SECTOR_BYTES

CRC_AT = 8
"""The place of the CRC in a batch."""
KEPT_BATCHES = 2
"""So many batches below the note stay intact where a bit rots: they lead to what was noted, so they prove what stands behind."""
LOST_BATCHES_MAX = 3


class _Stored(NamedTuple):
    """A batch in a file."""

    name: str
    position: int
    batch: Batch

    @property
    def end_position(self) -> int:
        return self.position + len(self.batch.data)


def flip_inside(metadata: MemoryDirectory, rng: random.Random, *, sealed_below: Offset | None = None) -> bool:
    """A bit rots inside the log, with a proven history behind it; False if the log is too short for that.

    With `sealed_below`, only in sealed segments and below that offset: the process that writes this log is running.
    """
    found = _place_inside(metadata, rng, sealed_below)
    if found is None:
        return False
    name, position, _ = found
    metadata.flip_bit(name, position, rng.randrange(8))
    return True


def break_inside(metadata: MemoryDirectory, rng: random.Random, *, sealed_below: Offset | None = None) -> bool:
    """As `flip_inside`, with a sector that cannot be read any more, until somebody writes it.

    False for the header of the log's only file if the log has nothing above its start. For example a snapshot ends at 157, and
    so does the log. Then no batch proves what the file is, and the node rightly does not start (exit code 1, nothing was cut).
    """
    found = _place_inside(metadata, rng, sealed_below)
    if found is None:
        return False
    name, position, end = found
    if (position // SECTOR_BYTES + 1) * SECTOR_BYTES > end:
        return False  # it would take the proof with it
    if position < SECTOR_BYTES and _is_empty(metadata):
        return False
    metadata.break_sector(name, position)
    return True


def _place_inside(
    metadata: MemoryDirectory, rng: random.Random, sealed_below: Offset | None
) -> tuple[str, int, int] | None:
    """A file, a byte of it, and where in it what must stay intact begins."""
    names = segment_names(metadata)
    stored = _below_note(metadata)
    places, kept = stored[:-KEPT_BATCHES], stored[-KEPT_BATCHES:]
    if sealed_below is not None:
        places = [each for each in places if each.name != names[-1] and each.batch.end_offset <= sealed_below]
    if not places:
        return None
    _write_back_note(metadata)
    chosen = rng.choice(places)
    begins_file = chosen.position == SEGMENT_HEADER_BYTES and chosen.name != names[0]
    position = rng.randrange(0 if begins_file else chosen.position, chosen.end_position)
    end = next((each.position for each in kept if each.name == chosen.name), metadata.size(chosen.name))
    return chosen.name, position, end


def mangle_end(metadata: MemoryDirectory, rng: random.Random) -> bool:
    """The last batches below the note are gone, with all behind them; False if a later segment says that there was more.

    Also False if the file has a sector that cannot be read: its end is the proof that the log goes on behind that sector, and
    without the proof the node rightly does not start (exit code 1, nothing was cut).
    """
    places = _below_note(metadata)
    if not places or places[-1].name != segment_names(metadata)[-1] or metadata.has_bad_sector(places[-1].name):
        return False
    _write_back_note(metadata)
    lost = [each for each in places if each.name == places[-1].name][-rng.randint(1, LOST_BATCHES_MAX) :]
    first, last = lost[0], lost[-1]
    if rng.random() < 0.5:
        size = rng.randrange(first.position, first.end_position)
        metadata.edit(first.name, lambda content: content.__delitem__(slice(size, None)))
        return True
    metadata.edit(first.name, lambda content: content.__delitem__(slice(last.end_position, None)))
    for each in lost:
        # Not the control flag: the CRC does not vouch for that, and where only that is wrong the batch's end is known.
        position = max(each.position + CRC_AT, rng.randrange(each.position, each.end_position))
        metadata.flip_bit(each.name, position, rng.randrange(8))
    return True


def _is_empty(metadata: MemoryDirectory) -> bool:
    """The log, as far as it was durable, ends where it starts."""
    with Observer():
        note, start = FlushedNote(metadata).read(), read_start(metadata)
    return note is not None and start is not None and note.end <= start.start.offset


def _write_back_note(metadata: MemoryDirectory) -> None:
    metadata.edit(FLUSHED_NAME, lambda _: None)


def _below_note(metadata: MemoryDirectory) -> list[_Stored]:
    """All batches from the first segment's on up to the one that the note speaks of; none where they do not lead there."""
    with Observer():
        note = FlushedNote(metadata).read() if metadata.exists(FLUSHED_NAME) else None
        return [] if note is None else _leading_to(note, metadata)


def _leading_to(note: Flushed, metadata: MemoryDirectory) -> list[_Stored]:
    places: list[_Stored] = []
    for name in segment_names(metadata):
        file = metadata.open(name)
        try:
            for position, batch in walk(file, SEGMENT_HEADER_BYTES, file.size()):
                if places and batch.base_offset != places[-1].batch.end_offset:
                    return []
                places.append(_Stored(name, position, batch))
                if (batch.end_offset, batch.chain) == note:
                    return places
        except BadBatch:
            return []
        finally:
            file.close()
    return []
