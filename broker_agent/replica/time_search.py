"""The search for the first record of a time: it reads up to a segment, so it runs on a thread, beside the log's owner.

    1. Consumer 7 asks for the first record of orders-0 that is not older than noon. The high watermark is 900.
    2. The segments of orders-0 begin at 0, 400 and 800, and their largest timestamps are 11:00, 12:30 and 12:45. So the search
       begins at 400.
    3. The batch [520, 530) is the first one with a timestamp at noon or later. Its record 524 is the answer.

The timestamps of a log are those of producers, and need not rise. So a search looks at each batch of its first segment.
"""

from typing import NamedTuple

from metadata_log.format.data_batch import decode_data
from metadata_log.format.ids import Offset
from metadata_log.store.side_reader import SideReader


class TimedOffset(NamedTuple):
    """A record's offset and timestamp."""

    offset: Offset
    timestamp_ms: int


class TimeSearch(NamedTuple):
    """One search. `PartitionLog.search_time` makes it."""

    reader: SideReader | None
    """None: no segment has a timestamp that is large enough."""
    timestamp_ms: int
    start: Offset
    until: Offset

    def run(self) -> TimedOffset | None:
        """Return the first record in [start, until) whose timestamp is at least `timestamp_ms`; None if there is none.

        Raises:
            CorruptLog, OSError: the log cannot be read; FileNotFoundError if retention has deleted the segment meanwhile.
        """
        if self.reader is None:
            return None
        for batch in self.reader.batches():
            if batch.end_offset > self.until:
                return None
            if batch.base_offset >= self.start and batch.last_timestamp_ms >= self.timestamp_ms:
                for offset, record in enumerate(decode_data(batch), batch.base_offset):
                    if record.timestamp_ms >= self.timestamp_ms:
                        return TimedOffset(offset, record.timestamp_ms)
        return None
