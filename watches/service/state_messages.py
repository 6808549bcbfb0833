"""The messages of a RESET: the state of one image, encoded in slices, so that the event loop stays free.

1. A watch of a cluster with 2,000,000 partitions begins without a position. Its state has 2,020,000 events.
2. A small state is encoded on the event loop. This state is encoded on the thread of the watches, 1,000 events at a time: other
   watches have their turns in between, and at most one message of about 64 KiB waits for the client. With messages of 1 MiB,
   200 clients that took nothing held 0.9 GB.
3. After a restart, 1,000 watches of the kind `lock` begin at once. The state of 40 locks is encoded once, and kept.
"""

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from itertools import islice
from typing import Final

from metadata_log.image.metadata_image import MetadataImage
from watches.core.changes import Change
from watches.core.filters import Filter
from watches.core.reader_queue import Message
from watches.core.state import size_of, state_of
from watches.service.hub import INLINE_BYTES, Hub
from watches.service.messages import MESSAGE_BYTES_MAX, Tail, event_part, packed

SMALL: Final = 200
"""Maximum number of events of a state that is encoded on the event loop: 4 ms."""
PIECE_BYTES: Final = 64 << 10
"""A message ends with the event that reaches this size. gRPC copies a message for each client, and keeps the copy until the
client takes it."""
SLICE: Final = 1_000
"""How many events are encoded in one turn of the thread: 20 ms."""
SLICE_BYTES: Final = 256 << 10
"""A slice ends with the event that reaches this size."""


async def state_messages(
    hub: Hub, shown: Filter, at: Tail, image: MetadataImage, prefix: bytes
) -> AsyncGenerator[Message, None]:
    """Yields the state of `image`, which is the image at `at`. Each message begins with `prefix`."""
    states, key = hub.states, (shown, at.position.offset, at.position.chain)
    async with states.lock:  # a crowd that begins at once encodes the state once
        if key not in states:
            states.keep(key, await _small(hub, shown, image))
        kept = states[key]
    if kept is not None:
        for message in packed(kept, prefix, PIECE_BYTES):
            yield message
        return
    steps = state_of(image, shown)
    while new := await hub.work(INLINE_BYTES + 1, partial(_encoded, steps, SLICE, PIECE_BYTES)):
        yield Message(prefix + b"".join(new), len(new))


async def _small(hub: Hub, shown: Filter, image: MetadataImage) -> list[bytes] | None:
    """The encoded events of a state; None if they have more than MESSAGE_BYTES_MAX."""
    steps = state_of(image, shown)
    work_bytes, count = (0, SMALL) if size_of(image, shown) <= SMALL else (INLINE_BYTES + 1, SLICE)
    parts: list[bytes] = []
    size = 0
    while new := await hub.work(work_bytes, partial(_encoded, steps, count, SLICE_BYTES)):
        parts += new
        size += sum(map(len, new))
        if size > MESSAGE_BYTES_MAX:
            return None
        if size >= SLICE_BYTES:  # few events, and large ones: the thread goes on
            work_bytes, count = INLINE_BYTES + 1, SLICE
    return parts


def _encoded(steps: Iterator[Change], count: int, bytes_max: int) -> list[bytes]:
    """The next events: `count` at most, and none behind the one that reaches `bytes_max`."""
    parts: list[bytes] = []
    size = 0
    for change in islice(steps, count):
        parts.append(event_part(change))
        size += len(parts[-1])
        if size >= bytes_max:
            break
    return parts
