"""What stops after an error of a log: nothing, the replica, the log directory, or the broker, in this order.

    1. An append of orders-0 finds no room on the disk: the write is refused, and nothing stops.
    2. The log of orders-1 is damaged: orders-1 stops, and its replica is told to be lost, so that another broker leads.
    3. A flush in directory A fails: all replicas in A stop, and the controllers hear of A.
    4. A was the last directory: the broker stops.

`log_work.failure_of` says which error is which. Only the next process opens a failed log again.
"""

from collections.abc import Callable

from broker_agent.partitions.effects import (
    AssignDirectory,
    BrokerFailed,
    DirectoryFailed,
    ReplicaFailed,
)
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.partitions.watchers import Watchers
from broker_agent.replica.follower import DiskFailed, StopReason
from broker_agent.replica.log_work import Scope, failure_of
from metadata_log.format.ids import LOST_DIRECTORY, Uuid, uuid_text


class Failures:
    """The failures of one broker."""

    def __init__(self, hosting: Hosting, watchers: Watchers, retire: Callable[[HostedReplica], None]) -> None:
        """`retire` ends the leadership or the following of a replica."""
        self._hosting = hosting
        self._watchers = watchers
        self._retire = retire

    def failed(self, replica: HostedReplica, error: Exception) -> Scope:
        """Stop what `error` of a replica's log stops, and say how much that was.

        Raises:
            Exception: `error` itself, if it is no error of a log: a mistake of this program.
        """
        failure = failure_of(error)
        match failure.scope:
            case Scope.REPLICA:
                self.stop_replica(replica, failure.reason)
            case Scope.LOG_DIRECTORY:
                self.stop_directory(replica.directory_id, str(failure.reason))
            case Scope.NOTHING:
                pass
        return failure.scope

    def scope_of(self, error: Exception) -> Scope:
        """Say what an error of a log directory's own file stops; raises `error` if it is a mistake of this program."""
        return failure_of(error).scope

    def stop_replica(self, replica: HostedReplica, reason: StopReason) -> None:
        """Stop one replica. After an error of its disk, the controllers hear that it is lost."""
        if replica.failure is not None:
            return
        self._stop(replica, str(reason), is_lost=isinstance(reason, DiskFailed))
        self._hosting.emit(ReplicaFailed(replica.place, str(reason)))
        if replica.is_lost:
            self._hosting.emit(AssignDirectory(replica.place, LOST_DIRECTORY))

    def stop_directory(self, directory_id: Uuid, reason: str) -> None:
        """Stop all replicas of a directory, and the broker if no other directory works."""
        hosting = self._hosting
        directory = hosting.directories[directory_id]
        if directory.failed is not None:
            return
        directory.failed = reason
        for replica in list(hosting.replicas.values()):
            if replica.directory_id == directory_id and not replica.is_lost:
                self._stop(replica, f"log directory {uuid_text(directory_id)} is offline: {reason}", is_lost=True)
        hosting.emit(DirectoryFailed(directory_id, reason))
        self.check_broker()

    def check_broker(self) -> None:
        """Stop the broker if no directory works."""
        if not list(self._hosting.online()):
            self._hosting.emit(BrokerFailed("the last log directory has failed"))

    def _stop(self, replica: HostedReplica, reason: str, *, is_lost: bool) -> None:
        replica.failure, replica.is_lost = reason, is_lost
        self._retire(replica)
        if is_lost and replica.log is not None:
            self._hosting.directory_of(replica).logs.close(replica.log)
            replica.log = replica.flushing = None
        self._watchers.changed(replica.place)
