"""What a node does about its disk, beside writing its log: it looks for damage, has it mended, and makes room.

    scrub --finds--> damage <--finds-- whoever reads
                       |
                     repair: what is missing is fetched from other voters      space: who gives way when the disk is full

About once a second it looks whether its directory is still there: a file that was removed while it is open takes writes and
flushes for ever, and a node under which somebody ran `rm -rf` would go on voting and acknowledging without a memory. Each vote
and each flush finds that out by itself (`metadata_log.disk.files`), and an idle node within that second.

While something is missing, or there is no room to go on, the node is not fit to lead (`quorum.core.protocol.disk_trust`).
"""

from collections.abc import Callable, Sequence

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import NodeId, OffsetAndEpoch, ReplicaKey
from quorum.core.protocol.deadlines import soonest
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest
from quorum.runtime.disk.open_directory import Opened
from quorum.runtime.disk.repair import Repair, Send
from quorum.runtime.disk.scrub import Scrub
from quorum.runtime.disk.space import Space
from quorum.runtime.protocol.jobs import ScrubJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import DiskStatus
from snapshots.format import parse_name

LOOK_MS = 1_000
"""How long an idle node may take to notice that its directory was removed."""


class Disk:
    """One node's. Owned by its thread."""

    def __init__(
        self,
        opened: Opened,
        config: NodeConfig,
        me: ReplicaKey,
        others: Callable[[], Sequence[NodeId]],
        may_load: Callable[[], bool],
        send: Send,
        now_ms: int,
    ) -> None:
        self._log = opened.log
        self._directory = opened.directory
        self._look_ms = now_ms + LOOK_MS
        self._snapshotter = opened.snapshotter
        self.space = Space(opened.directory, self._log, now_ms, has_ballast=opened.has_ballast)
        self.repair = Repair(self._log, self._snapshotter, self.space, me, others, may_load, send)
        self.scrub = Scrub(self._log, self._snapshotter.store, config.scrub_interval_ms, now_ms)
        self._damage_found = len(self._log.damage)
        self._last_damage = "; ".join(str(each) for each in self._log.damage)
        self._log.on_damage = self._count_damage

    @property
    def is_fit_to_lead(self) -> bool:
        return not self._log.damage and not self.space.is_short

    def cannot_keep_what(self, request: FetchRequest | FetchSnapshotRequest) -> bool:
        """Whether what would be the answer has to wait: for room, or for the one download that there can be."""
        return self.space.is_short or (self.repair.is_loading and isinstance(request, FetchSnapshotRequest))

    def next_deadline_ms(self) -> int | None:
        own = (self.repair.next_deadline_ms(), self.scrub.next_deadline_ms(), self.space.next_deadline_ms())
        return soonest(self._look_ms, *own)

    def check_in_place(self, now_ms: int) -> None:
        """Looks whether the directory is still this node's, if it is time to.

        Raises:
            Removed: stop the process.
        """
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self._directory.check_in_place()
            self._log.check_in_place()

    def found_damage(self, error: CorruptLog) -> None:
        """Takes note of what is damaged. The repair begins by itself.

        Raises:
            CorruptLog: it is nothing that could be mended.
        """
        self._log.note_damage(error)

    def _count_damage(self, what: str) -> None:
        self._damage_found += 1
        self._last_damage = what

    def finish_scrub(self, job: ScrubJob, error: Exception | None) -> OffsetAndEpoch | None:
        """A slice was read again; gives a snapshot that turned out to be damaged.

        Raises:
            CorruptLog: damage that could not be mended.
            Exception: `error`, if it says nothing of what was written.
        """
        counts = self.scrub.finished(job)
        if not counts or error is None or isinstance(error, FileNotFoundError):
            return None  # intact; or retired, or mended, since the pass began
        if not isinstance(error, CorruptLog):
            raise error
        snapshot = parse_name(job.extent.name)
        if snapshot is None:
            # (Retention may have dropped it while it was read; what is damaged there is nobody's loss.)
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
