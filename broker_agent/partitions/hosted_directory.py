"""One log directory of this broker: logs, high watermarks, and the state of the disk.

The high watermarks of all replicas are in one file, written every few seconds. One write is under way at a time. A truncation
below the high watermark *in the file* waits until a write with the lower one has ended, however often it is decided again:

    1. The file says 90 for orders-0. An unclean election makes a leader whose log ends at 50.
    2. The follower truncates to 50, fetches up to 100, and its machine loses power.
    3. If the file still said 90, the records 50 to 89 would count as committed. The new leader may not have committed them.
"""

from collections.abc import Mapping

from broker_agent.partitions.effects import WriteHighWatermarks
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.replica.high_watermarks import read_high_watermarks
from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace
from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, Uuid


class HostedDirectory:
    """One log directory. Attributes without an underscore are for reading only."""

    def __init__(self, directory_id: Uuid, files: Directory, open_logs_max: int) -> None:
        """Read what is in the directory, and complete interrupted deletions.

        Raises:
            OSError: the disk is broken.
        """
        self.id = directory_id
        self.files = files
        self.logs = LogDirectory(files, open_logs_max)
        self.places: set[ReplicaPlace] = set(self.logs.places())
        """The partitions with a log here, open or not, or in the making."""
        self.failed: str | None = None
        """The reason for being offline; None while the disk works."""
        self.note = ""
        """The problem with the file of high watermarks; empty if there is none."""
        self._high_watermarks = self._read_high_watermarks()
        self._in_file: Mapping[ReplicaPlace, Offset] = dict(self._high_watermarks)
        self._being_written: Mapping[ReplicaPlace, Offset] = {}
        self._is_changed = False
        self._writing: list[HostedReplica] | None = None
        """While a write is under way: the waiting replicas."""
        self._waiting: list[HostedReplica] = []
        """The replicas that wait for the next write."""

    def _read_high_watermarks(self) -> dict[ReplicaPlace, Offset]:
        try:
            found = read_high_watermarks(self.files)
        except LogFormatError as e:
            self.note = str(e)
            return {}
        return {place: offset for place, offset in found.items() if place in self.places}

    @property
    def high_watermarks(self) -> Mapping[ReplicaPlace, Offset]:
        return self._high_watermarks

    def note_high_watermark(self, place: ReplicaPlace, high_watermark: Offset) -> None:
        """Note it for the next write."""
        self._high_watermarks[place] = high_watermark
        self._is_changed = True

    def forget(self, place: ReplicaPlace) -> None:
        """Note that the log was deleted."""
        self.places.discard(place)
        if self._high_watermarks.pop(place, None) is not None:
            self._is_changed = True

    # --- the file ----------------------------------------------------------------------------------------------------

    @property
    def is_written(self) -> bool:
        """True if the file has all high watermarks, or cannot be written any more."""
        return self.failed is not None or not (self._is_changed or self._writing is not None)

    def may_be_in_file(self, place: ReplicaPlace) -> Offset:
        """The high watermark that the next process may find; 0 if it finds none."""
        return max(self._in_file.get(place, 0), self._being_written.get(place, 0))

    def wait_for_write(self, replica: HostedReplica) -> None:
        """Make `replica` wait until the present high watermarks are in the file. Call `write` after this."""
        self._waiting.append(replica)
        self._is_changed = True

    @property
    def has_waiting(self) -> bool:
        """True if a replica waits for the next write."""
        return bool(self._waiting)

    def write(self) -> WriteHighWatermarks | None:
        """Return the work of writing the file; None if it is under way, or not needed."""
        if self.is_written or self._writing is not None:
            return None
        self._writing, self._waiting = self._waiting, []
        self._is_changed = False
        self._being_written = dict(self._high_watermarks)
        return WriteHighWatermarks(self.id, self.files, self._being_written)

    def wrote(self) -> list[HostedReplica]:
        """Note the end of a write; return the replicas that have waited."""
        self._in_file, self._being_written = self._being_written, {}
        return self._ended()

    def write_failed(self, *, is_last: bool) -> None:
        """Note that a write has failed, perhaps because the disk is full. The next write repeats it, unless this is the last."""
        self._being_written = {}  # the old file is there
        self._waiting += self._ended()
        self._is_changed = not is_last

    def _ended(self) -> list[HostedReplica]:
        assert self._writing is not None
        waited, self._writing = self._writing, None
        return waited
