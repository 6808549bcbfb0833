"""The image at an offset or a time: the newest snapshot at or below, then the batches of log and archive, replayed.

    snapshot at 1,000          batches [1,000 ... 1,244)          batches above, up to the next snapshot mark
    loaded, packed             replayed                           only searched for skips

A read at N is the replay of [0, N), cut to whole batches, as each node replays it. Example, with snapshots at 1,000 and 2,000:
  1. A client asks for offset 1,246. The batches end at 1,200, 1,244 and 1,250: the image is the one at 1,244.
  2. The batch [1,200, 1,244) is skipped by a `SkippedBatch` record at 1,300. The search above 1,244 finds the record, and replay
     drops the batch. The search ends at the first snapshot mark: the leader refuses a skip if a mark follows the batch.
  3. A metadata transaction is open from 1,210 to 1,260: the image is the one before the transaction.
  4. A client asks for 500, and the archive has lost the segments below 1,000: `OutOfReach` names 1,000.

The files may belong to a node that runs. `committed_end` says how far its records are committed *and* durable on this node;
nothing above is read as history. The node may delete files meanwhile: the work begins anew with the files that are there, and is
given up after a few times. A caller gets a whole image or an error.

The work comes in *steps* of a few milliseconds, so a thread beside an event loop can rest between them. The memory is one image,
and one batch.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, BatchHead
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import SkippedBatch, SnapshotMark
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.replay import Replay, ReplayStopped
from metadata_log.store.log_notes import read_flushed
from snapshots.format import BOOTSTRAP_END, parse_name
from snapshots.history.log_files import HOPS_PER_STEP, FilesChanged, LogFiles, Spot
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Reach, Shown, Wanted
from snapshots.loader import load_in_steps
from snapshots.reader import read_meta, unreadable_is_damaged

T = TypeVar("T")
Steps = Generator[None, None, T]

ATTEMPTS_MAX: Final = 5
"""Maximum number of times that the work begins anew because files were deleted meanwhile."""
APPLY_BYTES: Final = 16 << 10
"""How many bytes of batches one step replays, or one batch."""
NOWHERE: Final = Shown(EMPTY_IMAGE, 0, 0, None, None, None, 0, is_settled=True)
"""The image before the first record."""


_Base: TypeAlias = Shown | OffsetAndEpoch
"""An image that was shown before, or the end of a snapshot."""
_RESTLESS: Final = f"the files changed {ATTEMPTS_MAX} times meanwhile. Nothing was read; ask again"


class Change(NamedTuple):
    """One batch of the past, and the images before and after it: the same image inside of a transaction."""

    batch: Batch
    before: MetadataImage
    after: MetadataImage


class _Found(NamedTuple):
    """The part of the log between a base and the wanted position."""

    start: Spot | None
    """The place of the base in the log; None if no batch is to be replayed."""
    end: Offset
    following: BatchHead | None
    """The next batch behind `end`, if any was seen."""
    skips: tuple[SkippedBatch, ...]
    seen_end: Offset
    is_settled: bool


class Past:
    """The history in one `@metadata` directory, of a controller or a broker. Changes nothing. Use on one thread at a time."""

    def __init__(self, metadata: Directory) -> None:
        self._metadata = metadata

    def durable_end(self) -> Offset:
        """Return how far the log was durable, by its own note: the committed end for readers that know no better.

        A controller may have durable records that were never committed; a broker has committed records only.
        """
        noted = read_flushed(self._metadata)
        snapshots = [end.offset for end in self._snapshots()]
        return max([0 if noted is None else noted.end, *snapshots])

    def shown(self, wanted: Wanted, committed_end: Offset, known: Sequence[Shown] = ()) -> Shown:
        """Return the image at `wanted`, in one go. See `steps`."""
        return finished(self.steps(wanted, committed_end, known))

    def steps(self, wanted: Wanted, committed_end: Offset, known: Sequence[Shown] = ()) -> Steps[Shown]:
        """Make the image at `wanted`, in steps. `known` are images that were shown before, from which replay may go on.

        Raises:
            OutOfReach: above the committed records, or below everything that these files reach.
            HistoryDamaged: a necessary file is damaged, or the files changed all the time.
            ReplayStopped: this release cannot replay a batch below the position.
        """
        if wanted.offset is not None and wanted.offset > committed_end:
            raise OutOfReach.above(wanted, committed_end)
        trouble: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                shown = yield from self._attempt(wanted, committed_end, known)
            except (FilesChanged, FileNotFoundError) as e:
                trouble = e
                continue
            except (HistoryDamaged, ReplayStopped):
                raise
            except LogFormatError as e:
                raise HistoryDamaged(f"{e}. Nothing was read; ask another node") from e
            if shown is None:
                raise OutOfReach.below(wanted, (yield from self.reach(committed_end)))
            return shown
        raise HistoryDamaged(f"{trouble}; {_RESTLESS}")

    def reach(self, committed_end: Offset) -> Steps[Reach]:
        """Find the part of the history that can be shown, in steps. Raises HistoryDamaged."""
        trouble: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                files = LogFiles(self._metadata)
                lowest = yield from files.lowest_before(committed_end)
                if lowest == 0 and files.bases:
                    return Reach(0, 0, committed_end)
                for end in self._snapshots():
                    if lowest <= end.offset <= committed_end:
                        return Reach(end.offset, self._time_of(end) or 0, committed_end)
                return Reach(committed_end, 0, committed_end)
            except (FilesChanged, FileNotFoundError) as e:
                trouble = e
            except LogFormatError as e:
                raise HistoryDamaged(str(e)) from e
        raise HistoryDamaged(f"{trouble}; {_RESTLESS}")

    def changes(self, since: Offset, committed_end: Offset) -> Iterator[Change]:
        """Replay the batches from `since` (or from the batch or transaction that holds it) up to the end, each with the images
        around it.

        Raises:
            OutOfReach, HistoryDamaged, ReplayStopped: as `steps`. HistoryDamaged also if `since` lies between a skipped batch and
                its skip, or if a file goes away meanwhile.
        """
        base = self.shown(Wanted(offset=since), committed_end)
        if not base.is_base:
            base = self.shown(Wanted(offset=base.image.offset), committed_end)
        yield from (each for each in self.changes_from(base, committed_end) if each is not None)

    def changes_from(self, base: Shown, committed_end: Offset) -> Iterator[Change | None]:
        """Replay the batches from an image on, as `changes`; None stands for a step without a batch. `base.is_base` holds.

        Raises:
            HistoryDamaged, ReplayStopped: as `changes`.
        """
        assert base.is_base, "a transaction is replayed from its beginning"
        try:
            files = LogFiles(self._metadata)
            found = yield from _search(files, base, Wanted(offset=committed_end), committed_end)
            if found is None:
                raise HistoryDamaged(f"no history leads from {base.end} to {committed_end}; begin at another offset")
            if found.start is None or found.end <= base.end:
                return
            replay = Replay(base.image)
            replay.learn(found.skips)
            for batch in files.batches(found.start, base.chain or files.chain_at(found.start) or b"", found.end):
                before = replay.image
                replay.apply([batch])
                yield Change(batch, before, replay.image)
        except (HistoryDamaged, ReplayStopped):
            raise
        except (FilesChanged, FileNotFoundError, LogFormatError) as e:
            raise HistoryDamaged(str(e)) from e

    def _snapshots(self) -> list[OffsetAndEpoch]:
        """Return the ends of all snapshots, oldest first."""
        parsed = [each for each in map(parse_name, self._metadata.names()) if each is not None]
        return sorted(end for end, is_part in parsed if not is_part and end != BOOTSTRAP_END)

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _attempt(self, wanted: Wanted, committed_end: Offset, known: Sequence[Shown]) -> Steps[Shown | None]:
        """Try the bases from the newest one down. Return None if no base leads to the position."""
        files = LogFiles(self._metadata)
        trouble: LogFormatError | None = None
        for base in self._bases(wanted, known):
            found = yield from _search(files, base, wanted, committed_end)
            if found is None:
                continue
            if isinstance(base, OffsetAndEpoch):
                try:
                    base = yield from self._loaded(base)
                except LogFormatError as e:
                    trouble = e
                    continue
            return (yield from _replayed(files, base, found))
        if trouble is not None:
            raise HistoryDamaged(f"{trouble}; no older snapshot leads to {wanted}. Nothing was read") from trouble
        return None

    def _bases(self, wanted: Wanted, known: Sequence[Shown]) -> list[_Base]:
        """Return the images and snapshots at or below the position, newest first. An image comes before a snapshot."""
        bases: list[_Base] = [each for each in known if each.is_base and wanted.reaches(each.end, each.timestamp_ms)]
        for end in self._snapshots():
            at_ms = 0 if wanted.time_ms is None else self._time_of(end)
            if at_ms is not None and wanted.reaches(end.offset, at_ms):
                bases.append(end)
        bases.sort(key=lambda base: (_end_of(base), isinstance(base, Shown)), reverse=True)
        return [*bases, NOWHERE]

    def _time_of(self, end: OffsetAndEpoch) -> int | None:
        """Return the time of a snapshot; None if the snapshot is damaged."""
        try:
            with unreadable_is_damaged():
                return read_meta(self._metadata, end).timestamp_ms
        except LogFormatError:
            return None

    def _loaded(self, end: OffsetAndEpoch) -> Steps[Shown]:
        with unreadable_is_damaged():
            meta, image = yield from load_in_steps(self._metadata, end)
        return Shown(image, end.offset, meta.timestamp_ms, meta.chain, None, None, end.offset, is_settled=True)


def finished(steps: Steps[T]) -> T:
    """Take all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as e:
            result: T = e.value
            return result


