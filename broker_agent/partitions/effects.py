"""The effects of `ReplicaManager`: what its caller has to do, and where the outcome goes.

| effect | the caller | then |
|---|---|---|
| `OpenLog`, `DeleteLog`, `TrimLog`, `FindTime` | calls `run` on any thread | `disk_done` or `disk_failed` |
| `Flush`, `WriteHighWatermarks` | the same, sooner than the others | the same |
| `SendFetch` | asks the source broker | `fetch_answered` or `fetch_failed` |
| `SendProposal` | sends AlterPartition | `proposal_answered` |
| `Produced` | answers the write | |
| `OffsetFound` | answers the question | |
| `Wake` | calls `poll` | |
| `AssignDirectory` | tells the controllers (`Agent.assign_directories`) | |
| `ReplicaFailed`, `StrayLogs` | shows a problem | |
| `DirectoryFailed` | tells the controllers (`Agent.directory_failed`), shows a problem | |
| `BrokerFailed` | ends the process | |
| `Stopped` | calls `close` | |

The effects of one call are in order. Disk work may run at the same time on several threads, in any order:

    1. `append` returns `Flush(orders-0)`. A thread runs `Flush.run`, which waits for the disk.
    2. Meanwhile `append` is called again. It returns no second `Flush` for orders-0.
    3. `disk_done(flush)` returns `Produced` for the first write, and the next `Flush`, for all records that came meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from broker_agent.partitions.open_fetch import OpenFetch
from broker_agent.replica.fetchers import Fetcher, FetcherKey, Request
from broker_agent.replica.high_watermarks import write_high_watermarks
from broker_agent.replica.isr import ProposeIsr
from broker_agent.replica.leader import PartitionLeader
from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.time_search import TimedOffset, TimeSearch
from metadata_log.disk.files import Directory
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, Uuid
from metadata_log.store.log_notes import Trim

UNKNOWN_OFFSET: Final = -1
"""The base offset of a write that was refused."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenLog:
    """Disk work: open or create the log of a replica. Takes long for a long log."""

    place: ReplicaPlace
    directory: Uuid
    log_directory: LogDirectory
    config: PartitionLogConfig

    def run(self, wall_ms: int) -> PartitionLog:
        """Return the log, for `disk_done`. Raises the errors of `PartitionLog.open`."""
        return self.log_directory.open(self.place, wall_ms=wall_ms, config=self.config)


@dataclass(frozen=True, slots=True, eq=False)
class DeleteLog:
    """Disk work: delete the log of a replica."""

    place: ReplicaPlace
    directory: Uuid
    log_directory: LogDirectory

    def run(self, wall_ms: int) -> None:
        """Delete the log. Raises OSError."""
        self.log_directory.delete(self.place)


@dataclass(frozen=True, slots=True, eq=False)
class TrimLog:
    """Disk work: make a later log start durable, and delete the segments below."""

    place: ReplicaPlace
    directory: Uuid
    trim: Trim

    def run(self, wall_ms: int) -> None:
        """Write the start, and delete. Raises OSError, FlushFailed."""
        self.trim.run()


@dataclass(frozen=True, slots=True, eq=False)
class Flush:
    """Disk work: make the records of a log durable."""

    place: ReplicaPlace
    directory: Uuid
    log: PartitionLog
    ticket: FlushTicket

    def run(self, wall_ms: int) -> None:
        """Wait for the disk. Raises FlushFailed."""
        self.ticket.sync()


@dataclass(frozen=True, slots=True, eq=False)
class WriteHighWatermarks:
    """Disk work: write the high watermarks of a log directory. One such effect of a directory is under way at a time."""

    directory: Uuid
    files: Directory
    high_watermarks: Mapping[ReplicaPlace, Offset]

    def run(self, wall_ms: int) -> None:
        """Replace the file. Raises OSError, FlushFailed."""
        write_high_watermarks(self.files, self.high_watermarks)


@dataclass(frozen=True, slots=True, eq=False)
class FindTime:
    """Disk work: find the first record of a time. Reads up to a segment."""

    place: ReplicaPlace
    directory: Uuid
    search: TimeSearch
    leader: PartitionLeader
    """The leadership that is asked."""
    token: int

    def run(self, wall_ms: int) -> TimedOffset | None:
        """Return the record, for `disk_done`. Raises CorruptLog, OSError."""
        return self.search.run()


DiskWork: TypeAlias = OpenLog | DeleteLog | TrimLog | Flush | WriteHighWatermarks | FindTime
DiskResult: TypeAlias = PartitionLog | TimedOffset | None


@dataclass(frozen=True, slots=True, eq=False)
class SendFetch:
    """Send a fetch to the source broker. A fetcher has one request in flight at a time."""

    key: FetcherKey
    fetcher: Fetcher
    request: Request

    @property
    def source_id(self) -> NodeId:
        """The broker to ask."""
        return self.key.source_id


@dataclass(frozen=True, slots=True, eq=False)
class SendProposal:
    """Send AlterPartition for a partition that this broker leads. `NO_ANSWER` stands for a call that can no longer arrive."""

    place: ReplicaPlace
    proposal: ProposeIsr


@dataclass(frozen=True, slots=True)
class Produced:
    """Answer the write with this token; each token of `append` gets exactly one answer."""

    token: int
    code: ErrorCode
    base_offset: Offset = UNKNOWN_OFFSET
    """The offset of the first record. It is known, too, if the records are in the log and the write was not acknowledged."""
    log_start_offset: Offset = UNKNOWN_OFFSET
    message: str = ""


class FoundOffset(NamedTuple):
    """The answer to one question for an offset."""

    code: ErrorCode
    offset: Offset | None = None
    """None: no committed record is as young as the wanted time."""
    timestamp_ms: int = 0
    """The record's timestamp, if a time was wanted."""
    leader_epoch: Epoch = 0


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """Answer the question with this token; each token of `find_time` gets exactly one answer."""

    token: int
    found: FoundOffset


@dataclass(frozen=True, slots=True)
class Wake:
    """An open fetch may have an answer now: call `poll` in this turn of the loop or a later one."""

    fetch: OpenFetch


@dataclass(frozen=True, slots=True)
class AssignDirectory:
    """A replica has its log in this directory now."""

    place: ReplicaPlace
    directory: Uuid


@dataclass(frozen=True, slots=True)
class ReplicaFailed:
    """A replica serves no more. The other replicas go on."""

    place: ReplicaPlace
    reason: str


@dataclass(frozen=True, slots=True)
class DirectoryFailed:
    """All replicas of a log directory serve no more, until the next process."""

    directory: Uuid
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerFailed:
    """The last log directory has failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class StrayLogs:
    """These logs belong to no replica of this broker. They stay on the disk: an operator decides."""

    logs: tuple[tuple[Uuid, ReplicaPlace], ...]
    """Log directories and partitions. Empty: there are none any more."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """After `stop`: all records and high watermarks are on the disks that work."""


Effect: TypeAlias = (
    DiskWork
    | SendFetch
    | SendProposal
    | Produced
    | OffsetFound
    | Wake
    | AssignDirectory
    | ReplicaFailed
    | DirectoryFailed
    | BrokerFailed
    | StrayLogs
    | Stopped
)
Effects: TypeAlias = list[Effect]
