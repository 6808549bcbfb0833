"""A follower of one partition: it fetches from its leader, appends, truncates, and knows the high watermark. Pure.

The follower fetches from the end of its log on disk, so a fetch is also an acknowledgement. While the log works on an append and
its flush, or on a truncation, no fetch leaves. Answers, and the follower's reactions:

| answer | reaction |
|---|---|
| batches | append them, flush, and fetch from the new end |
| a point of divergence | truncate to the common point, and fetch again (see `divergence`) |
| OFFSET_OUT_OF_RANGE, or a point of divergence below the own log start | drop the log, and begin at the leader's log start |
| FENCED_LEADER_EPOCH | wait for newer metadata: another leader epoch has begun |
| UNKNOWN_LEADER_EPOCH | ask again later: the leader's broker has not read the metadata yet |
| any other error | ask again later |

*An answer counts only if its place is still the place to ask for*: the same offset, leader epoch and last epoch. Without this
rule a late or repeated answer would append records twice, or records of an earlier leader:

    1. Follower 3 fetches at 5; the answer is slow. Follower 3 fetches at 5 again, appends [5,7), and is at 7.
    2. The first answer arrives, with [5,7). Offset 5 is not asked for any more: the answer has no effect.

*The high watermark* is the lesser of the leader's and the end of the follower's own log on disk. A follower that took the
leader's high watermark before its own flush could know a committed record, and not have the record after a power failure.

A batch that does not begin at the end of the log, a batch that the log refuses, and an error of the disk stop the replica. The
caller decides how much stops: the partition, its log directory, or the broker.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from broker_agent.replica.divergence import truncation_point
from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape

PARTITION_BYTES: Final = 1 << 20
"""The default of `PartitionFetch.max_bytes` (`replica.fetch.max.bytes`)."""


class PartitionFetch(NamedTuple):
    """A request for one partition: the records from `offset` on. A consumer may leave out an epoch: -1."""

    offset: Offset
    leader_epoch: Epoch
    last_fetched_epoch: Epoch
    max_bytes: int = PARTITION_BYTES
    """Maximum size of the batches; the first batch comes even if it is larger."""


class LogStart(NamedTuple):
    """The start of the leader's log. A follower that begins there needs the epoch and the chain below the start."""

    offset: Offset
    epoch: Epoch
    chain: bytes


class PartitionAnswer(NamedTuple):
    """The leader's answer for one partition. `begin_at` comes with OFFSET_OUT_OF_RANGE, and with `diverged`."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: Offset = 0
    log_start_offset: Offset = 0
    batches: tuple[Batch, ...] = ()
    diverged: OffsetAndEpoch | None = None
    begin_at: LogStart | None = None


@dataclass(frozen=True, slots=True)
class OffsetMismatch:
    """The leader's answer begins at another offset than the end of this replica's log."""

    log_end: Offset
    first_offset: Offset

    def __str__(self) -> str:
        return f"the answer for offset {self.log_end} begins at offset {self.first_offset}; nothing was appended"


@dataclass(frozen=True, slots=True)
class BatchesRefused:
    """The log refused batches of the leader: a checksum or the chain does not match."""

    text: str

    def __str__(self) -> str:
        return f"the log refused the leader's batches: {self.text}"


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """The disk refused an append, a flush or a truncation. The caller knows the log directory."""

    text: str

    def __str__(self) -> str:
        return f"the disk of this replica failed: {self.text}"


StopReason: TypeAlias = OffsetMismatch | BatchesRefused | DiskFailed
"""The reasons for which a replica stops following."""


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Effect: append the batches, flush, and then call `log_changed`; after an error, call `log_failed`."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Effect: truncate the log to `end`, and then call `log_changed`."""

    end: Offset
    below_high_watermark: bool
    """True if committed records are dropped: an unclean election has chosen a leader without them."""


@dataclass(frozen=True, slots=True)
class BeginAt:
    """Effect: drop the whole log, begin an empty log at the leader's start, and then call `log_changed`."""

    start: LogStart
    below_high_watermark: bool
    """True if committed records are dropped, as in `TruncateLog`."""


@dataclass(frozen=True, slots=True)
class RaiseLogStart:
    """Effect: drop the records below `offset`, as the leader has done, and then call `log_changed`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FollowerHighWatermarkMoved:
    """Effect: the records below `high_watermark` are committed, and on this replica's disk."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Effect: the replica follows no more. The caller stops the partition, the log directory or the broker."""

    reason: StopReason


def _ignore() -> None:
    """Nobody wants to know."""


FollowerEffect: TypeAlias = (
    AppendBatches | TruncateLog | BeginAt | RaiseLogStart | FollowerHighWatermarkMoved | StopReplica
)
FollowerEffects: TypeAlias = list[FollowerEffect]


class Progress(Enum):
    """The meaning of one answer for the fetcher's schedule."""

    DATA = "data"
    NOTHING_NEW = "nothing new"
    LATE = "late"
    """The answer is to a request that this follower does not wait for any more."""
    FAILED = "failed"
    """Ask again after a pause."""


