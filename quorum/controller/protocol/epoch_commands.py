"""The commands that raise the epochs of all partitions after `quorum recover`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorum.controller.protocol.pieces import Piece


@dataclass(frozen=True, slots=True)
class RaiseEpochs:
    """Raise the epochs for this generation of the cluster; nothing if that was done. An active controller decides this first."""

    generation: int


@dataclass(frozen=True, slots=True, eq=False)
class ContinueRaise:
    """Decide the next slice of a raise."""

    generation: int
    partition_count: int
    """How many partitions the cluster has."""
    is_large: bool
    """True if the raise takes several slices, as one transaction."""
    pieces: Iterator[Piece] = field(repr=False)
    """The pieces that are not decided yet."""
