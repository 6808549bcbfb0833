"""Moves: what a change of a partition looks like in the tables, remembered.

A *move* leads from one shape of a partition to another (`snapshots.offline.shares.steps`: a shape is a state without its two
epochs). Most rows of a history come from few moves. Example:
  1. broker 2 leaves the ISR (1, 2, 3) of orders-0: the lists are compared, and `isr` is `[1,2,3]` before and `[1,3]` after;
  2. broker 2 leaves the ISR of orders-7, which is in the same shape: the two texts and the four lists are there already.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from metadata_log.format.partition_state import ISR
from metadata_log.format.records import Partition
from snapshots.offline.history.folding.changes import COUNTERS, field_text
from snapshots.offline.history.folding.conditions import conditions_of
from snapshots.offline.shares.steps import Shape

MOVES_MAX: Final = 1 << 16
"""Maximum number of moves that one task remembers, and of texts and of judged shapes."""
_FIELDS: Final = tuple((place, name) for place, name in enumerate(Partition._fields[2:]) if name not in COUNTERS)


class FieldMove(NamedTuple):
    """A field of the partition that differs, as texts."""

    field: str
    old: str | None
    new: str | None


IsrMove = tuple[list[int], list[int], list[int], list[int]]
"""The ISR before and after, and the members that left and joined."""


class Move(NamedTuple):
    """The difference of two shapes."""

    fields: tuple[FieldMove, ...]
    isr: IsrMove | None
    """None: the ISR has the same members."""


class Moves:
    """The remembered moves of one task. They hold its shapes, so they end with the task: Spark uses a Python process again and
    again, and moves that outlive their task keep the memory, and slow down the collector of the next job.
    """

    def __init__(self) -> None:
        self.between: Callable[[Shape, Shape], Move] = lru_cache(MOVES_MAX)(self._move)
        """Returns the difference of two shapes."""
        self.conditions: Callable[[Shape, int], frozenset[str]] = lru_cache(MOVES_MAX)(_conditions)
        """Returns the conditions of a partition in this shape, with this `min.insync.replicas`."""
        self._text: Callable[[str, object], str | None] = lru_cache(MOVES_MAX)(_text)

    def _move(self, old: Shape, new: Shape) -> Move:
        before, after = old.state[ISR], new.state[ISR]
        fields = [
            FieldMove(name, self._text(name, old.state[place]), self._text(name, new.state[place]))
            for place, name in _FIELDS
            if old.state[place] != new.state[place]
        ]
        isr = None
        if set(before) != set(after):
            left = [each for each in before if each not in after]
            isr = [*before], [*after], left, [each for each in after if each not in before]
        return Move(tuple(fields), isr)


def _text(name: str, value: object) -> str | None:
    return field_text(Partition, name, value)


def _conditions(shape: Shape, min_isr: int) -> frozenset[str]:
    return conditions_of(shape.state, min_isr)
