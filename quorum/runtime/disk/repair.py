"""Decides how a damaged log is repaired: with batches or with a snapshot, one step after the other.

Inputs go in, at most one effect comes out: `step(seen, input, now_ms) -> effect`. This file has no log, no disk and no network;
`quorum.runtime.log_repair` carries the effects out, and gives their results back as inputs.

The repair works on one damaged range at a time, the oldest first, and asks one voter at a time. The batches stay in memory until
the range is complete: only then can the chain prove them (`metadata_log.store.damage`), and only then are they written.

    Ask each voter for the batches --all received--> PutBack: the log is whole again
           |
        no voter has them --a snapshot covers the range, or its beginning--> Load: the log starts at this snapshot
                            (the node's own, or another voter's after FetchPiece and KeepPiece)

Example: node 1 of {1, 2, 3} has a damaged range [40, 45).
    1. node 1 asks voter 2 for [40, 45); voter 2 does not answer;
    2. node 1 asks voter 3, and receives the batch [40, 45): its chain fits to the batches before and after the range;
    3. the step returns `PutBack`; the input `PutBackOver(DONE)` ends the repair of this range.

A voter whose batches do not fit, or that sends none, is passed over. After a round of all voters the repair rests for a while. A
lone voter has no voter to ask, and uses its own snapshot only. No node reads its own disk again: a restart does that.

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

*A snapshot of a later epoch than the node's waits*, because a node has no record of an epoch that its election file lacks.
Example: node 2 was down from epoch 1 to epoch 4, and starts with damage. Voter 3 offers a snapshot of epoch 3. Node 2 uses it in
a later round, when a vote or a fetch has told node 2 of epoch 4.

So the disk trust of the node (`quorum.core.protocol.disk_trust`) does not change: a repaired range is never a lost end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias, assert_never

from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, OffsetAndEpoch, ReplicaKey
from metadata_log.store.damage import DamagedRange
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.runtime.disk.peer_reads import READ_BYTES_MAX
from quorum.runtime.protocol.peer_answers import BatchesReceived, PieceReceived, ReadEnd, ReadFailed

REST_MS = 1_000
"""How long the repair rests after a round of all voters in vain."""
PATIENCE_ROUNDS = 5
"""How many rounds in vain must pass before a snapshot takes the place of batches that a silent voter may still have."""


class Seen(NamedTuple):
    """The state of the node at a step."""

    damage: Sequence[DamagedRange]
    snapshot: OffsetAndEpoch | None
    """The node's own newest snapshot."""
    epoch: Epoch
    """The node's durable epoch."""
    others: Sequence[NodeId]
    """The controllers that may have the lost records."""
    may_load: bool
    """False while another snapshot is downloaded, loaded or written. A node has one download at a time; the core comes first."""


# --- inputs --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


class Outcome(Enum):
    """The result of `PutBack`."""

    DONE = "the log has the records again"
    NO_ROOM = "the disk is full"
    REFUSED = "the batches are not the lost ones"
    MORE_DAMAGE = "the log around the range is damaged, too"


@dataclass(frozen=True, slots=True)
class PutBackOver:
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PieceOver:
    """The end of `KeepPiece`."""

    is_kept: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class LoadOver:
    """The end of `Load`. If the snapshot cannot be used, it is not tried again in this round."""

    is_usable: bool


Input: TypeAlias = Tick | ReadEnd | PutBackOver | PieceOver | LoadOver


# --- effects -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Send `request` to `node_id`."""

    node_id: NodeId
    request: ReadLogRequest