class PartitionFollower:
    """This broker follows in one partition. Attributes without an underscore are for reading only."""

    def __init__(self, leader_id: NodeId, leader_epoch: Epoch, shape: LogShape, high_watermark: Offset) -> None:
        """Begin to follow. `high_watermark` is the one that this replica knew before, for example from its checkpoint."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.shape = shape
        self.high_watermark = max(shape.start.offset, min(high_watermark, shape.flushed_end))
        self.leader_high_watermark: Offset = 0
        """The high watermark of the last answer in this leader epoch."""
        self.stopped: StopReason | None = None
        self.changed: Callable[[], None] = _ignore
        """Called after each change that may change the next fetch. The fetcher sets it."""
        self.awaits_metadata = False
        """True if the leader has said that this leader epoch is over."""
        self._log_works = False

    @property
    def is_active(self) -> bool:
        """True if the next fetch may leave now."""
        blocked = self._log_works or self.awaits_metadata or self.stopped is not None
        return not blocked and self.shape.flushed_end == self.shape.end

    @property
    def lag(self) -> int:
        """How many committed records this replica lacks, as far as the last answer told."""
        return max(0, self.leader_high_watermark - self.shape.flushed_end)

    def next_fetch(self) -> PartitionFetch:
        """Return the request for the records after the end of the log."""
        assert self.is_active
        return PartitionFetch(self.shape.end, self.leader_epoch, self.shape.last_epoch)

    def follow(self, leader_id: NodeId, leader_epoch: Epoch) -> None:
        """Take a newer leader epoch from the metadata. Answers to earlier requests do not count any more."""
        assert leader_epoch > self.leader_epoch
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.leader_high_watermark = 0
        self.awaits_metadata = False
        self.changed()

    # --- answers -----------------------------------------------------------------------------------------------------

    def answered(self, asked: PartitionFetch, answer: PartitionAnswer) -> tuple[Progress, FollowerEffects]:
        """Take the answer to the request `asked`."""
        if not self._awaits(asked):
            return Progress.LATE, []
        found = self._take(answer)
        self.changed()
        return found

    def _take(self, answer: PartitionAnswer) -> tuple[Progress, FollowerEffects]:
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.begin_at is not None:
            return self._begin_at(answer.begin_at)
        if answer.error is not ErrorCode.NONE:
            self.awaits_metadata = answer.error is ErrorCode.FENCED_LEADER_EPOCH
            return Progress.FAILED, []
        if answer.diverged is not None:
            return self._diverged(answer.diverged, answer.begin_at)
        return self._agreed(answer)

    def _awaits(self, asked: PartitionFetch) -> bool:
        return self.is_active and asked == self.next_fetch()

    def _agreed(self, answer: PartitionAnswer) -> tuple[Progress, FollowerEffects]:
        """The own log is a prefix of the leader's."""
        if answer.batches and answer.batches[0].base_offset != self.shape.end:
            return Progress.FAILED, self.log_failed(OffsetMismatch(self.shape.end, answer.batches[0].base_offset))
        self.leader_high_watermark = answer.high_watermark
        effects = self._advance()
        if self.shape.start.offset < answer.log_start_offset <= self.high_watermark:
            effects.append(RaiseLogStart(answer.log_start_offset))
        if not answer.batches:
            return Progress.NOTHING_NEW, effects
        self._log_works = True
        return Progress.DATA, [*effects, AppendBatches(answer.batches)]

    def _diverged(self, diverged: OffsetAndEpoch, begin_at: LogStart | None) -> tuple[Progress, FollowerEffects]:
        end, start = truncation_point(self.shape, diverged), self.shape.start.offset
        if begin_at is not None and (end < start or self.shape.end == start):
            # The logs part below this log's start, so nothing of this log may stay: an unclean election has dropped records.
            return self._begin_at(begin_at)
        if end >= self.shape.end:
            return Progress.FAILED, []  # the leader contradicts itself; a truncation would make no progress
        self._log_works = True
        return Progress.NOTHING_NEW, [self._drop_to(end)]

    def _drop_to(self, end: Offset) -> TruncateLog:
        below = end < self.high_watermark
        self._forget_above(end)
        return TruncateLog(end, below)

    def _begin_at(self, start: LogStart) -> tuple[Progress, FollowerEffects]:
        self._log_works = True
        below = start.offset < self.high_watermark
        self._forget_above(start.offset)
        return Progress.NOTHING_NEW, [BeginAt(start, below)]

    def _forget_above(self, end: Offset) -> None:
        self.high_watermark = min(self.high_watermark, end)
        self.leader_high_watermark = 0  # until the leader has found the rest of the log valid

    # --- the log -----------------------------------------------------------------------------------------------------

    def log_changed(self, shape: LogShape) -> FollowerEffects:
        """Note that the log has done its work: `shape` is its new shape, flushed to the end."""
        self.shape = shape
        self._log_works = shape.flushed_end != shape.end
        self.changed()
        return self._advance()

    def log_failed(self, reason: StopReason) -> FollowerEffects:
        """Note an error of the log. The replica stops; a new `PartitionFollower` begins again."""
        self.stopped = reason
        self.changed()
        return [StopReplica(reason)]

    def _advance(self) -> FollowerEffects:
        reached = max(self.shape.start.offset, min(self.shape.flushed_end, self.leader_high_watermark))
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [FollowerHighWatermarkMoved(reached)]

    def __str__(self) -> str:
        log = f"log {self.shape.end} flushed {self.shape.flushed_end} high watermark {self.high_watermark}"
        state = "" if self.stopped is None else f"; stopped: {self.stopped}"
        return f"follower of {self.leader_id} epoch {self.leader_epoch}: {log}{state}"
