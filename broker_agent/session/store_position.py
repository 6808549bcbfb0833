"""The position of the local store in the controllers' log, the store's current work, and when the store is dropped.

*The store never goes back in time.* New batches continue exactly at the position. The store is dropped and fetched anew if an
answer shows a gap, a history that diverges from the store's, or a snapshot that is not ahead of the store.

*The store does one piece of work at a time.* While the store works, its position is about to change, so the store does not
take the batches of a fetch answer.

*A large batch arrives in parts* (`metadata_log.format.fetch_size`). The parts are kept here, and the store gets the
whole batch. A committed batch is the same at every controller, so the parts may come from several controllers.

*The broker's image equals the controller's image.* Now and then a fetch answer carries the digest of the controller's image at an
offset. If the broker's image has another digest at that offset, the store is dropped. For example:

    1. An answer says: digest 7a3f at offset 120. The store is at offset 110.
    2. The store applies batches up to 120. Its image there has the digest 7a3f: nothing happens.
    3. With another digest, some earlier record was applied wrongly: the broker drops the store and fetches a snapshot.
"""

from typing import TypeAlias, TypeVar, assert_never

from broker_agent.session.lifecycle import (
    EMPTY_POSITION,
    ApplyBatches,
    DownloadSnapshot,
    FetchAnswer,
    FetchResult,
    JoinGeneration,
    Position,
    ResetStore,
)
from metadata_log.format.fetch_size import BatchPart, PartialBatch, held_at, joined
from metadata_log.format.ids import Offset

Work: TypeAlias = ApplyBatches | DownloadSnapshot | ResetStore | JoinGeneration
WorkT = TypeVar("WorkT", bound=Work)


class StorePosition:
    """One store's position and work. Attributes without an underscore are for reading only.

    The caller gives returned work to the store, and calls `applied` or `failed` with the outcome.
    """

    def __init__(self) -> None:
        self.position = EMPTY_POSITION
        self.resets = 0
        """How many times the store was dropped since it last reached the end of the log."""
        self._work: Work | None = None
        self._partial: PartialBatch | None = None
        self._expected_digest: tuple[Offset, bytes] | None = None

    @property
    def is_busy(self) -> bool:
        """True while the store has work that is not done."""
        return self._work is not None

    @property
    def part_position(self) -> int:
        """How many bytes of the batch at `position` are held in parts."""
        return held_at(self._partial, self.position.offset)

    def recovered(self, position: Position) -> None:
        self.position = position

    def take(self, answer: FetchAnswer, broker_epoch: int) -> Work | None:
        """Returns the store's next work after the answer to a fetch from `position`."""
        assert not self.is_busy
        here = self.position.offset
        match answer.result:
            case FetchResult.BATCHES if answer.part is not None:
                return self._take_part(answer, answer.part)
            case FetchResult.BATCHES if answer.batches:
                self._expect(answer)
                return self._begin(ApplyBatches(answer.batches, answer.previous_chain, answer.end_offset, answer.skips))
            case FetchResult.BATCHES if answer.end_offset > here:
                return self.reset(
                    f"the controller has delivered everything below {answer.end_offset}; the store ends at {here}"
                )
            case FetchResult.BATCHES:
                self.resets = 0
                self._expect(answer)
                return self.compare_digests()
            case FetchResult.USE_SNAPSHOT if answer.snapshot.offset > here:
                return self._begin(DownloadSnapshot(answer.snapshot, broker_epoch))
            case FetchResult.USE_SNAPSHOT:
                return self.reset(
                    f"the controller offers the snapshot at {answer.snapshot}, which is not ahead of {here}"
                )
            case FetchResult.DIVERGED:
                return self.reset(f"the controllers' history diverges from the store's at {answer.diverging}")
            case FetchResult.NOT_READY:
                raise AssertionError("an answer without contents")
            case _:
                assert_never(answer.result)

    def _take_part(self, answer: FetchAnswer, part: BatchPart) -> Work | None:
        self._partial = joined(self._partial, self.position.offset, part)
        if self._partial is None or not self._partial.is_whole:
            return None
        self._expect(answer)
        data, self._partial = self._partial.data, None
        return self._begin(ApplyBatches(data, answer.previous_chain, answer.end_offset, answer.skips))

    def applied(self, position: Position) -> None:
        """Notes that the work is done and that the store is at `position`."""
        self._work = None
        self.position = position

    def failed(self) -> None:
        """Notes that the work has failed; the store is unchanged."""
        self._work = None

    def reset(self, reason: str) -> ResetStore:
        """Drops the store, even while it works."""
        self.resets += 1
        self._expected_digest = None
        return self._begin(ResetStore(reason))

    def join_generation(self, generation: int) -> JoinGeneration:
        """Drops the store, because it belongs to an earlier generation of the cluster."""
        self._expected_digest = None
        return self._begin(JoinGeneration(generation))

    def compare_digests(self) -> ResetStore | None:
        """Drops a store that is at the offset of the controller's digest and has another image."""
        if self._expected_digest is None or not self.position.digest:
            return None
        offset, digest = self._expected_digest
        if offset != self.position.offset:
            return None
        self._expected_digest = None
        if digest == self.position.digest:
            return None
        ours, theirs = self.position.digest.hex()[:16], digest.hex()[:16]
        return self.reset(f"the image at offset {offset} has digest {ours}; the controller's has {theirs}")

    def _expect(self, answer: FetchAnswer) -> None:
        self._expected_digest = (answer.digest_offset, answer.digest) if answer.digest else None

    def _begin(self, work: WorkT) -> WorkT:
        self._partial = None
        self._work = work
        return work
