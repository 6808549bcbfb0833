"""The coming and going of replicas, by the assignments of the controllers only.

    1. `WholeSet` names orders-0 and orders-1. The disk also has a log of orders-9, which is stray: it is reported, and stays.
    2. `Lead(orders-0)`: the log is opened, on a thread of the caller. Nothing of orders-0 is served until it is open.
    3. `Stop(orders-0)`: no broker leads. The log stays open, and serves nothing.
    4. `Delete(orders-0)`: the log is closed and deleted.

A stray log is not deleted: after a recovery of the controllers a topic may be missing by accident, and only an operator can know.

*A log that was there before is never made anew* for a member of the ISR. The controllers record a directory only after the log
was made. So a recorded log that is nowhere was lost, or its disk is away. An empty log in its place could be elected.
"""

from typing import assert_never

from broker_agent.partitions.agenda import Agenda
from broker_agent.partitions.effects import AssignDirectory, DeleteLog, OpenLog, StrayLogs, TrimLog
from broker_agent.partitions.failures import Failures
from broker_agent.partitions.following import Following
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.partitions.leading import Leading
from broker_agent.publishing.assignments import Assignment, AssignmentNews, Delete, Follow, Lead, Stop, WholeSet
from broker_agent.replica.follower import DiskFailed
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.log_work import Scope
from broker_agent.replica.partition_log import PartitionLog


