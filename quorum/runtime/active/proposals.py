"""Batches of the active controller, on their way to the log: sealed by an epoch and a time, then appended.

    decide --> stage --> seal -->|--> append --> propose        (`quorum.runtime.active.decisions`)

Example: leader 1 leads epoch 5, and its log ends at 40.
    1. `seal` makes the batch [40, 43) of three records, with epoch 5 and the time of the turn; nothing is written;
    2. `append` writes the batch. The node reports the growth to the core at the end of the turn, for all batches at once.
"""

from collections.abc import Sequence
from typing import Protocol

from metadata_log.format.batch import Batch
from metadata_log.format.records import Record
from quorum.runtime.parts import Parts


class Writer(Protocol):
    """The writer of the log, as a proposal needs it (`quorum.runtime.disk.log_writer`)."""

    def append_proposal(self, batch: Batch, now_ms: int) -> None: ...


class Proposals:
    """Seals and appends for one node."""

    def __init__(self, parts: Parts, writer: Writer) -> None:
        self._log, self._core, self._time = parts.log, parts.core, parts.time
        self._writer = writer

    def seal(self, records: Sequence[Record]) -> Batch:
        """Makes the batch that would come next in the log. Raises BatchTooLarge."""
        return self._log.seal(records, self._core.epoch, self._time.wall_ms)

    def append(self, batch: Batch) -> None:
        """Appends a sealed batch. Raises Refused: the disk has no room, and the node resigns in this turn."""
        self._writer.append_proposal(batch, self._time.now_ms)
