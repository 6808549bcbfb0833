"""A wave: the batches that were committed since the last one, encoded for all watches at the end of the log.

1. A turn of the controller commits three batches, [40, 41), [41, 44) and [44, 45). Watches of two filters are at 40.
2. The wave decodes the three batches, finds the filters for each change, and encodes each change that some filter shows, once.
3. Each watch of a filter gets the same message: its events of the three batches, and the position 45.
4. A watch whose filter shows none of them gets nothing. It is at 45 too, and its next bookmark says so.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Uuid
from metadata_log.image.metadata_image import MetadataImage
from watches.core.filter_index import FilterIndex
from watches.core.filters import Filter
from watches.core.log_plan import LogPlan
from watches.core.position import Skips
from watches.core.reader_queue import Message
from watches.service.batch_changes import ChangesKept
from watches.service.messages import packed

WAVE_BYTES: Final = 1 << 20
"""Maximum size of the batches of a wave. The next wave has the rest."""


class Wave(NamedTuple):
    """A wave, encoded."""

    messages: dict[Filter, list[Message]]
    """The events for each filter that shows any."""
    skips: Skips
    """The records about skipped batches in the wave."""
    is_closed: bool
    """False: a metadata transaction is open at the end. Then nothing of the wave may be sent."""


class NameFinder:
    """Finds the name of a topic by its id, among known names and in images."""

    def __init__(self, names: dict[Uuid, str], images: Sequence[MetadataImage]) -> None:
        self._names = names
        self._images = images

    def __call__(self, topic_id: Uuid) -> str:
        name = self._names.get(topic_id)
        if name is not None:
            return name
        for image in self._images:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                return str(topic.name)
        raise AssertionError(f"no name for the topic {topic_id.hex()}, which has existed in this stretch of the log")


def wave_of(
    batches: Sequence[Batch],
    plan: LogPlan,
    index: FilterIndex,
    kept: ChangesKept,
    name_of: NameFinder,
) -> Wave:
    """Encode the events of `batches` for the filters of `index`. `plan` is fresh, and notes the names that `name_of` finds.

    Raises:
        OutOfOrder: the batches begin inside a metadata transaction.
        LogFormatError: a batch cannot be decoded.
    """
    decoded = []
    for batch in batches:
        records = [] if plan.drops(batch) else decode_batch(batch)
        plan.take(batch, enumerate(records, batch.base_offset))
        if not batch.is_control and records:
            decoded.append((batch, records))
    parts: dict[Filter, list[bytes]] = {}
    for batch, records in decoded if plan.is_closed else ():
        found = kept.made_of(batch, records, plan, name_of)
        for number, change in enumerate(found.changes):
            for each in index.showing(change.subject):
                parts.setdefault(each, []).append(found.part(number))
    return Wave({each: [*packed(shown)] for each, shown in parts.items()}, tuple(plan.skips), plan.is_closed)
