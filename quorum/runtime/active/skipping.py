"""Skips a committed batch that replay cannot apply, when an operator asks for the skip.

A batch that no controller can apply stops the images of all controllers, so no controller becomes active, and nothing is decided.
Raft goes on: a leader is elected, and commits control records. So the leader can append a `SkippedBatch`, although its own replay
stands still. Example with controllers 1, 2 and 3, which all stand at the batch [40, 43):
    1. controller 1 leads; an operator asks it to skip the batch at 40, and names the batch's epoch and chain;
    2. controller 1 finds its own replay in front of this batch, and appends the SkippedBatch at 57;
    3. the record is committed; each controller drops [40, 43), and applies [43, 58);
    4. the image of controller 1 has reached the end of the log: controller 1 becomes active, and answers brokers and clients.

A wrong skip would lose a good record, so the leader refuses unless all of this holds:

    the batch              is committed, is in the log with this epoch and chain, and is no control batch
    the leader's replay    stands in front of the batch, unless the operator says `although_applied`
    the level              allows the record (`metadata.version` 2), in front of the batch and behind it
    snapshot marks         none lies behind the batch: a snapshot would have the effect of the batch, and could not be undone

With `although_applied` an active controller skips a batch that only other nodes cannot apply; nothing checks that there is such a
node. The dropped records must not set `metadata.version`, because the records behind were written at this level. After the append
the controller is not active; it makes its image anew, and becomes active again.

No turn is long: the leader reads the log in slices, one in a turn. The turn that reaches the end of the log appends the record.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import METADATA_VERSION, SkippedBatch, SnapshotMark, level_problem
from metadata_log.image.skips import DroppedRange, levels_in, open_transaction
from metadata_log.store.log_view import LogView
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.waiting_room import Deadlines, unknown_outcome
from quorum.runtime.image.state_machine import Poison
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import BatchSkipped, LeaderHint, Refused, SkipRequest
from quorum.runtime.protocol.world import SkipWanted

SCAN_BYTES_PER_TURN: Final = 256 << 10
"""How many bytes of the log a turn reads for a request: 2 to 10 ms of work."""
SHOWN_BYTES_MAX: Final = 1 << 20
"""Maximum number of bytes of dropped batches in an answer."""
_MORE: Final = "nothing was done"

_Found: TypeAlias = SkippedBatch | BatchSkipped
"""The record to append; or the answer, if the batch is skipped already."""


@dataclass(slots=True)
class _Waiting:
    event: SkipWanted
    search: Iterator[_Found | None]
    """The checks, a slice of the log at each step, up to what was found."""
    answer: BatchSkipped | None = None
    """The answer once the record is committed; None: the record is not appended yet."""
    done: bool = False


class _Surroundings:
    """The batches around the batch that a skip names. The leader reads them once, in order."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.begun: Offset | None = None
        """The base offset of the transaction that is open in front of the batch."""
        self.mark: Offset | None = None
        """The offset of the first snapshot mark behind the batch."""
        self.levels = list(levels_in((batch,)))
        """The levels of `metadata.version` that were read, each with its batch's offset."""
        self._range: DroppedRange | None = None

    def take(self, each: Batch) -> None:
        self.levels.extend(levels_in((each,)))
        if each.base_offset < self._batch.base_offset:
            self.begun = open_transaction((each,), self.begun)
            return
        self.dropped.take(each)
        if self.mark is None and each.is_control:
            self.mark = each.base_offset if any(isinstance(it, SnapshotMark) for it in decode_batch(each)) else None

    @property
    def dropped(self) -> DroppedRange:
        """The range that the skip drops, as far as it is read. All batches in front of the batch are read."""
        if self._range is None:
            self._range = DroppedRange(self._batch, self.begun)
        return self._range

    def lowest_level(self, level: int) -> int:
        """The lowest level of `metadata.version` from `level` on, behind the batch."""
        return min((level, *(each for at, each in self.levels if at >= self._batch.end_offset)))

    @property
    def drops_a_level(self) -> bool:
        return any(self.dropped.start <= at < self.dropped.end for at, _ in self.levels)


