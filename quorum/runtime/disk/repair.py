"""Mending a damaged log from what the other controllers hold: asking for it, and believing only what fits.

One range at a time, oldest first, from one voter at a time. What comes is kept in memory until the range is complete: only then
can it be proven (`metadata_log.store.damage`), and only then is anything written. Whoever gives something that does not fit, or
nothing, is passed over for the next voter; after a round of all of them the own disk is read once more, ever more rarely, and
this rests for a while. (The only voter has nobody to ask: after one read that had failed for a moment it would never lead again.)

    ask each voter for the batches --all there--> the log is what it was
           |
        nobody has them --own disk gives them after all-------------> the log is what it was
           |            --own snapshot covers them------------------> the log starts at it
                        --another's snapshot does: download, verify--> the log starts at it

What nobody's log reaches back to, nobody needs: a snapshot holds what is committed of it, and the log starts there from then on.
The batches themselves are better, for they are history. So a snapshot takes their place only when all others have said that
their logs start above the damage, or when round after round nobody has given anything. (Of three, one is gone for good, one
has damage, and the third's log starts above it, or ends below: without this, nobody would lead them ever again.) A node that
hears nobody is cut off, and waits.

Why a snapshot of *any* voter will do, whether it leads or not: what a snapshot holds is committed. All that this node ever
acknowledged, or voted by, lies below the snapshot's end E or above it.

  * Below E, what it helped to commit is what the snapshot holds; the rest can never be committed any more.
  * Above E the log is kept, batch by batch, if it continues the snapshot: at E it has the snapshot's chain. If E lies within
    the damage the chain is believed for now, and proven when the rest of the range has been mended, so the node goes
    on as damaged: it votes with its true end, and does not run.
  * If the log ends below E, or has a record of another epoch just below it, nothing in it from there on is of the committed
    history (log matching), so nothing of that can count for a commit, whoever has heard this node acknowledge it. The log
    begins anew at E, as after any snapshot that a leader sends.

So no promise is broken, and the node's standing (`quorum.core.protocol.disk_trust`) is what it was: it is never a lost tail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.disk.files import is_full
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog, ErrorCode, LogFormatError
from metadata_log.format.ids import NodeId, OffsetAndEpoch, ReplicaKey
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log import Log
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.runtime.disk.peer_reads import READ_BYTES_MAX
from quorum.runtime.disk.space import Space
from quorum.runtime.image.snapshotter import Snapshotter
from quorum.runtime.protocol.jobs import LoadSnapshotJob
from snapshots.reader import unreadable_is_damaged
from snapshots.store import PositionOutOfRange

READ_TIMEOUT_MS = 2_000
REST_MS = 1_000
"""Between two rounds in which nobody could help."""
REST_MAX_MS = 30_000
"""The own disk is read again ever more rarely, up to this: a range may be many megabytes, and the node's thread reads them."""
PATIENCE_ROUNDS = 5
"""After so many of them a snapshot takes the place of what somebody who does not answer may still have."""
NO_BOUNDARY = b""
"""No snapshot's chain: the log has no batch that ends there."""

Asked: TypeAlias = ReadLogRequest | ReadSnapshotRequest
Send: TypeAlias = Callable[[NodeId, Asked, int], None]


@dataclass(slots=True)
class _Substitute:
    """Another's snapshot that is to take the place of what is lost."""

    source: NodeId
    snapshot: OffsetAndEpoch
    is_whole: bool = False


