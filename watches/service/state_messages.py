"""The messages of a RESET: the state of one image, encoded in slices, so that the event loop stays free.

1. A watch of a cluster with 2,000,000 partitions begins without a position. Its state has 2,020,000 events.
2. A small state is encoded on the event loop. This state is encoded on the thread of the watches, 1,000 events at a time: other
   watches have their turns in between, and at most one message waits for the client.
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
SLICE: Final = 1_000
"""How many events are encoded in one turn of the thread: 20 ms."""
SLICE_BYTES: Final = 256 << 10
"""A slice ends with the event that makes it larger than this."""


async def state_messages(
    hub: Hub, shown: Filter, at: Tail, image: MetadataImage, prefix: bytes
) -> AsyncGenerator[Message, None]:
    """Yields the state of `image`, which is the image at `at`. Each message begins with `prefix`."""
    key = shown, at.position.offset, at.position.chain
    kept = hub.states.get(key)
    if kept is not None:
        for message in packed(kept, prefix):
            yield message
        return
    is_small = size_of(image, shown) <= SMALL
    steps = state_of(image, shown)
    all_parts: list[bytes] | None = []
    parts: list[bytes] = []
    while True:
        size = 0 if is_small else INLINE_BYTES + 1
        new = await hub.work(size, partial(_slice, steps, SMALL if is_small else SLICE))
        if not new:
            break
        new_bytes = sum(map(len, new))
        is_small = is_small and new_bytes <= SLICE_BYTES
        if all_parts is not None:
            all_parts += new
            all_parts = all_parts if sum(map(len, all_parts)) <= MESSAGE_BYTES_MAX else None
        if sum(map(len, parts)) + new_bytes > MESSAGE_BYTES_MAX:
            for message in packed(parts, prefix):
                yield message
            parts = []
        parts += new
    if all_parts is not None:
        hub.states.keep(key, all_parts)
    for message in packed(parts, prefix):
        yield message


def _slice(steps: Iterator[Change], count: int) -> list[bytes]:
    parts: list[bytes] = []
    size = 0
    for change in islice(steps, count):
        parts.append(event_part(change))
        size += len(parts[-1])
        if size > SLICE_BYTES:
            break
    return parts
