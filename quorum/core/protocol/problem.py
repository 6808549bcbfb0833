"""A problem of a controller: something that an operator should know, true of the node now.

A problem has a code, which never changes, and a text, which may. Operators look the code up in the runbook and alert on it:
`metaquorum_problem{code="disk_full"} 1`. A node has at most one problem of each code at a time; a text that concerns
several nodes names them all.

An example. The disk of controller 2 fills up. Its log says `problem code=disk_full`, `/readyz` answers 503 with the text, and
`quorumctl quorum status` shows `Problem: 2: disk_full: the disk is full`. When there is room again, the log says
`problem solved code=disk_full`.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple


class ProblemCode(Enum):
    """Every problem that a controller reports. `deploy/runbook.md` has a row for each, by its value."""

    DISK_FULL = "disk_full"
    """The disk has no room: the node votes, does not lead, and fetches nothing."""
    FLUSH_HANGS = "flush_hangs"
    """The disk does not finish a flush: the node does not lead until the flush ends."""
    LOG_DAMAGED = "log_damaged"
    """Records inside the log cannot be read: the node votes, and does not lead until they are repaired."""
    LOG_END_LOST = "log_end_lost"
    """The log lacks records that the node may have acknowledged: the node does not vote until it has them again."""
    REPLAY_STOPPED = "replay_stopped"
    """The node cannot apply a committed record: it replicates, and answers no reads."""
    IMAGE_DIFFERS = "image_differs"
    """The node's image differs from that of a majority: the node applies nothing more until it is restarted."""
    IMAGES_DISAGREE = "images_disagree"
    """Two nodes have applied the same log to different images, and no majority says which image is right."""
    HISTORY_DISPUTED = "history_disputed"
    """Another node has a different record at the same offset and epoch. No log is cut."""
    SNAPSHOT_UNLOADABLE = "snapshot_unloadable"
    """The leader's snapshot was fetched several times and could not be loaded."""
    SNAPSHOT_NOT_KEPT = "snapshot_not_kept"
    """The leader's snapshot could not be stored here, and is fetched again."""
    EPOCHS_RUN_OUT = "epochs_run_out"
    """Few epochs are left, or none: forged messages have raised the epoch."""
    VOTER_FALLS_BEHIND = "voter_falls_behind"
    """A voter fetches, and lacks more and more records. The leader reports this."""
    DECISION_FAILED = "decision_failed"
    """An internal error ended a decision of this controller. Shown for ten minutes."""

    @property
    def blocks_ready(self) -> bool:
        """Whether a node with this problem does not do its part: `/readyz` then answers 503."""
        return self in _BLOCKING


_BLOCKING: Final = frozenset(
    {
        ProblemCode.DISK_FULL,
        ProblemCode.FLUSH_HANGS,
        ProblemCode.LOG_END_LOST,
        ProblemCode.REPLAY_STOPPED,
        ProblemCode.IMAGE_DIFFERS,
    }
)


class Problem(NamedTuple):
    """One problem of one node, as it is now."""

    code: ProblemCode
    text: str
    """One sentence without a full stop."""

    @property
    def blocks_ready(self) -> bool:
        """Whether the problem keeps the node from doing its part, in the quorum or for its readers."""
        return self.code.blocks_ready

    def __str__(self) -> str:
        return f"{self.code.value}: {self.text}"


def found(*each: tuple[ProblemCode, str | None]) -> tuple[Problem, ...]:
    """The problems among these pairs: a pair without a text is none."""
    return tuple(Problem(code, text) for code, text in each if text)


def texts(problems: Iterable[Problem]) -> str:
    """The texts of `problems` in one line; empty if there are none."""
    return "; ".join(problem.text for problem in problems)
