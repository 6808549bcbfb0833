"""The place of a delivered record: what a send returns."""

from typing import NamedTuple

from metadata_log.format.ids import Offset


class RecordMetadata(NamedTuple):
    """A delivered record. `offset` None: not known, as with `acks=0`."""

    topic: str
    partition: int
    offset: Offset | None
    timestamp_ms: int