@dataclass(frozen=True, slots=True)
class PutBack:
    """Write the batches of the damaged range, and give back `PutBackOver`."""

    damaged: DamagedRange
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class FetchPiece:
    """Ask `node_id` for the next piece of `snapshot`."""

    node_id: NodeId
    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class KeepPiece:
    """Add a piece to the download, and give back `PieceOver`."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Load:
    """Verify and load `snapshot`, let the log start there, and give back `LoadOver`."""

    snapshot: OffsetAndEpoch
    is_own: bool
    """True: a snapshot of this node. False: a complete download."""


Effect: TypeAlias = Ask | PutBack | FetchPiece | KeepPiece | Load


class _Substitute(NamedTuple):
    """A snapshot that is about to take the place of the damaged range."""

    source: NodeId
    snapshot: OffsetAndEpoch


class Repair:
    """The repair of one node's log. Give `step` a `Tick` at `next_deadline_ms`."""

    def __init__(self, me: ReplicaKey) -> None:
        self._me = me
        self._range: DamagedRange | None = None
        self._batches: list[Batch] = []
        """The received batches of the range, from its start on."""
        self._asked: ReadLogRequest | OffsetAndEpoch | None = None
        """The request under way, or the snapshot of which a piece is under way."""
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
        self._refused: set[_Substitute] = set()
        """Snapshots that could not be used."""
        self._substitute: _Substitute | None = None
        self.is_loading = False
        """True while a snapshot is verified and loaded that is to take the place of the range."""
        self._resume_ms = 0
        self.mended_ranges = 0
        """How many ranges were repaired since the process started: with batches, or with a snapshot in their place."""

    def next_deadline_ms(self, *, has_damage: bool) -> int | None:
        """The time of the next step; None without damage, or while the repair waits for an answer or a job."""
        is_waiting = self._asked is not None or self.is_loading
        return self._resume_ms if has_damage and not is_waiting else None

    def step(self, seen: Seen, event: Input, now_ms: int) -> Effect | None:
        """Takes an input. The effect has to be carried out before the next step."""
        match event:
            case Tick():
                return self._go_on(seen, now_ms)
            case ReadFailed(request):
                return self._after_failure(seen, request, now_ms)
            case BatchesReceived(source, request, response):
                return self._take_batches(seen, source, request, response, now_ms)
            case PieceReceived(request, response):
                return self._take_piece(seen, request, response, now_ms)
            case PutBackOver(outcome):
                return self._after_put_back(seen, outcome, now_ms)
            case PieceOver(is_kept, is_last):
                if not is_kept:
                    self._drop_substitute(now_ms)
                return self._load(seen, now_ms) if is_kept and is_last else None
            case LoadOver(is_usable):
                self.is_loading = False
                if self._substitute is not None and not is_usable:
                    self._refused.add(self._substitute)
                self._drop_substitute(now_ms)
                return None
            case _:
                assert_never(event)

    def _go_on(self, seen: Seen, now_ms: int) -> Effect | None:
        """Sends the next request, unless a request is under way or the repair rests."""
        if self._asked is not None or self.is_loading or now_ms < self._resume_ms or not seen.damage:
            return None
        if self._range is None or self._range not in seen.damage:
            self._begin(seen.damage[0])
        damaged = self._range
        assert damaged is not None
        if self._substitute is not None:
            return self._fetch(seen, self._substitute, now_ms)
        if not seen.others:
            self._begin_round()
            self._resume_ms = now_ms + REST_MS
            return self._choose_substitute(seen, damaged, now_ms)
        offset = self._batches[-1].end_offset if self._batches else damaged.start
        self._asked = ReadLogRequest(self._me, offset, damaged.end, READ_BYTES_MAX)
        return Ask(seen.others[self._turns % len(seen.others)], self._asked)

    def _begin(self, damaged: DamagedRange) -> None:
        self._range, self._batches, self._substitute = damaged, [], None
        self._rounds = 0
        self._begin_round()

    def _begin_round(self) -> None:
        self._refusals = self._answered = self._too_old = 0
        self._offers = {}

    def _after_failure(self, seen: Seen, request: ReadLogRequest | ReadSnapshotRequest, now_ms: int) -> Effect | None:
        if isinstance(request, ReadSnapshotRequest):
            if request.snapshot == self._asked:
                self._asked = None
                self._drop_substitute(now_ms)
            return None
        if request is not self._asked:
            return None
        self._asked = None
        return self._pass_over(seen, now_ms)

    # --- batches ---------------------------------------------------------------------------------------------------

    def _take_batches(
        self, seen: Seen, source: NodeId, request: ReadLogRequest, response: ReadLogResponse, now_ms: int
    ) -> Effect | None:
        if request is not self._asked:
            return None
        self._asked = None
        damaged = self._range
        if damaged is None or damaged not in seen.damage:
            return None
        if response.error is not ErrorCode.NONE or not self._take(response.batches, damaged):
            self._answered += 1
            self._too_old += response.log_start > damaged.start
            offer = response.snapshot
            if offer is not None and offer.offset > damaged.start and offer.epoch <= seen.epoch:
                self._offers[source] = offer
            return self._pass_over(seen, now_ms)
        self._rounds = 0
        self._begin_round()
        if self._batches[-1].end_offset < damaged.end:
            return None
        batches, self._batches = self._batches, []
        return PutBack(damaged, tuple(batches))

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

    def _after_put_back(self, seen: Seen, outcome: Outcome, now_ms: int) -> Effect | None:
        if outcome is Outcome.REFUSED:
            if (self._turns + 1) % max(1, len(seen.others)) == 0:
                # Two voters with another history here would be asked in turn without a rest: each sends a complete range.
                self._resume_ms = now_ms + REST_MS
            return self._pass_over(seen, now_ms)
        if outcome is Outcome.NO_ROOM:
            self._resume_ms = now_ms + REST_MS
        if outcome is Outcome.MORE_DAMAGE:
            self._range = None  # the new range may be older, and must be repaired first then
        if outcome is Outcome.DONE:
            self._range = None
            self.mended_ranges += 1
        return None

    def _pass_over(self, seen: Seen, now_ms: int) -> Effect | None:
        """Goes on to the next voter, after a voter could not help. After a round of all voters a snapshot may be used."""
        self._turns += 1
        self._refusals += 1
        if self._refusals < len(seen.others):
            return None
        self._resume_ms = now_ms + REST_MS
        self._rounds += 1
        nobody_has_it = self._too_old == self._refusals
        effect: Effect | None = None
        # Meanwhile the range may have been cut off, repaired, or dropped below the log's start.
        if self._range in seen.damage and (nobody_has_it or (self._answered > 0 and self._rounds >= PATIENCE_ROUNDS)):
            assert self._range is not None
            effect = self._choose_substitute(seen, self._range, now_ms)
        self._begin_round()
        return effect

    # --- snapshots -------------------------------------------------------------------------------------------------

    def _choose_substitute(self, seen: Seen, damaged: DamagedRange, now_ms: int) -> Effect | None:
        """Chooses the node's own snapshot, or the newest one of the offered snapshots."""
        me = self._me.node_id
        offers = {_Substitute(*each) for each in self._offers.items()}
        if seen.snapshot is not None and seen.snapshot.offset > damaged.start:
            offers.add(_Substitute(me, seen.snapshot))
        offers -= self._refused
        if not offers:
            self._refused.clear()
            return None
        self._substitute = max(offers, key=lambda each: (each.source == me, each.snapshot, each.source))
        if self._substitute.source == me:
            return self._load(seen, now_ms)
        self._resume_ms = now_ms
        return None

    def _fetch(self, seen: Seen, substitute: _Substitute, now_ms: int) -> Effect | None:
        if not seen.may_load:
            self._drop_substitute(now_ms)
            return None
        self._asked = substitute.snapshot
        return FetchPiece(substitute.source, substitute.snapshot)

    def _take_piece(
        self, seen: Seen, request: ReadSnapshotRequest, response: ReadSnapshotResponse, now_ms: int
    ) -> Effect | None:
        if request.snapshot != self._asked:
            return None
        self._asked = None
        end = request.position + len(response.data)
        same_place = response.position == request.position and 0 < end <= response.size
        is_piece = response.error is ErrorCode.NONE and same_place and (response.data or end == response.size)
        if self._substitute is None or not is_piece or not seen.may_load:
            self._drop_substitute(now_ms)
            return None
        return KeepPiece(request.snapshot, request.position, response.data, is_last=end == response.size)

    def _load(self, seen: Seen, now_ms: int) -> Effect | None:
        """Loads the substitute, which is on this node's disk."""
        substitute = self._substitute
        if substitute is None or not seen.may_load:
            self._drop_substitute(now_ms)
            return None
        self.is_loading = True
        return Load(substitute.snapshot, is_own=substitute.source == self._me.node_id)

    def _drop_substitute(self, now_ms: int) -> None:
        self._substitute = None
        self._resume_ms = now_ms + REST_MS