class Repair:
    """The repair of this node's log, as long as there is any to do. It sends and writes; who is told is the node's business."""

    def __init__(
        self,
        log: Log,
        snapshotter: Snapshotter,
        space: Space,
        me: ReplicaKey,
        others: Callable[[], Sequence[NodeId]],
        may_load: Callable[[], bool],
        send: Send,
    ) -> None:
        """`may_load`: whether the core has no use for the one download that there can be."""
        self._log = log
        self._snapshotter = snapshotter
        self._space = space
        self._me = me
        self._others = others
        self._may_load = may_load
        self._send = send
        self._range: DamagedRange | None = None
        self._batches: list[Batch] = []
        """What is here of the range, from its start on."""
        self._asked: Asked | None = None
        self._turns = 0
        """How many voters were asked since the beginning; says who is next."""
        self._refusals = 0
        """How many in a row could not help: in this round, and"""
        self._answered = self._too_old = 0
        """of those, how many have said so, and how many hold only what lies above the range."""
        self._rounds = 0
        """How many rounds in a row were in vain."""
        self._own_due_ms, self._own_rest_ms = 0, REST_MS
        """When the own disk is read again, and how long it has peace if it gives nothing then."""
        self._offers: dict[NodeId, OffsetAndEpoch] = {}
        """Whose snapshot would cover damage, this round."""
        self._refused: set[tuple[NodeId, OffsetAndEpoch]] = set()
        """Snapshots that turned out to be of no use."""
        self._substitute: _Substitute | None = None
        self.is_loading = False
        """A snapshot that is to take the place of what is lost is being verified and read."""
        self._resume_ms = 0
        self.mended_ranges = 0

    def next_deadline_ms(self) -> int | None:
        """When to go on; None while there is nothing to mend, or an answer is awaited."""
        is_waiting = self._asked is not None or self.is_loading
        return self._resume_ms if self._log.damage and not is_waiting else None

    def fire(self, now_ms: int) -> bool:
        """Asks for what is missing next, if nobody is asked already; True if there is nobody to ask, and no need to."""
        if self._asked is not None or self.is_loading or now_ms < self._resume_ms or not self._log.damage:
            return False
        if self._range not in self._log.damage:
            self._begin(self._log.damage[0])
        if self._substitute is not None:
            if not self._substitute.is_whole:
                self._ask_for_piece(self._substitute, now_ms)
            return False
        others = self._others()
        if not others:
            self._begin_round()
            self._resume_ms = now_ms + REST_MS
            is_mended = self._help_itself(now_ms, give_up=True)
            self._resume_ms = max(self._resume_ms, self._own_due_ms)
            return is_mended
        damaged = self._range
        assert damaged is not None
        offset = self._batches[-1].end_offset if self._batches else damaged.start
        self._ask(others[self._turns % len(others)], ReadLogRequest(self._me, offset, damaged.end, READ_BYTES_MAX))
        return False

    def _begin(self, damaged: DamagedRange) -> None:
        self._range, self._batches, self._substitute = damaged, [], None
        self._rounds = 0
        self._own_due_ms, self._own_rest_ms = 0, REST_MS
        self._begin_round()

    def _begin_round(self) -> None:
        self._refusals = self._answered = self._too_old = 0
        self._offers = {}

    def _ask(self, node_id: NodeId, request: Asked) -> None:
        self._asked = request
        self._send(node_id, request, READ_TIMEOUT_MS)

    def on_failure(self, request: Asked, now_ms: int) -> bool:
        """No answer will come to `request`. True if nobody's help is needed any more."""
        if request is not self._asked:
            return False
        self._asked = None
        if isinstance(request, ReadSnapshotRequest):
            self._give_up_substitute(now_ms)
            return False
        return self._pass_over(now_ms)

    # --- batches ---------------------------------------------------------------------------------------------------

    def on_batches(self, source: NodeId, request: ReadLogRequest, response: ReadLogResponse, now_ms: int) -> bool:
        """An answer has come; True if it has mended something.

        Raises:
            FlushFailed: stop the process.
            CorruptLog: the log came upon damage that nobody knew of.
            OSError: the disk is broken. (If it is full, this rests and tries again.)
        """
        if request is not self._asked:
            return False
        self._asked = None
        damaged = self._range
        if damaged is None or damaged not in self._log.damage:
            return False
        if response.error is not ErrorCode.NONE or not self._take(response.batches, damaged):
            self._answered += 1
            self._too_old += response.log_start > damaged.start
            if response.snapshot is not None and response.snapshot.offset > damaged.start:
                self._offers[source] = response.snapshot
            return self._pass_over(now_ms)
        self._rounds = 0
        self._begin_round()
        if self._batches[-1].end_offset < damaged.end:
            return False
        batches, self._batches = self._batches, []
        try:
            return self._put_back(damaged, batches, now_ms)
        except CorruptLog:
            raise  # no fault of theirs: what stands around the range is damaged, too
        except LogFormatError:
            return self._pass_over(now_ms)

    def _put_back(self, damaged: DamagedRange, batches: Sequence[Batch], now_ms: int) -> bool:
        """Whether there was room for them.

        Raises:
            CorruptLog: there is more damage, which nobody knew of, around it.
            LogFormatError: they are not what was lost.
            OSError: the disk is broken.
        """
        try:
            self._log.repair(damaged, batches)
        except OSError as e:
            if not is_full(e):
                raise
            self._resume_ms = now_ms + REST_MS
            return False
        self._range = None
        self.mended_ranges += 1
        return True

    def _take(self, batches: Sequence[Batch], damaged: DamagedRange) -> bool:
        """Keeps what continues the history before the range; False if something does not, or there is nothing."""
        end, chain = damaged.start, damaged.chain_before
        if self._batches:
            end, chain = self._batches[-1].end_offset, self._batches[-1].chain
        for batch in batches:
            if batch.base_offset != end or batch.end_offset > damaged.end or not verify_chain(batch, chain):
                self._batches = []
                return False
            end, chain = batch.end_offset, batch.chain
        self._batches += batches
        return bool(batches)

    def _pass_over(self, now_ms: int) -> bool:
        """Somebody could not help: the next one is asked; after a round, later. True if nobody's help is needed any more."""
        self._turns += 1
        self._refusals += 1
        if self._refusals < len(self._others()):
            return False
        self._resume_ms = now_ms + REST_MS
        self._rounds += 1
        nobody_has_it = self._too_old == self._refusals
        give_up = nobody_has_it or (self._answered > 0 and self._rounds >= PATIENCE_ROUNDS)
        try:
            return self._help_itself(now_ms, give_up=give_up)
        finally:
            self._begin_round()

    def _help_itself(self, now_ms: int, *, give_up: bool) -> bool:
        """Nobody gives the batches: the own disk may, after all. If not, and they are given up, a snapshot takes their place."""
        damaged = self._range
        if damaged is None or damaged not in self._log.damage:
            return False  # cut off, mended, or below the log's start by now
        if now_ms >= self._own_due_ms:
            try:
                # (If there is no room for it, it is here all the same, and is not given up.)
                return self._put_back(damaged, self._log.read_again(damaged), now_ms)
            except CorruptLog:
                raise
            except LogFormatError:
                self._own_due_ms = now_ms + self._own_rest_ms
                self._own_rest_ms = min(2 * self._own_rest_ms, REST_MAX_MS)
        if not give_up:
            return False
        if self._stand_on_own(damaged, now_ms):
            return True
        self._choose_substitute(now_ms)
        return False

    # --- snapshots -------------------------------------------------------------------------------------------------

    def _stand_on_own(self, damaged: DamagedRange, now_ms: int) -> bool:
        """The log starts at this node's own newest snapshot from now on, if that covers what is lost, or some of it."""
        snapshot = self._log.shape.snapshot
        if snapshot is None or snapshot.offset <= damaged.start:
            return False
        try:
            with unreadable_is_damaged():
                meta = self._snapshotter.store.read_meta(snapshot)
        except (LogFormatError, FileNotFoundError):
            return False
        if not self.fits(snapshot, meta.chain):
            return False
        self._space.write_at_any_price(
            lambda: self._log.start_at_snapshot(snapshot, meta.chain, meta.timestamp_ms), now_ms
        )
        return True

    def fits(self, snapshot: OffsetAndEpoch, chain: bytes) -> bool:
        """Whether the log may start at `snapshot`: nobody knows that their histories differ.

        Raises:
            CorruptLog: the log came upon damage that nobody knew of.
        """
        return self._expected_chain(snapshot) in (None, chain)

    def _expected_chain(self, snapshot: OffsetAndEpoch) -> bytes | None:
        """The chain that the log has at the snapshot's end; None where it does not say."""
        log = self._log
        if log.contradicts(snapshot) or log.is_within_damage(snapshot.offset):
            return None
        return log.chain_at(snapshot.offset) or NO_BOUNDARY

    def _choose_substitute(self, now_ms: int) -> None:
        """The newest one that is offered."""
        offers = {offer for offer in self._offers.items() if offer not in self._refused}
        if not offers:
            self._refused.clear()
            return
        source, snapshot = max(offers, key=lambda offer: (offer[1], offer[0]))
        self._substitute = _Substitute(source, snapshot)
        self._resume_ms = now_ms

    def _ask_for_piece(self, substitute: _Substitute, now_ms: int) -> None:
        if not self._may_load() or self._snapshotter.is_busy:
            self._give_up_substitute(now_ms)
            return
        snapshot = substitute.snapshot
        position = self._snapshotter.store.part_bytes(snapshot)
        self._ask(substitute.source, ReadSnapshotRequest(self._me, snapshot, position, READ_BYTES_MAX))

    def _give_up_substitute(self, now_ms: int) -> None:
        self._substitute = None
        self._resume_ms = now_ms + REST_MS

    def on_piece(self, request: ReadSnapshotRequest, response: ReadSnapshotResponse, now_ms: int) -> None:
        """A piece of a snapshot has come. The last one is followed by `next_job`.

        Raises:
            OSError: the disk is broken. (If it is full, this rests and tries again.)
        """
        if request is not self._asked:
            return
        self._asked = None
        substitute, store = self._substitute, self._snapshotter.store
        if substitute is None:
            return
        snapshot, end = substitute.snapshot, request.position + len(response.data)
        same_place = response.position == request.position and 0 < end <= response.size
        is_piece = response.error is ErrorCode.NONE and same_place and (response.data or end == response.size)
        if not is_piece or not self._may_load() or self._snapshotter.is_busy:
            self._give_up_substitute(now_ms)
            return
        try:
            if response.data:
                store.write_part(snapshot, request.position, response.data)
        except PositionOutOfRange:
            self._give_up_substitute(now_ms)  # another download has taken its place meanwhile
            return
        except OSError as e:
            if not is_full(e):
                raise
            store.drop_part(snapshot.offset)
            self._give_up_substitute(now_ms)
            return
        substitute.is_whole = end == response.size

    def next_job(self, now_ms: int) -> LoadSnapshotJob | None:
        """What is to be run next: the download is whole.

        Raises:
            CorruptLog: the log came upon damage that nobody knew of.
        """
        substitute = self._substitute
        if substitute is None or not substitute.is_whole or self.is_loading:
            return None
        if not self._may_load() or self._snapshotter.is_busy:
            self._give_up_substitute(now_ms)
            return None
        expected = self._expected_chain(substitute.snapshot)
        self.is_loading = True
        return self._snapshotter.mending_job(substitute.snapshot, expected)

    def load_over(self, error: Exception | None, now_ms: int) -> None:
        """The job is done, or has failed with `error`: then the next one who offers a snapshot is asked."""
        self.is_loading = False
        self._snapshotter.mending_over()
        substitute = self._substitute
        if substitute is not None and error is not None:
            self._refused.add((substitute.source, substitute.snapshot))
        self._give_up_substitute(now_ms)
