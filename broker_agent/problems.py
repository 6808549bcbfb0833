"""What may be wrong with a broker although it serves: shown by /healthz, `BrokerStatus`, metrics and the embedding `Agent`."""

from typing import Final, NamedTuple, Protocol

DISK_FULL: Final = "disk_full"
PUBLISHER_FAILED: Final = "publisher_failed"
REPLICA_FAILED: Final = "replica_failed"
DIRECTORY_FAILED: Final = "log_directory_failed"
STRAY_LOGS: Final = "stray_logs"
PROBLEM_CODES: Final = (DISK_FULL, PUBLISHER_FAILED, REPLICA_FAILED, DIRECTORY_FAILED, STRAY_LOGS)
"""The codes of all problems. A code never changes."""


class BrokerProblem(Protocol):
    """A problem that a broker has now."""

    @property
    def code(self) -> str:
        """One of PROBLEM_CODES."""

    @property
    def subject(self) -> str:
        """The part of the broker with the problem, unique among the problems of a moment."""

    @property
    def text(self) -> str:
        """The problem as a sentence for people, with what to do."""


class DiskFull(NamedTuple):
    """The disk has no room for the broker's copy of the metadata."""

    reason: str
    """The disk's error."""

    @property
    def code(self) -> str:
        return DISK_FULL

    @property
    def subject(self) -> str:
        return "disk"

    @property
    def text(self) -> str:
        """The problem as a sentence for people, with what to do."""
        return (
            f"the disk is full ({self.reason}): the broker serves on, and keeps new metadata in memory only. Make room, at least "
            "4 MiB: the problem ends within a second. Do not restart the broker before"
        )