class Assigning:
    """The assignments of this broker's replicas."""

    def __init__(self, hosting: Hosting, leading: Leading, following: Following, failures: Failures) -> None:
        self._hosting = hosting
        self._leading = leading
        self._following = following
        self._failures = failures
        self._strays: StrayLogs = StrayLogs(())
        self._again: Agenda[HostedReplica] = Agenda()
        """When to repeat disk work for which there was no room."""

    def take(self, news: AssignmentNews, now_ms: int) -> None:
        """Carry out one assignment, or begin a whole set."""
        match news:
            case WholeSet(replicas):
                self._begin_set({ReplicaPlace(*each) for each in replicas})
            case Delete():
                self._delete(news)
            case Lead() | Follow() | Stop():
                self._assign(news, now_ms)
            case _:
                assert_never(news)

    def _assign(self, assignment: Assignment, now_ms: int) -> None:
        hosting, place = self._hosting, ReplicaPlace(*assignment.replica)
        replica = hosting.replicas.get(place)
        if replica is None:
            directory = hosting.choose(place, assignment.directory)
            if directory is None:
                return  # no directory works: the broker has failed
            replica = hosting.host(HostedReplica(place, directory.id, assignment))
            self._forget_stray(place)
        before, replica.assignment = replica.assignment, assignment
        if replica.failure is not None:
            self._begin_again(replica, before, now_ms)
        elif replica.log is not None:
            self._take_role(replica, now_ms)
        elif replica.job is None:
            self._open(replica)

    def _begin_again(self, replica: HostedReplica, before: Assignment | None, now_ms: int) -> None:
        """Give a replica that stopped without an error of its disk another chance, in the next leader epoch."""
        assert replica.assignment is not None
        is_new = before is None or before.leader_epoch != replica.assignment.leader_epoch
        if is_new and not replica.is_lost and replica.log is not None:
            replica.failure = None
            self._take_role(replica, now_ms)

    def _take_role(self, replica: HostedReplica, now_ms: int) -> None:
        match replica.assignment:
            case Lead() as lead:
                self._following.stop(replica)
                self._leading.lead(replica, lead, now_ms)
            case Follow() as follow:
                self._leading.resign(replica)
                self._following.follow(replica, follow, now_ms)
            case _:
                self.retire(replica)

    def retire(self, replica: HostedReplica) -> None:
        """End the leadership or the following of a replica."""
        self._leading.resign(replica)
        self._following.stop(replica)

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open(self, replica: HostedReplica) -> None:
        hosting, place, assignment = self._hosting, replica.place, replica.assignment
        assert assignment is not None
        directory = hosting.directory_of(replica)
        if directory.failed is not None:
            replica.failure, replica.is_lost = f"the log directory is offline: {directory.failed}", True
            return
        if place not in directory.places and assignment.directory is not None and hosting.me in assignment.isr:
            text = (
                f"the log of {place.name} is in no log directory of this broker. An empty log would lose records, so "
                "none was made. Bring its disk back; if that is lost, let another replica lead (an unclean election)"
            )
            self._failures.stop_replica(replica, DiskFailed(text))
            return
        directory.places.add(place)
        self._begin(replica, OpenLog(place, directory.id, directory.logs, hosting.topic(place.topic_id).log))

    def _begin(self, replica: HostedReplica, job: OpenLog | DeleteLog) -> None:
        """Begin disk work. It takes the place of work that had no room: else the time of that would come inside of a trim."""
        self._again.drop(replica)
        replica.job = job
        self._hosting.emit(job)

    def opened(self, work: OpenLog, log: PartitionLog, now_ms: int) -> None:
        """Take a log that is open now."""
        replica = self._hosting.replicas.get(work.place)
        directory = self._hosting.directories[work.directory]
        if replica is None or replica.job is not work or directory.failed is not None:
            log.close()
            return
        replica.job, replica.log = None, log
        directory.logs.used(log)
        if self._leave(replica):
            return
        assert replica.assignment is not None
        log.configure(self._hosting.topic(work.place.topic_id).log)
        if replica.assignment.directory != work.directory:
            self._hosting.emit(AssignDirectory(work.place, work.directory))
        self._take_role(replica, now_ms)

    def open_failed(self, work: OpenLog, error: Exception, now_ms: int) -> None:
        """Stop what the error stops. Without room on the disk the log is opened later."""
        replica = self._hosting.replicas.get(work.place)
        if replica is None or replica.job is not work:
            return
        replica.job = None
        scope = self._failures.scope_of(error)
        if scope is Scope.NOTHING:
            self._again.set(replica, now_ms + self._hosting.config.disk_retry_ms)
        elif scope is Scope.REPLICA:
            self._failures.stop_replica(replica, DiskFailed(str(error)))  # whatever it is, the log cannot be used
        else:
            self._failures.failed(replica, error)
        if scope is Scope.REPLICA and replica.is_to_be_deleted and self._hosting.directory_of(replica).failed is None:
            self._begin_deletion(replica)

    # --- deleting ----------------------------------------------------------------------------------------------------

    def _delete(self, deletion: Delete) -> None:
        hosting, place = self._hosting, ReplicaPlace(*deletion.replica)
        replica = hosting.replicas.get(place)
        if replica is None:
            having = next((each for each in hosting.online() if place in each.places), None)
            if having is None:
                return
            replica = hosting.host(HostedReplica(place, having.id, deletion))
            self._forget_stray(place)
        replica.assignment = deletion
        self.retire(replica)
        if replica.job is None:
            self._begin_deletion(replica)

    def _begin_deletion(self, replica: HostedReplica) -> None:
        directory = self._hosting.directory_of(replica)
        self._close(replica)
        if directory.failed is not None:
            self._hosting.forget(replica)
            return
        self._begin(replica, DeleteLog(replica.place, directory.id, directory.logs))

    def deleted(self, work: DeleteLog, now_ms: int) -> None:
        """Forget a replica whose log is deleted. If it was assigned again meanwhile, its log is made anew."""
        self._hosting.directories[work.directory].forget(work.place)
        replica = self._hosting.replicas.get(work.place)
        if replica is None or replica.job is not work:
            return
        replica.job = replica.failure = None
        replica.is_lost = False
        self._hosting.forget(replica)
        if not replica.is_to_be_deleted and replica.assignment is not None:
            self._assign(replica.assignment, now_ms)

    def deletion_failed(self, work: DeleteLog, error: Exception, now_ms: int) -> None:
        """Stop what the error stops. Without room on the disk the log is deleted later."""
        replica = self._hosting.replicas.get(work.place)
        if replica is None or replica.job is not work:
            return
        replica.job = None
        if self._failures.failed(replica, error) is Scope.NOTHING:
            self._again.set(replica, now_ms + self._hosting.config.disk_retry_ms)
        elif replica.is_to_be_deleted:
            self._hosting.forget(replica)

    # --- trimming ----------------------------------------------------------------------------------------------------

    def trimmed(self, work: TrimLog) -> None:
        """Go on with what has waited for the trim of a log: its deletion, or the work of its follower."""
        replica = self._hosting.replicas.get(work.place)
        if replica is not None and replica.job is work:
            replica.job = None
            if not self._leave(replica):
                self._following.go_on([replica])

    def _leave(self, replica: HostedReplica) -> bool:
        """Delete or close the log of a replica that is not assigned any more. Return False if it is assigned."""
        if replica.is_to_be_deleted:
            self._begin_deletion(replica)
        elif replica.assignment is None:
            self._let_go(replica)
        return replica.is_to_be_deleted or replica.assignment is None

    def trim_failed(self, work: TrimLog, error: Exception, now_ms: int) -> None:
        """Stop what the error stops. Without room on the disk the log is trimmed later."""
        replica = self._hosting.replicas.get(work.place)
        if replica is None or replica.job is not work:
            return
        if self._failures.failed(replica, error) is Scope.NOTHING and replica.is_open:
            self._again.set(replica, now_ms + self._hosting.config.disk_retry_ms)
        else:
            self.trimmed(work)

    # --- whole sets --------------------------------------------------------------------------------------------------

    def _begin_set(self, places: set[ReplicaPlace]) -> None:
        for replica in list(self._hosting.replicas.values()):
            if replica.place not in places and not replica.is_to_be_deleted:
                self.retire(replica)
                replica.assignment = None
                if replica.job is None:
                    self._let_go(replica)
        found = [(each.id, place) for each in self._hosting.online() for place in sorted(each.places - places)]
        self._report_strays(StrayLogs(tuple(found)))

    def _let_go(self, replica: HostedReplica) -> None:
        """Serve a replica no more, and keep its log."""
        self._close(replica)
        self._hosting.forget(replica)

    def _forget_stray(self, place: ReplicaPlace) -> None:
        """Note that a log belongs to a replica again, or will be deleted."""
        if any(stray == place for _, stray in self._strays.logs):
            self._report_strays(StrayLogs(tuple(each for each in self._strays.logs if each[1] != place)))

    def _report_strays(self, strays: StrayLogs) -> None:
        if strays != self._strays:
            self._strays = strays
            self._hosting.emit(strays)

    def _close(self, replica: HostedReplica) -> None:
        log, replica.log, replica.flushing = replica.log, None, None
        if log is not None:
            self._hosting.directory_of(replica).logs.close(log)

    def close(self) -> None:
        """Close all logs."""
        for replica in self._hosting.replicas.values():
            self._close(replica)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Repeat the disk work that had no room."""
        while (replica := self._again.due(now_ms)) is not None:
            if self._hosting.replicas.get(replica.place) is not replica:
                continue
            if isinstance(replica.job, TrimLog):
                self._trim_again(replica, replica.job)
            if replica.job or replica.failure is not None:
                continue
            if replica.is_to_be_deleted:
                self._begin_deletion(replica)
            elif replica.assignment is not None and replica.log is None:
                self._open(replica)

    def _trim_again(self, replica: HostedReplica, work: TrimLog) -> None:
        if replica.is_open and replica.assignment is not None and not replica.is_to_be_deleted:
            self._hosting.emit(work)
        else:
            self.trimmed(work)

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due."""
        return self._again.next_ms()