class Skipping:
    """Takes the requests of operators on the leader, active or not. Each node has one."""

    def __init__(self, parts: Parts, active: ActiveController, append: Callable[[SkippedBatch], Batch | None]) -> None:
        """`append` appends the record and reports it to the core; None: the disk has no room, and the leader resigns."""
        self._core, self._log, self._state, self._world = parts.core, parts.log, parts.state, parts.world
        self._snapshots = parts.snapshotter.store
        self._found_damage = parts.found_damage
        self._active = active
        self._append = append
        self._deadlines: Deadlines[_Waiting] = Deadlines()
        self._searching: deque[_Waiting] = deque()
        self._waiting: list[_Waiting] = []

    def take(self, event: SkipWanted, hint: LeaderHint) -> None:
        """Refuses, or checks the request from this turn on; appends the record then, and answers when it is committed."""
        if not self._core.is_leading:
            text = f"this controller does not lead, and only the leader skips a batch; {_MORE}"
            self._world.reply(event.reply_to, Refused(ErrorCode.NOT_CONTROLLER, text, hint))
            return
        waiting = _Waiting(event, self._search(event.request))
        self._searching.append(waiting)
        self._deadlines.add(waiting, event.deadline_ms)

    @property
    def has_more_to_do(self) -> bool:
        """True if a request is being checked."""
        return bool(self._searching)

    def go_on(self) -> None:
        """Reads the next slice for the oldest request, and ends the checks if the slice was the last one."""
        if not self._searching:
            return
        waiting = self._searching.popleft()
        try:
            found = next(waiting.search)
            if found is None:
                self._searching.appendleft(waiting)
            else:
                self._take_found(waiting, found)
        except Refused as refused:
            self._reply(waiting, refused)
        except CorruptLog as e:
            self._found_damage(e)
            text = f"this controller has found damage in its log, and resigns; {_MORE}, ask the next leader"
            self._reply(waiting, Refused(ErrorCode.STORAGE_ERROR, text))

    def _take_found(self, waiting: _Waiting, found: _Found) -> None:
        """Appends the record, unless the batch is skipped already. Raises Refused: the record is not appended."""
        if isinstance(found, BatchSkipped):
            waiting.answer = found
        else:
            waiting.answer = self._answer(self._log.end, found.dropped_start, found.dropped_end)
        if waiting.event.request.validate_only:
            self._reply(waiting, waiting.answer)
            return
        if isinstance(found, SkippedBatch):
            appended = self._append(found)
            if appended is None:
                raise Refused(ErrorCode.STORAGE_ERROR, f"the leader's disk is full; {_MORE}, ask the next leader")
            waiting.answer = replace(waiting.answer, offset=appended.end_offset)
        self._waiting.append(waiting)

    def _reply(self, waiting: _Waiting, answer: BatchSkipped | Refused) -> None:
        waiting.done = True
        self._world.reply(waiting.event.reply_to, answer)

    # --- checks ----------------------------------------------------------------------------------------------------

    def _search(self, request: SkipRequest) -> Iterator[_Found | None]:
        """Yields None after each slice but the last, then what was found. Raises Refused, CorruptLog."""
        committed = self._core.high_watermark
        if committed is None:
            raise Refused(ErrorCode.NOT_READY, f"the leader has committed nothing in its epoch yet; {_MORE}, try again")
        batch = named_batch(self._log, request, committed)
        poison = None
        around = _Surroundings(batch)
        if self._earlier(batch) is None:
            poison = self._poison_at(batch, request)
            if poison is None:
                yield from self._read(self._quiet_start(batch), batch.base_offset, around)
            else:
                around.begun = poison.begun
            yield from self._read(batch.end_offset, None, around)
        earlier = self._earlier(batch)
        if earlier is not None:
            yield earlier
            return
        if self._poison_at(batch, request) is not poison:
            raise Refused(ErrorCode.NOT_READY, f"the leader's replay has moved meanwhile; {_MORE}, try again")
        yield self._record(batch, around, is_applied=poison is None)

    def _earlier(self, batch: Batch) -> BatchSkipped | None:
        """The answer if the log has a skip of `batch` already."""
        skips = ((at, skip) for at, skip in self._log.skipped() if skip.chain == batch.chain)
        return next((self._answer(at + 1, skip.dropped_start, skip.dropped_end) for at, skip in skips), None)

    def _poison_at(self, batch: Batch, request: SkipRequest) -> Poison | None:
        """The leader's poison if it is `batch`; None: the leader has applied the batch. Raises Refused: no skip is allowed."""
        poison = self._state.poison
        if poison is not None and poison.batch.base_offset == batch.base_offset:
            return poison
        if self._state.applied < batch.end_offset or self._state.stopped is not None:
            where = "" if poison is None else f"; it stands at offset {poison.batch.base_offset}"
            raise Refused(ErrorCode.POLICY_VIOLATION, f"the leader's replay has not come to this batch{where}; {_MORE}")
        if not request.although_applied:
            text = f"the leader has applied this batch, so its replay does not stand still there; {_MORE}"
            raise Refused(ErrorCode.POLICY_VIOLATION, text)
        if self._state.transaction is not None:
            raise Refused(ErrorCode.NOT_READY, f"a transaction is open; {_MORE}, try again in a moment")
        return None

    def _quiet_start(self, batch: Batch) -> Offset:
        """The newest known offset up to the batch at which no transaction is open: the end of a snapshot, or the log's start."""
        start = self._log.shape.start.offset
        ends = [info.end.offset for info in self._snapshots.list() if start <= info.end.offset <= batch.base_offset]
        quiet = (end for end in ends if not self._log.is_within_damage(end) and self._log.is_boundary(end))
        return max(quiet, default=start)

    def _read(self, offset: Offset, until: Offset | None, around: _Surroundings) -> Iterator[None]:
        """Gives the batches from `offset` up to `until`, or up to the end of the log; yields before each further slice."""
        while offset < (end := self._log.end if until is None else until):
            if offset < self._log.shape.start.offset:
                raise Refused(ErrorCode.NOT_READY, f"the log begins at a later offset now; {_MORE}, try again")
            for batch in self._log.read(offset, SCAN_BYTES_PER_TURN, end):
                around.take(batch)
                offset = batch.end_offset
            if around.mark is not None:
                return
            if offset < end:
                yield

    def _record(self, batch: Batch, around: _Surroundings, *, is_applied: bool) -> SkippedBatch:
        """The record to append. Raises Refused: the records around the batch do not allow the skip."""
        if around.mark is not None:
            raise Refused(ErrorCode.POLICY_VIOLATION, _mark_text(around.mark))
        if is_applied and around.drops_a_level:
            text = (
                f"the dropped records set {METADATA_VERSION}, and the leader has applied them: later records were written at "
                f"this level, and would not fit; {_MORE}. Upgrade the nodes to a release that can apply the batch"
            )
            raise Refused(ErrorCode.POLICY_VIOLATION, text)
        record = SkippedBatch(
            batch.base_offset, batch.epoch, batch.chain, around.dropped.start, around.dropped.end
        )  # fmt: skip
        problem = level_problem(record, around.lowest_level(self._state.committed.metadata_version))
        if problem is not None:
            text = f"{problem}; {_MORE}. Upgrade the nodes to a release that can apply the batch"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, text)
        return record

    def _answer(self, offset: Offset, start: Offset, end: Offset) -> BatchSkipped:
        shown = [each for each in self._log.read(start, SHOWN_BYTES_MAX, end) if not each.is_control]
        poison = self._state.poison
        return BatchSkipped(offset, start, end, "" if poison is None else poison.reason, tuple(shown))

    # --- waiting ---------------------------------------------------------------------------------------------------

    def answer_ready(self, committed: Offset) -> None:
        """Answers the operators whose records are below `committed`."""
        if not self._waiting:
            return
        for each in self._waiting:
            if each.answer is not None and each.answer.offset <= committed and not each.done:
                self._reply(each, each.answer)
        self._waiting = [each for each in self._waiting if not each.done]

    def end(self, why: str, hint: LeaderHint) -> None:
        """Answers all waiting operators: the leadership has ended, and their records may be committed or not."""
        for each in self._waiting:
            self._reply(each, unknown_outcome(why))
        self._waiting.clear()
        for each in self._searching:
            self._reply(each, Refused(ErrorCode.NOT_CONTROLLER, f"{why}; {_MORE}, ask the next leader", hint))
        self._searching.clear()

    def fire_timers(self, now_ms: int) -> None:
        """Answers the operators whose deadline has passed."""
        for each in self._deadlines.expired(now_ms):
            if each in self._searching:
                text = f"the leader has not read the log behind the batch in time; {_MORE}, try again with a longer timeout"
                self._world.reply(each.event.reply_to, Refused(ErrorCode.NOT_READY, text))
            else:
                self._world.reply(each.event.reply_to, unknown_outcome("no majority has confirmed the record in time"))
        self._searching = deque(each for each in self._searching if not each.done)
        self._waiting = [each for each in self._waiting if not each.done]

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()


