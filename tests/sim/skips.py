"""The poison batches of a history: the dropped batches, and the images that may differ meanwhile.

The history never has the effect of a poison batch. A node may have the effect, from the batch on up to the record that skips the
batch. From there on every image equals the history's again (C9).
"""

import re
from dataclasses import dataclass

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import MetadataRecord, SkippedBatch
from metadata_log.image.digest import MODULUS, digest_to_bytes, record_hash

LAW = "C9 SkipDropsTheBatch"
_STOPPED = re.compile(r"replay stopped at offset (\d+)")


@dataclass(slots=True)
class _Poison:
    batch: Batch
    effect: MetadataRecord
    is_committed: bool = False
    is_lost: bool = False
    skipped_at: Offset | None = None
    skipped_ms: float | None = None


class Skips:
    """The poison batches of one run."""

    def __init__(self) -> None:
        self._poisons: list[_Poison] = []
        self.images_anew = 0
        """How many images were made anew, because they had the effect of a skipped batch."""

    # --- the bug and the operator ----------------------------------------------------------------------------------

    def poisoned(self, batch: Batch, effect: MetadataRecord) -> None:
        """A controller is about to append the batch, and to take it for `effect`."""
        self._poisons.append(_Poison(batch, effect))

    @property
    def is_waiting(self) -> bool:
        """True if a poison batch may be in a log and is not skipped."""
        return any(each.skipped_at is None and not each.is_lost for each in self._poisons)

    def is_poison(self, batch: Batch) -> bool:
        return any(each.batch.chain == batch.chain for each in self._poisons)

    def stops(self, reason: str, since_ms: float = 0.0) -> bool:
        """True if `reason` says that replay has stopped inside a poison batch that was not skipped before `since_ms`."""
        found = _STOPPED.search(reason)
        offset = -1 if found is None else int(found[1])
        return any(
            each.batch.base_offset <= offset < each.batch.end_offset
            and (each.skipped_ms is None or each.skipped_ms >= since_ms)
            for each in self._poisons
        )

    def look_at_clock(self, now_ms: float) -> None:
        """Notes when a skip was committed; called often."""
        for each in self._poisons:
            if each.skipped_at is not None and each.skipped_ms is None:
                each.skipped_ms = now_ms

    # --- the history -----------------------------------------------------------------------------------------------

    def committed(self, batch: Batch, records: tuple[object, ...]) -> None:
        """Takes a committed batch, and checks the skips among its records."""
        for each in self._poisons:
            if each.batch.base_offset < batch.end_offset and not each.is_committed:
                each.is_committed = each.batch.chain == batch.chain
                each.is_lost = not each.is_committed
        for at, record in enumerate(records, batch.base_offset):
            if isinstance(record, SkippedBatch):
                self._skipped(at, record)

    def _skipped(self, at: Offset, skip: SkippedBatch) -> None:
        from tests.sim.laws.broken import LawBroken, hold  # the laws import the history, and the history this file

        for each in self._poisons:
            if each.batch.chain == skip.chain:
                batch = each.batch
                right = (batch.base_offset, batch.epoch, batch.chain, batch.base_offset, batch.end_offset)
                hold(tuple(skip) == right, LAW, f"the skip at {at} is {skip}; the poison is {batch}")
                hold(each.skipped_at is None, LAW, f"{batch.base_offset} is skipped at {each.skipped_at} and at {at}")
                each.skipped_at = at
                return
        raise LawBroken(LAW, f"the skip at {at} names a batch that is no poison: {skip}")

    # --- the laws --------------------------------------------------------------------------------------------------

    def may_stand_at(self, batch: Batch, committed_here: Offset) -> bool:
        """True if a node that knows `committed_here` as committed may stand in front of the batch."""
        for each in self._poisons:
            if each.batch.chain == batch.chain:
                return each.skipped_at is None or each.skipped_at >= committed_here
        return False

    def agrees(self, right: bytes | None, offset: Offset, digest: bytes) -> bool:
        """True if an image at `offset` may have `digest`. `right` is the digest of the history's image there.

        Up to the record that skips a batch, an image may have the effect of the batch. While no such record is committed, an
        image behind the batch must have the effect.
        """
        for each in self._poisons:
            is_behind = each.is_committed and each.batch.base_offset < offset
            if is_behind and right is not None and (each.skipped_at is None or offset <= each.skipped_at):
                number = int.from_bytes(right, "big") + record_hash(each.effect)
                has_effect = digest == digest_to_bytes(number % MODULUS)
                return has_effect or (each.skipped_at is not None and digest == right)
        return right == digest

    def may_go_back(self, before: Offset, to: Offset) -> bool:
        """True if an image may be made anew: it was behind a batch and in front of its skip.

        The new image begins before the batch, and the same event may apply a part of the log to it, up to `to`.
        """
        is_anew = any(
            each.skipped_at is not None and each.batch.base_offset < before <= each.skipped_at and to < before
            for each in self._poisons
        )
        self.images_anew += is_anew
        return is_anew
