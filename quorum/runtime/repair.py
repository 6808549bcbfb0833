"""Mending a damaged log from what the other controllers hold: asking for it, and answering those who ask.

One range at a time, oldest first, from one voter at a time. What comes is kept in memory until the range is complete: only then
can it be proven (`metadata_log.damage`), and only then is anything written. Whoever gives something that does not fit, or
nothing, is passed over for the next voter; after a round of all of them this rests for a while.

What no other controller holds any more, because their logs start above it, nobody needs: where this node's own newest snapshot
covers the range, its log starts there from then on.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from metadata_log.batch import Batch, verify_chain
from metadata_log.damage import DamagedRange
from metadata_log.errors import ErrorCode, LogFormatError
from metadata_log.files import is_full
from metadata_log.ids import Epoch, NodeId, ReplicaKey
from metadata_log.log import Log
from quorum.core.messages import ReadLogRequest, ReadLogResponse

READ_BYTES_MAX = 1 << 20
"""At most this much in one answer, except for a single batch, which has its own limit."""
READ_TIMEOUT_MS = 2_000
REST_MS = 1_000
"""Between two rounds in which nobody could help."""


Send: TypeAlias = Callable[[NodeId, ReadLogRequest, int], None]


def read_log(request: ReadLogRequest, log: Log, *, epoch: Epoch, leader_id: NodeId | None) -> ReadLogResponse:
    """What this node gives of what was asked for: whole batches that are durable here.

    Committed or not: whoever asks takes nothing but the very bytes that it had, proven by the chain. Counter-example to giving
    only what is known to be committed: of three, one is gone, one has damage, and the third holds what is missing but has never
    heard that it is committed. The damaged one must not lead, the third is not far enough to, and so nobody ever commits.

    Raises:
        CorruptLog: it is damaged here too, and nobody knew.
    """
    start = log.shape.start.offset
    until = min(request.end_offset, log.shape.flushed_end)
    batches: tuple[Batch, ...] = ()
    error = ErrorCode.OFFSET_OUT_OF_RANGE
    if start <= request.offset < until:
        if log.is_damaged_at(request.offset):
            error = ErrorCode.STORAGE_ERROR
        elif log.is_boundary(request.offset):
            batches = log.read(request.offset, max(1, min(request.max_bytes, READ_BYTES_MAX)), until)
    if batches:
        error = ErrorCode.NONE
    return ReadLogResponse(error, epoch, leader_id, batches, start)


class Repair:
    """The repair of this node's log, as long as there is any to do. It sends and writes; who is told is the node's business."""

    def __init__(
        self,
        log: Log,
        me: ReplicaKey,
        others: Callable[[], Sequence[NodeId]],
        send: Send,
    ) -> None:
        self._log = log
        self._me = me
        self._others = others
        self._send = send
        self._range: DamagedRange | None = None
        self._batches: list[Batch] = []
        """What is here of the range, from its start on."""
        self._asked: ReadLogRequest | None = None
        self._turns = 0
        """How many voters were asked since the beginning; says who is next."""
        self._refusals = 0
        """How many in a row could not help."""
        self._too_old = 0
        """How many of those hold only what lies above the range."""
        self._resume_ms = 0
        self.mended_ranges = 0

    def next_deadline_ms(self) -> int | None:
        """When to go on; None while there is nothing to mend, or an answer is awaited."""
        return self._resume_ms if self._log.damage and self._asked is None else None

    def fire(self, now_ms: int) -> bool:
        """Asks for what is missing next, if nobody is asked already; True if there is nobody to ask, and no need to."""
        if self._asked is not None or now_ms < self._resume_ms or not self._log.damage:
            return False
        if self._range not in self._log.damage:
            self._range, self._batches = self._log.damage[0], []
        others = self._others()
        if not others:
            self._resume_ms = now_ms + REST_MS
            return self._stand_on_snapshot()
        damaged = self._range
        assert damaged is not None
        offset = self._batches[-1].end_offset if self._batches else damaged.start
        self._asked = ReadLogRequest(self._me, offset, damaged.end, READ_BYTES_MAX)
        self._send(others[self._turns % len(others)], self._asked, READ_TIMEOUT_MS)
        return False

    def on_failure(self, request: ReadLogRequest, now_ms: int) -> None:
        """No answer will come to `request`."""
        if request is self._asked:
            self._pass_over(now_ms)

    def on_response(self, request: ReadLogRequest, response: ReadLogResponse, now_ms: int) -> bool:
        """An answer has come; True if it has mended something.

        Raises:
            FlushFailed: stop the process.
            OSError: the disk is broken. (If it is full, this rests and tries again.)
        """
        if request is not self._asked:
            return False
        damaged = self._range
        if damaged is None or damaged not in self._log.damage:
            self._asked = None
            return False
        if response.error is not ErrorCode.NONE or not self._take(response.batches, damaged):
            if response.log_start > damaged.start:
                self._too_old += 1
            return self._pass_over(now_ms)
        self._asked, self._refusals, self._too_old = None, 0, 0
        if self._batches[-1].end_offset < damaged.end:
            return False
        try:
            self._log.repair(damaged, self._batches)
        except LogFormatError:
            self._batches = []
            return self._pass_over(now_ms)
        except OSError as e:
            if not is_full(e) or damaged.file != damaged.end_file:
                raise  # half mended, over several files: the next opening finds out what is left to be done
            self._batches = []
            self._resume_ms = now_ms + REST_MS
            return False
        self._range, self._batches = None, []
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
        self._asked = None
        self._turns += 1
        self._refusals += 1
        if self._refusals < len(self._others()):
            return False
        self._resume_ms = now_ms + REST_MS
        nobody_has_it = self._too_old == self._refusals
        self._refusals = self._too_old = 0
        return nobody_has_it and self._stand_on_snapshot()

    def _stand_on_snapshot(self) -> bool:
        damaged, snapshot = self._range, self._log.shape.snapshot
        if damaged is None or snapshot is None or snapshot.offset < damaged.end:
            return False
        if self._log.is_within_damage(snapshot.offset):
            return False
        self._log.drop_prefix(snapshot)
        return True