def _mark_text(mark: Offset) -> str:
    return (
        f"a snapshot mark lies behind the batch, at offset {mark}: a snapshot from there has the effect of the batch; {_MORE}. "
        f"Install a release that can apply the batch. Only if `quorumctl snapshot list` shows that a controller has a snapshot "
        f"above offset {mark}, other nodes can begin with that snapshot: see the runbook, and keep a copy of each directory"
    )


def named_batch(log: LogView, request: SkipRequest, committed: Offset) -> Batch:
    """The committed data batch that the request names. Raises Refused: there is no such batch. Raises CorruptLog."""
    start, offset = log.shape.start.offset, request.offset
    if not start <= offset < committed:
        text = f"the log has committed batches from {start} to {committed}, and none at offset {offset}; {_MORE}"
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    if not log.is_boundary(offset):
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"no batch begins at offset {offset}; {_MORE}")
    batch = log.read(offset, 1, committed)[0]
    if (request.epoch, request.chain) != (batch.epoch, batch.chain):
        text = (
            f"the batch at offset {offset} has epoch {batch.epoch} and chain {batch.chain.hex()}, and the request names epoch "
            f"{request.epoch} and chain {request.chain.hex() or 'none'}; {_MORE}. Look at the batch before you skip it"
        )
        raise Refused(ErrorCode.CHAIN_MISMATCH, text)
    if batch.is_control:
        text = f"the batch at offset {offset} has control records, which are never skipped; {_MORE}. Upgrade the nodes"
        raise Refused(ErrorCode.POLICY_VIOLATION, text)
    return batch