def _end_of(base: _Base) -> Offset:
    return base.end if isinstance(base, Shown) else base.offset


def _search(files: LogFiles, base: _Base, wanted: Wanted, committed_end: Offset) -> Steps[_Found | None]:
    """Hop from `base` to the wanted position, and on to the first snapshot mark: for the end, and for skips.

    Returns None if the segments do not lead from `base` to the position, or if `base` lies between a skipped batch and its skip:
    replay from there would take the batch for an applied one.
    """
    yield
    at = _end_of(base)
    is_settled = isinstance(base, OffsetAndEpoch) or base.is_settled
    alone = _Found(None, at, None, (), at, is_settled=True) if wanted.offset == at and is_settled else None
    start = alone or files.start_of(at)
    if start is None or isinstance(start, _Found):
        return alone
    end, seen, is_settled = at, at, False
    following: BatchHead | None = None
    skips: list[SkippedBatch] = []
    for count, (spot, head) in enumerate(files.heads(start, committed_end), 1):
        if count % HOPS_PER_STEP == 0:
            yield
        if following is None and wanted.takes(head):
            end = head.end_offset
        elif following is None:
            following = head
        seen = head.end_offset
        records = decode_batch(files.batch_at(spot)) if head.is_control else []
        skips += [each for each in records if isinstance(each, SkippedBatch)]
        if following is not None and any(isinstance(each, SnapshotMark) for each in records):
            is_settled = True
            break
    is_whole = is_settled or seen == committed_end
    if not is_whole or any(each.dropped_start < at for each in skips):
        return None
    return _Found(start, end, following, tuple(skips), seen, is_settled)


