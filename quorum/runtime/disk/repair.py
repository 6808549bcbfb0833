"""Repairs a damaged log with batches or a snapshot of other controllers, and takes only data that fits the log.

The repair works on one damaged range at a time, the oldest first, and asks one voter at a time. The batches stay in memory until
the range is complete: only then can the chain prove them (`metadata_log.store.damage`), and only then are they written.

    ask each voter for the batches --all received---> the log is whole again
           |
        no voter has them --own disk reads the range after all-----> the log is whole again
           |              --own snapshot covers the range----------> the log starts at this snapshot
                          --a voter's snapshot does: download it --> the log starts at this snapshot

Example: node 1 of {1, 2, 3} has a damaged range [40, 45).
    1. node 1 asks voter 2 for [40, 45); voter 2 does not answer;
    2. node 1 asks voter 3, and receives the batch [40, 45): its chain fits to the batches before and after the range;
    3. node 1 writes the range anew, and tells the core `LogRepaired`.

A voter whose batches do not fit, or that sends none, is passed over. After a round of all voters the node reads its own disk once
more, at growing intervals, and rests for a while. A lone voter has no voter to ask, so it reads its own disk only: otherwise a
lone voter would never lead again after a read that failed for a moment.

*Batches are better than a snapshot*, because batches keep the history. A snapshot takes the place of the range only
    (a) when all other voters have reported that their logs start above the start of the range, so their snapshots cover it;
    (b) or after PATIENCE_ROUNDS rounds in which no voter had the batches, but at least one voter answered.
Counter-example without (b): voter 1 of {1, 2, 3} is gone for good, node 2 has damage, and the log of 3 ends below the range. No
voter could lead, for ever. A node that receives no answer at all is cut off, and waits.

*Any voter's snapshot may be used, leader or not*, because a snapshot holds only committed records. Say the snapshot ends at E.
The promises of the node, its acknowledgements and votes, stay true:
    * Below E: records that the node helped to commit are in the snapshot. Other records can never be committed any more.
    * Above E, if the log has the snapshot's chain at E: the log continues the snapshot, and keeps all batches above E. If E lies
      inside of the damage, the node believes the chain for now, and proves it when the rest of the range has been repaired. Until
      then the node counts as damaged: it votes with its true end, and does not campaign.
    * If the log ends below E, or has a record of another epoch just below E: no record of the log from there on belongs to the
      committed history (log matching), so no acknowledgement of them counts. The log begins anew at E, as after a snapshot of
      the leader.

So the disk trust of the node (`quorum.core.protocol.disk_trust`) does not change: a repaired range is never a lost end.
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
"""How long the repair waits for an answer."""
REST_MS = 1_000
"""How long the repair rests after a round of all voters in vain."""
PATIENCE_ROUNDS = 5
"""How many rounds in vain must pass before a snapshot takes the place of batches that a silent voter may still have."""
NO_BOUNDARY = b""
"""The expected chain at an offset where no batch of the log ends. No snapshot has this chain."""

Asked: TypeAlias = ReadLogRequest | ReadSnapshotRequest
Send: TypeAlias = Callable[[NodeId, Asked, int], None]


@dataclass(slots=True)
class _Substitute:
    """Another voter's snapshot, which is about to take the place of the damaged range."""

    source: NodeId
    snapshot: OffsetAndEpoch
    is_whole: bool = False


