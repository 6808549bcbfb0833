"""A problem of a controller: a current fault which an operator should know about.

A problem has a code, which never changes, and a text, which may change. Operators look up the code in the runbook and
set alerts on it: `metaquorum_problem{code="disk_full"} 1`. A node has at most one problem per code; a text about
several nodes names them all.

Example:

    1. The disk of controller 2 fills up. Its log says `problem code=disk_full`, and `/readyz` answers 503 with the text.
    2. `quorumctl quorum status` shows `Problem: 2: disk_full: the disk is full`.
    3. The operator makes room. The log says `problem solved code=disk_full`.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple


class ProblemCode(Enum):
    """All problems a controller reports. `deploy/runbook.md` has a row for each code."""

    DISK_FULL = "disk_full"
    """The disk has no room: the node votes, grants no pre-vote, does not lead, and fetches nothing."""
    FLUSH_HANGS = "flush_hangs"
    """The disk does not finish a flush: the node does not lead until the flush ends."""
    LOG_DAMAGED = "log_damaged"
    """Records inside the log cannot be read: the node votes, and does not lead until they are repaired."""
    LOG_END_LOST = "log_end_lost"
    """The log lacks records the node may have acknowledged. The node does not vote until the records are in the log
    again."""
    REPLAY_STOPPED = "replay_stopped"
    """The node cannot apply a committed record: it replicates, and its image stays as it is."""
    IMAGE_DIFFERS = "image_differs"
    """The node's image differs from a majority's. The node applies no more records until a restart."""
    IMAGES_DISAGREE = "images_disagree"
    """Two nodes have applied the same log to different images, and no majority shows the right one."""
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
    CERTIFICATE_UNUSABLE = "certificate_unusable"
    """Other nodes refuse the certificate in this node's files. If the files are new, the node still shows the old certificate."""

    @property
    def blocks_ready(self) -> bool:
        """True if a node with this problem is not ready: `/readyz` then answers 503."""
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
        """True if the problem keeps the node from serving the quorum or its readers."""
        return self.code.blocks_ready

    def __str__(self) -> str:
        return f"{self.code.value}: {self.text}"


def found(*each: tuple[ProblemCode, str | None]) -> tuple[Problem, ...]:
    """The problems among the given pairs. A pair without a text is no problem."""
    return tuple(Problem(code, text) for code, text in each if text)


def texts(problems: Iterable[Problem]) -> str:
    """The texts of `problems` in one line; empty without problems."""
    return "; ".join(problem.text for problem in problems)