def _replayed(files: LogFiles, base: Shown, found: _Found) -> Steps[Shown]:
    """Replay the batches from `base` to the found end."""
    chain, replay, timestamp_ms = base.chain, Replay(base.image), base.timestamp_ms
    if found.start is not None and found.end > base.end:
        if chain is None:
            chain = files.chain_at(found.start)
        assert chain is not None, "only the beginning of a log has no known chain"
        replay.learn(found.skips)
        for batches in _portions(files, found.start, chain, found.end):
            replay.apply(batches)
            chain, timestamp_ms = batches[-1].chain, batches[-1].last_timestamp_ms
            yield
    image = replay.image
    image.topic_ids.sorted_keys()  # readers on an event loop list topics by name
    after = found.following
    next_end, next_time_ms = (None, None) if after is None else (after.end_offset, after.last_timestamp_ms)
    return Shown(image, found.end, timestamp_ms, chain, next_end, next_time_ms, found.seen_end, found.is_settled)


def _portions(files: LogFiles, start: Spot, chain: bytes, until: Offset) -> Iterator[list[Batch]]:
    """Read the batches in portions of APPLY_BYTES, or one batch."""
    portion: list[Batch] = []
    for batch in files.batches(start, chain, until):
        if portion and sum(len(each.data) for each in portion) + len(batch.data) > APPLY_BYTES:
            yield portion
            portion = []
        portion.append(batch)
    if portion:
        yield portion
