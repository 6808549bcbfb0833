"""Takes care of the node's disk, beside the writing of the log: finds damage, starts its repair, and makes room.

    scrub --finds--> damage <--finds-- each read of the log
                       |
                     repair: fetches lost batches from other voters            space: handles a full disk

*A removed directory stops the node.* A file that was removed while open takes writes and flushes for ever. So a node whose
directory was deleted by `rm -rf` would go on voting and acknowledging without a memory. Each vote and each flush checks the
directory (`metadata_log.disk.files`); an idle node checks about once a second.

While the log has a damaged range, or the disk has no room, the node is not fit to lead (`quorum.core.protocol.disk_trust`).
Example: the scrub of leader 1 finds a bad batch at offset 40.
    1. `finish_scrub` calls `found_damage`: the log notes the damaged range [40, 45);
    2. at the end of the turn the node tells its core, and leader 1 resigns;
    3. `repair` fetches [40, 45) from voter 2; the range is whole again, and node 1 may lead again.
"""

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from quorum.core.protocol.deadlines import soonest
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest
from quorum.runtime.disk.open_directory import Opened
from quorum.runtime.disk.repair import Repair
from quorum.runtime.disk.scrub import Scrub
from quorum.runtime.disk.space import Space
from quorum.runtime.protocol.jobs import ScrubJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import DiskStatus
from snapshots.format import parse_name

LOOK_MS = 1_000
"""How long an idle node waits between two checks of its directory."""


class Disk:
    """The care for one node's disk. Only the node's thread uses this object."""

    def __init__(
        self,
        opened: Opened,
        config: NodeConfig,
        me: ReplicaKey,
        now_ms: int,
    ) -> None:
        self._log = opened.log
        self._directory = opened.directory
        self._look_ms = now_ms + LOOK_MS
        self._snapshotter = opened.snapshotter
        self.space = Space(opened.directory, self._log, now_ms, has_ballast=opened.has_ballast)
        self.repair = Repair(me)
        self.scrub = Scrub(self._log, self._snapshotter.store, config.scrub_interval_ms, now_ms)
        found = [str(each) for each in self._log.damage]
        if self._log.lost is not None:
            found.append(f"the end of the log is lost: the log had reached offset {self._log.lost.end}")
        self._damage_found = len(found)
        self._last_damage = "; ".join(found)
        self._log.on_damage = self._count_damage

    def cannot_keep_what(self, request: FetchRequest | FetchSnapshotRequest) -> bool:
        """True if the answer to `request` could not be kept now: the disk is full, or the repair uses the only download."""
        return self.space.is_short or (self.repair.is_loading and isinstance(request, FetchSnapshotRequest))

    def next_deadline_ms(self) -> int | None:
        repair_ms = self.repair.next_deadline_ms(has_damage=bool(self._log.damage))
        return soonest(self._look_ms, repair_ms, self.scrub.next_deadline_ms(), self.space.next_deadline_ms())

    def check_in_place(self, now_ms: int) -> None:
        """Checks, about once a second, that the directory is still in its place.

        Raises:
            Removed: the directory or a file was removed; the process must stop.
        """
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self._directory.check_in_place()
            self._log.check_in_place()

    def found_damage(self, error: CorruptLog) -> None:
        """Notes the damage. The repair begins by itself.

        Raises:
            CorruptLog: the damage cannot be repaired.
        """
        self._log.note_damage(error)

    def _count_damage(self, what: str) -> None:
        self._damage_found += 1
        self._last_damage = what

    def finish_scrub(self, job: ScrubJob, error: Exception | None) -> OffsetAndEpoch | None:
        """Takes the result of a scrub job. Returns the snapshot of the slice if the job has found the snapshot damaged.

        Raises:
            CorruptLog: the log has damage that cannot be repaired.
            Exception: `error`, if the error says nothing about the data.
        """
        counts = self.scrub.finished(job)
        if not counts or error is None or isinstance(error, FileNotFoundError):
            return None  # intact; or the file was deleted or repaired since the pass began
        if not isinstance(error, CorruptLog):
            raise error
        snapshot = parse_name(job.extent.name)
        if snapshot is None:
            # Retention may have deleted the segment during the read; damage in a deleted segment does not matter.
            if any(each.name == job.extent.name for each in self._log.extents()):
                self.found_damage(error)
            return None
        self._count_damage(str(error))
        return snapshot[0]

    def status(self) -> DiskStatus:
        return DiskStatus(
            damage_found=self._damage_found,
            last_damage=self._last_damage,
            damaged_records=sum(each.end - each.start for each in self._log.damage),
            damage_mended=self.repair.mended_ranges,
            scrubbed_bytes=self.scrub.scrubbed_bytes,
            is_full=self.space.is_short,
            log_bytes=self._log.size_bytes,
        )
