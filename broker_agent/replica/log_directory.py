"""A log directory of a broker: the logs of all replicas in it, and how many of them have open files.

    <log directory>/
        mcqrLbHYQLWKGxoG7QnVuA-0/             log of partition 0 of the topic with this id: segments, `flushed`, `log-start`
        mcqrLbHYQLWKGxoG7QnVuA-1/
        9pHd5ZyUTEmjJ7rQmBzcFw-0.deleted/     a deletion that a crash ended; the next start completes it

A log is found by topic id, never by name. Example:
  1. Broker 101 is down while topic `orders` is deleted and created again.
  2. Broker 101 starts. Its old logs have the old topic id, so no record of the old topic comes into the new topic.
  3. The assignments name no partition with the old id: the old logs are stray. They are reported, and an operator decides.

*Open files.* A log in use has two or three open files. `used` closes the files of the logs that were idle longest, so that at
most `OPEN_LOGS_MAX` logs have open files, besides those with unflushed records.
"""

import re
from typing import Final, NamedTuple

from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.partition_log_config import PartitionLogConfig
from metadata_log.disk.files import DELETED_SUFFIX, Directory
from metadata_log.format.ids import Uuid, parse_uuid, uuid_text

OPEN_LOGS_MAX: Final = 1_000
"""Maximum number of logs whose files stay open while nothing waits for a flush."""
_TRIED_MAX: Final = 4
"""How many idle logs one call tries to close. Some of them may wait for a flush."""

_NAME: Final = re.compile(r"([A-Za-z0-9_-]{22})-(0|[1-9]\d{0,9})")


class ReplicaPlace(NamedTuple):
    """The partition whose log this is."""

    topic_id: Uuid
    partition: int

    @property
    def name(self) -> str:
        """The name of the replica's directory."""
        return f"{uuid_text(self.topic_id)}-{self.partition}"


def place_of(name: str) -> ReplicaPlace | None:
    """Return the partition of a directory name; None for the name of another file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        place = ReplicaPlace(parse_uuid(match[1]), int(match[2]))
    except ValueError:
        return None
    return place if place.name == name else None


class LogDirectory:
    """One log directory. One thread calls the methods; only `open` may run on other threads, at the same time."""

    def __init__(self, directory: Directory, open_logs_max: int = OPEN_LOGS_MAX) -> None:
        """Complete the deletions that a crash has ended."""
        self._directory = directory
        self._open_logs_max = open_logs_max
        self._in_use: dict[PartitionLog, None] = {}
        """The logs with open files; the one that was idle longest is the first."""
        for name in directory.names():
            if name.endswith(DELETED_SUFFIX) and place_of(name.removesuffix(DELETED_SUFFIX)) is not None:
                directory.remove_directory(name)

    def places(self) -> list[ReplicaPlace]:
        """Return the partitions that have a log here, open or not."""
        found = map(place_of, self._directory.names())
        return [place for place in found if place is not None]

    def open(
        self,
        place: ReplicaPlace,
        *,
        wall_ms: int,
        config: PartitionLogConfig = PartitionLogConfig(),  # noqa: B008 - immutable
    ) -> PartitionLog:
        """Open or create the log of a partition; see `PartitionLog.open`. The log's files are open: call `used`, or `rest`.

        Most of the time is spent waiting for the disk, so a broker with many partitions opens several at once.
        """
        topic_id, partition = place
        return PartitionLog.open(
            self._directory.subdirectory(place.name), topic_id, partition, wall_ms=wall_ms, config=config
        )

    def used(self, log: PartitionLog) -> None:
        """Note that `log` was used now, and close the files of logs that were idle longest."""
        self._in_use.pop(log, None)
        self._in_use[log] = None
        surplus = len(self._in_use) - self._open_logs_max
        for _ in range(min(surplus, _TRIED_MAX)):
            idle = next(iter(self._in_use))
            del self._in_use[idle]
            if not idle.rest():
                self._in_use[idle] = None

    def close(self, log: PartitionLog) -> None:
        """Close `log`; it is not used any more."""
        self._in_use.pop(log, None)
        log.close()

    def delete(self, place: ReplicaPlace) -> None:
        """Delete the log of a partition, which is closed or was never opened. Does nothing if there is none.

        Raises:
            OSError: the disk is broken; the log is there as a whole, or the next start deletes the rest.
        """
        if self._directory.exists(place.name):
            self._directory.remove_directory(place.name)
