"""The state of a node's snapshot downloads and installations. The theory is in `quorum.core.download`.

Example:

    1. Follower 3 has 6 MiB of snapshot 500 (`part`), when its leader dies. The part stays.
    2. The new leader sends the rest. The download is complete: `part` becomes `installing`.
    3. The file fails verification. The failure is counted (`failed`), and both are cleared.
"""

from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.protocol.download import Download


class InstallState:
    """One node's snapshot download, installation, and failures of both."""

    __slots__ = ("failed", "installing", "part", "put_off")

    def __init__(self, part: Download | None, now_ms: int) -> None:
        self.part = part
        """The downloaded part of a snapshot, kept through changes of leader and role."""
        self.installing: Download | None = None
        """The snapshot with a complete download and an installation in progress."""
        self.failed: tuple[OffsetAndEpoch | None, int, str] = (None, 0, "")
        """The snapshot whose installation failed, the number of failures, and the last reason."""
        self.put_off: tuple[int, OffsetAndEpoch | None, str] = (now_ms, None, "")
        """Until when the node puts off a snapshot fetch, for which snapshot, and why."""

    def resume(self, snapshot: OffsetAndEpoch) -> Download:
        """The download of `snapshot`: from the part on disk, or from the beginning."""
        return self.part if self.part is not None and self.part.snapshot == snapshot else Download(snapshot)

    def is_put_off(self, snapshot: OffsetAndEpoch, now_ms: int) -> bool:
        until_ms, put_off, _ = self.put_off
        return snapshot == put_off and now_ms < until_ms

    def received(self, part: Download) -> None:
        """Notes the part on disk after a chunk."""
        self.part = part

    def complete(self) -> None:
        """The part is the whole file: the installation begins."""
        self.installing, self.part = self.part, None

    def drop(self) -> None:
        """Discards the part."""
        self.part = None

    def clear(self) -> None:
        """The installation has ended, in success or failure."""
        self.installing = self.part = None

    def succeeded(self) -> None:
        """Forgets the failures of an earlier snapshot."""
        self.failed = (None, 0, "")

    def note_failure(self, snapshot: OffsetAndEpoch, reason: str) -> int:
        """Counts a failed installation. Returns the number of failures of this snapshot."""
        failed, times, _ = self.failed
        times = times + 1 if failed == snapshot else 1
        self.failed = (snapshot, times, reason)
        return times

    def put_off_until(self, at_ms: int, snapshot: OffsetAndEpoch, reason: str) -> None:
        """Lets no fetch of `snapshot` begin before `at_ms`."""
        self.put_off = (at_ms, snapshot, reason)
