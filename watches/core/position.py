"""Positions of watches: a place between two batches of one history, and what a node can do with it.

The history below an offset is named by the chain there (`metadata_log.format.batch`), and the epoch of the batch below. So a
position that one node has handed out is good at every node with the same history. Example with a position at offset 1,244:
    1. node 2 has applied everything below 1,240: the verdict is WAIT, because node 2 is only late;
    2. node 2 applies up to 1,250, and has the same epoch and chain at 1,244: CONTINUE;
    3. the log of node 3 begins at 2,000: RESET, BELOW_LOG_START;
    4. `quorum recover` has cut the history at 1,200. Node 1 ends at 1,210 in a newer epoch, so its history cannot have the
       batch below 1,244: RESET, OTHER_GENERATION. Node 1 need not wait until its own log has grown beyond 1,244.

*A skipped batch* (`metadata_log.image.skips`) is shown by a node that could apply it, and not by the others. So a position above
the batch, and not above the record that skips it, may stand for two different states: the verdict is RESET.
"""

from collections.abc import Sequence
from enum import IntEnum, unique
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import SkippedBatch


class Position(NamedTuple):
    """A place between two batches: everything below `offset` is seen."""

    generation: int
    offset: Offset
    epoch: Epoch
    """The epoch of the batch below; 0 if no batch is below."""
    chain: bytes
    """The chain at `offset`. Empty: not known, which is allowed at offset 0 only."""


@unique
class ResetReason(IntEnum):
    """Why a watch goes on with the state instead of the changes. The numbers are those of the wire."""

    NO_POSITION = 1
    BELOW_LOG_START = 2
    OTHER_GENERATION = 3
    OTHER_HISTORY = 4


class Wait(NamedTuple):
    """The node has not applied everything below the position yet."""


class Continue(NamedTuple):
    """The history of the node has the position."""


class Reset(NamedTuple):
    """The history of the node does not have the position."""

    reason: ResetReason


Verdict: TypeAlias = Wait | Continue | Reset

Skips: TypeAlias = Sequence[tuple[Offset, SkippedBatch]]
"""The records about skipped batches in a log, each with its offset."""


class Place(NamedTuple):
    """The knowledge of a node about one offset of its log, and about the bounds of the log."""

    start: Offset
    """The log begins here."""
    end: Offset
    """Everything below is committed and applied here."""
    last_epoch: Epoch
    """The epoch of the batch below `end`."""
    epoch: Epoch | None
    """The epoch of the batch below the offset; None: the offset is outside of the log."""
    chain: bytes | None
    """The chain at the offset; None: the offset is outside of the log, or inside a batch."""
    skips: Skips = ()


BEGINNING: Final = 0
"""The offset before the first record of a cluster."""


def verdict(position: Position, generation: int, place: Place) -> Verdict:
    """Return what a node of `generation` can do with `position`; `place` is the node's knowledge about `position.offset`."""
    if position.generation > generation:
        return Wait()
    other = ResetReason.OTHER_HISTORY if position.generation == generation else ResetReason.OTHER_GENERATION
    if position.offset > place.end:
        return Reset(other) if place.last_epoch > position.epoch else Wait()
    if position.offset < place.start:
        return Reset(ResetReason.BELOW_LOG_START)
    is_beginning = position.offset == BEGINNING and not position.chain
    if not is_beginning and (position.chain != place.chain or position.epoch != place.epoch):
        return Reset(other)
    if is_ambiguous(position.offset, place.skips):
        return Reset(ResetReason.OTHER_HISTORY)
    return Continue()


def is_ambiguous(since: Offset, skips: Skips) -> bool:
    """Return True if a reader that has seen everything below `since` may, or may not, have seen a batch that is skipped."""
    return any(skip.dropped_start < since <= at for at, skip in skips)
