"""The judgement if a controller fits this cluster as a voter: the core asks for it, because the core knows no features.

Example: the cluster is at `metadata.version` 2, and leader 1 is asked to add controller 4.
    1. Controller 4 runs release 0.1.0, which supports 1 to 1. As a voter it could not replay the log: the leader refuses.
    2. Controller 4 runs a newer release, and has not registered yet. The leader waits for its registration.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from metadata_log.format.ids import ReplicaKey


class Unfit(NamedTuple):
    """The reason why a controller cannot become a voter. `may_pass`: the reason may end by itself, so the leader waits."""

    why: str
    may_pass: bool


JudgeNewcomer: TypeAlias = Callable[[ReplicaKey], Unfit | None]
"""Judges a controller by the metadata that the leader has proposed. None: the controller fits."""


def everyone_fits(_: ReplicaKey) -> None:
    """The judgement of a core without metadata."""
