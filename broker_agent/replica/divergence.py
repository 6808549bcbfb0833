"""Comparing the logs of two replicas by leader epochs, never by the high watermark (KIP-101, KIP-279, KIP-320).

A follower fetches from the end of its log, and names the leader epoch of its last record. The leader looks for this place in its
own log. If the leader has another epoch there, the leader names the end of its largest epoch that is not later than the
follower's. The follower truncates its log, and fetches again. Each round skips at least one epoch.

    leader    1 1 1 4 4 5        epoch table (1,0) (4,3) (5,5)
    follower  1 1 1 3 3 3 3

    1. The follower fetches at offset 7 with epoch 3. The leader has no epoch 3, and answers "epoch 1 ends at 3".
    2. The follower truncates to 3, and fetches at offset 3 with epoch 1.
    3. The leader has epoch 1 below offset 3: the logs agree.

A truncation to the high watermark loses records. The follower's high watermark lags behind the leader's, so records above it may
be committed:

    1. Leader 1 and follower 2 have the records 0 and 1, and both are acknowledged. Follower 2 knows only the high watermark 1.
    2. Broker 2 restarts, truncates to 1, and becomes leader before its next fetch. Record 1 is lost.
"""

from dataclasses import dataclass
from typing import TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape


@dataclass(frozen=True, slots=True)
class Valid:
    """The follower's log is a prefix of the leader's."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """The follower's log is no prefix of the leader's. `end` is the end of the leader's largest epoch that is not later."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Refused:
    """The leader does not serve the fetch, for a reason in Kafka's words."""

    code: ErrorCode


Verdict: TypeAlias = Valid | Diverged | Refused
"""A leader's judgement of one fetch. Only a valid fetch is an acknowledgement."""


def judge_fetch(shape: LogShape, offset: Offset, last_fetched_epoch: Epoch) -> Verdict:
    """Judge the fetch of a log that ends at `offset` with a record of `last_fetched_epoch`.

    OFFSET_OUT_OF_RANGE: the leader's log begins above the place at which both logs could agree.
    """
    if offset < shape.start.offset or last_fetched_epoch < shape.start.epoch:
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    if shape.epoch_below(offset) == last_fetched_epoch:
        return Valid()
    if offset == shape.start.offset:
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    return Diverged(shape.end_of_epoch(last_fetched_epoch))


def truncation_point(shape: LogShape, diverged: OffsetAndEpoch) -> Offset:
    """Return the offset to which a follower truncates its log after the leader has answered `Diverged(diverged)`.

    A follower without records of that epoch truncates to the end of its own largest epoch below. Otherwise both logs agree up to
    the lesser end of that epoch.
    """
    mine = shape.end_of_epoch(diverged.epoch)
    return min(mine.offset, diverged.offset) if mine.epoch == diverged.epoch else mine.offset
