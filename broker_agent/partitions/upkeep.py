"""The regular work on all partitions: the files of high watermarks, and retention.

Retention looks at one log in each slice, because an old segment may have to end, which waits for the disk:

    1. At 300 s the walk begins, with 1,000 open logs.
    2. Each `tick` looks at one log. The log forgets what is too old; a thread deletes the files (`TrimLog`).
"""

from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting


class Upkeep:
    """The regular work."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._write_at_ms: int | None = None
        self._retain_at_ms: int | None = None
        self._walk: list[HostedReplica] = []

    def start(self, now_ms: int) -> None:
        """Begin to count the time."""
        config = self._hosting.config
        self._write_at_ms = now_ms + config.high_watermark_interval_ms
        self._retain_at_ms = now_ms + config.retention_interval_ms

    def tick(self, now_ms: int) -> HostedReplica | None:
        """Do what is due. Return the replica whose retention is to be applied now."""
        config = self._hosting.config
        if self._write_at_ms is not None and now_ms >= self._write_at_ms:
            self._write_at_ms = now_ms + config.high_watermark_interval_ms
            self.write_high_watermarks()
        if self._retain_at_ms is not None and now_ms >= self._retain_at_ms:
            self._retain_at_ms = now_ms + config.retention_interval_ms
            self._walk = list(self._hosting.replicas.values())
        while self._walk:
            replica = self._walk.pop()
            is_busy = bool(replica.work) or replica.job is not None
            if replica.is_open and not is_busy and (replica.leader is not None or replica.follower is not None):
                return replica
        return None

    def retain(self, replica: HostedReplica, wall_ms: int) -> None:
        """Apply the retention of one log.

        Raises:
            CorruptLog, OSError, FlushFailed: see `PartitionLog.begin_retention`.
        """
        role = replica.leader or replica.follower
        assert role is not None and replica.log is not None
        self._hosting.begin_trim(replica, replica.log.begin_retention(role.high_watermark, wall_ms))

    def write_high_watermarks(self) -> None:
        """Write the files that have changed."""
        for directory in self._hosting.online():
            work = directory.write()
            if work is not None:
                self._hosting.emit(work)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `tick` is due."""
        if self._walk:
            return now_ms
        return min([each for each in (self._write_at_ms, self._retain_at_ms) if each is not None], default=None)
