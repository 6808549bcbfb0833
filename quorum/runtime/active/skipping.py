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

With `although_applied` an active controller skips a batch that only other nodes cannot apply. After the append the controller
is not active; it makes its image anew, and becomes active again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import SkippedBatch, SnapshotMark, level_problem
from metadata_log.image.skips import dropped_range, lowest_level, open_transaction
from metadata_log.store.log_view import LogView
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.waiting_room import Deadlines, unknown_outcome
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import BatchSkipped, LeaderHint, Refused, SkipRequest
from quorum.runtime.protocol.world import SkipWanted

SCAN_BYTES_MAX: Final = 64 << 20
"""Maximum number of bytes of the log that one request reads. A snapshot mark comes sooner in most clusters."""
SHOWN_BYTES_MAX: Final = 1 << 20
"""Maximum number of bytes of dropped batches in an answer."""
_READ_BYTES: Final = 1 << 20
_MORE: Final = "nothing was done"


@dataclass(slots=True)
class _Waiting:
    event: SkipWanted
    answer: BatchSkipped
    done: bool = False


class Skipping:
    """Takes the requests of operators on the leader, active or not. Each node has one."""

    def __init__(self, parts: Parts, active: ActiveController, append: Callable[[SkippedBatch], Batch | None]) -> None:
        """`append` appends the record and reports it to the core; None: the disk has no room, and the leader resigns."""
        self._core, self._log, self._state, self._world = parts.core, parts.log, parts.state, parts.world
        self._found_damage = parts.found_damage
        self._active = active
        self._append = append
        self._deadlines: Deadlines[_Waiting] = Deadlines()
        self._waiting: list[_Waiting] = []

    def take(self, event: SkipWanted, hint: LeaderHint) -> None:
        """Refuses, or appends the record and answers when it is committed."""
        try:
            if not self._core.is_leading:
                text = f"this controller does not lead, and only the leader skips a batch; {_MORE}"
                raise Refused(ErrorCode.NOT_CONTROLLER, text, hint)
            answer = self._skipped(event.request)
        except Refused as refused:
            self._world.reply(event.reply_to, refused)
            return
        except CorruptLog as e:
            self._found_damage(e)
            text = f"this controller has found damage in its log, and resigns; {_MORE}, ask the next leader"
            self._world.reply(event.reply_to, Refused(ErrorCode.STORAGE_ERROR, text))
            return
        if event.request.validate_only:
            self._world.reply(event.reply_to, answer)
            return
        waiting = _Waiting(event, answer)
        self._waiting.append(waiting)
        self._deadlines.add(waiting, event.deadline_ms)

    def _skipped(self, request: SkipRequest) -> BatchSkipped:
        committed = self._core.high_watermark
        if committed is None:
            raise Refused(ErrorCode.NOT_READY, f"the leader has committed nothing in its epoch yet; {_MORE}, try again")
        batch = named_batch(self._log, request, committed)
        earlier = next((each for each in self._log.skipped() if each[1].chain == batch.chain), None)
        if earlier is not None:
            at, skip = earlier
            return self._answer(at + 1, skip.dropped_start, skip.dropped_end)
        begun = self._begun_before(batch, request)
        start, end = self._checked_range(batch, begun)
        record = SkippedBatch(batch.base_offset, batch.epoch, batch.chain, start, end)
        behind = self._scan(batch.end_offset, self._log.end)
        problem = level_problem(record, lowest_level(self._state.committed.metadata_version, behind))
        if problem is not None:
            text = f"{problem}; {_MORE}. Upgrade the nodes to a release that can apply the batch"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, text)
        if request.validate_only:
            return self._answer(self._log.end, start, end)
        answer = self._answer(0, start, end)
        appended = self._append(record)
        if appended is None:
            raise Refused(ErrorCode.STORAGE_ERROR, f"the leader's disk is full; {_MORE}, ask the next leader")
        return BatchSkipped(appended.end_offset, start, end, answer.reason, answer.batches)

    def _begun_before(self, batch: Batch, request: SkipRequest) -> Offset | None:
        """The begin of the transaction that is open in front of `batch`. Raises Refused: the skip is not allowed."""
        poison = self._state.poison
        if poison is not None and poison.batch.base_offset == batch.base_offset:
            return poison.begun
        if self._state.applied < batch.end_offset or self._state.stopped is not None:
            where = "" if poison is None else f"; it stands at offset {poison.batch.base_offset}"
            raise Refused(ErrorCode.POLICY_VIOLATION, f"the leader's replay has not come to this batch{where}; {_MORE}")
        if not request.although_applied:
            text = f"the leader has applied this batch, so its replay does not stand still there; {_MORE}"
            raise Refused(ErrorCode.POLICY_VIOLATION, text)
        if self._state.transaction is not None:
            raise Refused(ErrorCode.NOT_READY, f"a transaction is open; {_MORE}, try again in a moment")
        return open_transaction(self._scan(self._log.shape.start.offset, batch.base_offset))

    def _checked_range(self, batch: Batch, begun: Offset | None) -> tuple[Offset, Offset]:
        for later in self._scan(batch.end_offset, self._log.end):
            if later.is_control and any(isinstance(record, SnapshotMark) for record in decode_batch(later)):
                text = (
                    f"a snapshot mark lies behind the batch, at offset {later.base_offset}: the snapshot has the effect of the "
                    f"batch; {_MORE}. Nodes that cannot apply the batch begin with that snapshot: format their directories anew"
                )
                raise Refused(ErrorCode.POLICY_VIOLATION, text)
        return dropped_range(batch, begun, self._scan(batch.end_offset, self._log.end))

    def _scan(self, start: Offset, until: Offset) -> Iterator[Batch]:
        """Yields the batches in [start, until). Raises Refused: they are too many bytes."""
        read = 0
        while start < until:
            for batch in self._log.read(start, _READ_BYTES, until):
                yield batch
                read += len(batch.data)
                start = batch.end_offset
            if read > SCAN_BYTES_MAX:
                text = f"more than {SCAN_BYTES_MAX >> 20} MiB of the log would have to be read; {_MORE}"
                raise Refused(ErrorCode.POLICY_VIOLATION, text)

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
            if each.answer.offset <= committed:
                each.done = True
                self._world.reply(each.event.reply_to, each.answer)
        self._waiting = [each for each in self._waiting if not each.done]

    def end(self, why: str) -> None:
        """Answers all waiting operators: the leadership has ended, and their records may be committed or not."""
        for each in self._waiting:
            each.done = True
            self._world.reply(each.event.reply_to, unknown_outcome(why))
        self._waiting.clear()

    def fire_timers(self, now_ms: int) -> None:
        """Answers the operators whose deadline has passed."""
        for each in self._deadlines.expired(now_ms):
            why = "no majority has confirmed the record in time"
            self._world.reply(each.event.reply_to, unknown_outcome(why))
        self._waiting = [each for each in self._waiting if not each.done]

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()


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
