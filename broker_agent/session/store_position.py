"""How the local store follows the controllers' log: where it stands, what it is doing, and when it is dropped.

*Never back in time.* What came continues exactly from the position, or the store is dropped and fetched anew: a gap, a
history that leaves the store's, a snapshot that is not ahead of it.

*One piece of work at a time.* Meanwhile the position is no longer the one to continue from, so what answers bring then is
not for the store.

*A large batch comes in parts* (`metadata_log.format.pieces`). They are kept here until the batch is whole, and only
then the store gets
it. A committed batch is the same at every controller, so the parts may come from several.

*The image by deltas is the controller's image.* The controller says now and then which digest its image has at an offset;
once the store is there it has the same one, or it is dropped.
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
from metadata_log.format.ids import Offset
from metadata_log.format.pieces import BatchPart, PartialBatch, held_at, joined

Work: TypeAlias = ApplyBatches | DownloadSnapshot | ResetStore | JoinGeneration
WorkT = TypeVar("WorkT", bound=Work)


class StorePosition:
    """One store's way along the log. Attributes without an underscore are for reading only.

    What is returned as work is to be given to the store, and `applied` or `failed` says what became of it.
    """

    def __init__(self) -> None:
        self.position = EMPTY_POSITION
        self.resets = 0
        """How often it was dropped since it was last at the end."""
        self._work: Work | None = None
        self._partial: PartialBatch | None = None
        self._expected_digest: tuple[Offset, bytes] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the store has work."""
        return self._work is not None

    @property
    def part_position(self) -> int:
        """So many bytes of the batch at `position` are held."""
        return held_at(self._partial, self.position.offset)

    def recovered(self, position: Position) -> None:
        self.position = position

    def take(self, answer: FetchAnswer, broker_epoch: int) -> Work | None:
        """What the store is to do with the answer to a fetch from `position`."""
        assert not self.is_busy
        here = self.position.offset
        match answer.result:
            case FetchResult.BATCHES if answer.part is not None:
                return self._take_part(answer, answer.part)
            case FetchResult.BATCHES if answer.batches:
                self._expect(answer)
                return self._begin(ApplyBatches(answer.batches, answer.previous_chain, answer.end_offset))
            case FetchResult.BATCHES if answer.end_offset > here:
                return self.reset(f"told that all below {answer.end_offset} was delivered; the store ends at {here}")
            case FetchResult.BATCHES:
                self.resets = 0
                self._expect(answer)
                return self.compare_digests()
            case FetchResult.USE_SNAPSHOT if answer.snapshot.offset > here:
                return self._begin(DownloadSnapshot(answer.snapshot, broker_epoch))
            case FetchResult.USE_SNAPSHOT:
                return self.reset(f"sent back to the snapshot at {answer.snapshot} from {here}")
            case FetchResult.DIVERGED:
                return self.reset(f"the controllers' history leaves the store's at {answer.diverging}")
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
        return self._begin(ApplyBatches(data, answer.previous_chain, answer.end_offset))

    def applied(self, position: Position) -> None:
        """The work is done, and the store stands at `position`."""
        self._work = None
        self.position = position

    def failed(self) -> None:
        """The work is not done; the store is as it was."""
        self._work = None

    def reset(self, reason: str) -> ResetStore:
        """The store is dropped, whatever it is doing."""
        self.resets += 1
        self._expected_digest = None
        return self._begin(ResetStore(reason))

    def join_generation(self, generation: int) -> JoinGeneration:
        """The store is dropped with the history that it belongs to."""
        self._expected_digest = None
        return self._begin(JoinGeneration(generation))

    def compare_digests(self) -> ResetStore | None:
        """Drops a store that stands where the controller's digest was taken, with another image."""
        if self._expected_digest is None or not self.position.digest:
            return None
        offset, digest = self._expected_digest
        if offset != self.position.offset:
            return None
        self._expected_digest = None
        if digest == self.position.digest:
            return None
        ours, theirs = self.position.digest.hex()[:16], digest.hex()[:16]
        return self.reset(f"the image at {offset} has digest {ours}, the controller's has {theirs}")

    def _expect(self, answer: FetchAnswer) -> None:
        self._expected_digest = (answer.digest_offset, answer.digest) if answer.digest else None

    def _begin(self, work: WorkT) -> WorkT:
        self._partial = None
        self._work = work
        return work