class Repair:
    """Repairs one node's log while the log has damage. The caller tells the core about a repaired log."""

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
        """`may_load` says if the repair may download a snapshot: a node has one download at a time, and the core comes first."""
        self._log = log
        self._snapshotter = snapshotter
        self._space = space
        self._me = me
        self._others = others
        self._may_load = may_load
        self._send = send
        self._range: DamagedRange | None = None
        self._batches: list[Batch] = []
        """The received batches of the range, from its start on."""
        self._asked: Asked | None = None
        self._turns = 0
        """How many voters were passed over since the process started; selects the next voter."""
        self._refusals = 0
        """How many voters of this round did not supply batches."""
        self._answered = self._too_old = 0
        """Of these voters, how many answered at all; and how many have a log that starts above the start of the range."""
        self._rounds = 0
        """How many rounds in a row were in vain."""
        self._offers: dict[NodeId, OffsetAndEpoch] = {}
        """The snapshots that would cover damage, by the voter that has offered the snapshot in this round."""
        self._refused: set[tuple[NodeId, OffsetAndEpoch]] = set()
        """Offered snapshots that could not be used."""
        self._substitute: _Substitute | None = None
        self.is_loading = False
        """True while a job verifies and loads the snapshot that is to take the place of the range."""
        self._resume_ms = 0
        self.mended_ranges = 0

    def next_deadline_ms(self) -> int | None:
        """The time of the next step; None without damage, or while the repair waits for an answer or a job."""
        is_waiting = self._asked is not None or self.is_loading
        return self._resume_ms if self._log.damage and not is_waiting else None

    def fire(self, now_ms: int) -> bool:
        """Sends the next request, unless a request is under way or the repair rests.

        True if the node has repaired the log from its own disk. Only a node without other voters tries that at once.
        """
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
            return self._give_up(now_ms)
        damaged = self._range
        assert damaged is not None
        offset = self._batches[-1].end_offset if self._batches else damaged.start
        self._ask(others[self._turns % len(others)], ReadLogRequest(self._me, offset, damaged.end, READ_BYTES_MAX))
        return False

    def _begin(self, damaged: DamagedRange) -> None:
        self._range, self._batches, self._substitute = damaged, [], None
        self._rounds = 0
        self._begin_round()

    def _begin_round(self) -> None:
        self._refusals = self._answered = self._too_old = 0
        self._offers = {}

    def _ask(self, node_id: NodeId, request: Asked) -> None:
        self._asked = request
        self._send(node_id, request, READ_TIMEOUT_MS)

    def on_failure(self, request: Asked, now_ms: int) -> bool:
        """Takes the failure of `request`. True if the log has been repaired from the node's own disk."""
        if request is not self._asked:
            return False
        self._asked = None
        if isinstance(request, ReadSnapshotRequest):
            self._give_up_substitute(now_ms)
            return False
        return self._pass_over(now_ms)

    # --- batches ---------------------------------------------------------------------------------------------------

    def on_batches(self, source: NodeId, request: ReadLogRequest, response: ReadLogResponse, now_ms: int) -> bool:
        """Takes an answer; True if the log has been repaired.

        Raises:
            FlushFailed: the process must stop.
            CorruptLog: the log has further damage, which was not known before.
            OSError: the disk is broken. On a full disk the repair rests and tries again.
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
            raise  # the batches are right, but the log around the range is damaged, too
        except LogFormatError:
            return self._pass_over(now_ms)

    def _put_back(self, damaged: DamagedRange, batches: Sequence[Batch], now_ms: int) -> bool:
        """Writes the batches of the range; False if the disk has no room.

        Raises:
            CorruptLog: the log around the range has further damage, which was not known before.
            LogFormatError: the batches are not the lost batches.
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
        """Keeps batches that continue the history before the range; False if a batch does not, or without a batch."""
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
        """Goes on to the next voter, after a voter could not help. After a round of all voters the node tries its own disk.

        True if the log has been repaired from the node's own disk.
        """
        self._turns += 1
        self._refusals += 1
        if self._refusals < len(self._others()):
            return False
        self._resume_ms = now_ms + REST_MS
        self._rounds += 1
        nobody_has_it = self._too_old == self._refusals
        give_up = nobody_has_it or (self._answered > 0 and self._rounds >= PATIENCE_ROUNDS)
        is_changed = give_up and self._give_up(now_ms)
        self._begin_round()
        return is_changed

    def _give_up(self, now_ms: int) -> bool:
        """Lets a snapshot take the place of the range; True if the log has changed."""
        damaged = self._range
        if damaged is None or damaged not in self._log.damage:
            return False  # meanwhile the range was cut off, repaired, or is below the log's start
        if self._stand_on_own(damaged, now_ms):
            return True
        self._choose_substitute(now_ms)
        return False

    # --- snapshots -------------------------------------------------------------------------------------------------

    def _stand_on_own(self, damaged: DamagedRange, now_ms: int) -> bool:
        """Lets the log start at the node's own newest snapshot, if the snapshot covers the range or its beginning."""
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
        """True if the log may start at `snapshot`: their histories are not known to differ.

        Raises:
            CorruptLog: the log has further damage, which was not known before.
        """
        return self._expected_chain(snapshot) in (None, chain)

    def _expected_chain(self, snapshot: OffsetAndEpoch) -> bytes | None:
        """The log's chain at the snapshot's end; None if unknown, or if the snapshot replaces the log there."""
        log = self._log
        if log.contradicts(snapshot) or log.is_within_damage(snapshot.offset):
            return None
        return log.chain_at(snapshot.offset) or NO_BOUNDARY

    def _choose_substitute(self, now_ms: int) -> None:
        """Chooses the newest of the offered snapshots for the download."""
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
        """Takes a piece of a snapshot. After the last piece, `next_job` returns the job that loads the snapshot.

        Raises:
            OSError: the disk is broken. On a full disk the repair rests and tries again.
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
            self._give_up_substitute(now_ms)  # another download has replaced this download meanwhile
            return
        except OSError as e:
            if not is_full(e):
                raise
            store.drop_part(snapshot.offset)
            self._give_up_substitute(now_ms)
            return
        substitute.is_whole = end == response.size

    def next_job(self, now_ms: int) -> LoadSnapshotJob | None:
        """The job that loads the downloaded snapshot; None if the download is not complete, or must wait.

        Raises:
            CorruptLog: the log has further damage, which was not known before.
        """
        substitute = self._substitute
        if substitute is None or not substitute.is_whole or self.is_loading:
            return None
        if not self._may_load() or self._snapshotter.is_busy:
            self._give_up_substitute(now_ms)
            return None
        expected = self._expected_chain(substitute.snapshot)
        self.is_loading = True
        return self._snapshotter.repair_job(substitute.snapshot, expected)

    def load_over(self, error: Exception | None, now_ms: int) -> None:
        """Takes the end of the loading job. If the job has failed with `error`, the snapshot is not tried again in this round."""
        self.is_loading = False
        self._snapshotter.repair_over()
        substitute = self._substitute
        if substitute is not None and error is not None:
            self._refused.add((substitute.source, substitute.snapshot))
        self._give_up_substitute(now_ms)
