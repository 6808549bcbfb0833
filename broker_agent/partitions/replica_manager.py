"""The partitions of this broker, as Kafka's `ReplicaManager`: inputs go in, effects come out.

One thread owns the manager. It appends and reads inside; what may block for long, and everything on the network, is an effect
(see `effects`). It knows no clock: `now_ms` is monotonic, `wall_ms` is the time since 1970, for the timestamps of records.

    1. `assign([Lead(orders-0, epoch 5)])` returns `OpenLog`. A thread opens the log; `disk_done` makes broker 101 the leader.
    2. `append(orders-0, records, acks=all, token 1)` returns `Flush`, and `Wake` for the fetches of followers that wait.
    3. `poll` answers these fetches. Followers 102 and 103 append, flush and fetch again: `open_fetch` acknowledges the records.
    4. `disk_done(flush)`: the records are on all disks of the ISR, and `Produced(1, NONE)` is returned.

The parts: `assigning` (replicas come and go), `leading`, `following`, `serving` (fetches of others), `flushes`, `failures`,
`upkeep`. The rules of replication are those of `broker_agent.replica`.
"""

import random
from collections.abc import Iterable, Mapping
from typing import assert_never

from broker_agent.partitions.assigning import Assigning
from broker_agent.partitions.effects import (
    DeleteLog,
    DirectoryFailed,
    DiskResult,
    DiskWork,
    Effects,
    FindTime,
    Flush,
    FoundOffset,
    OpenLog,
    Produced,
    SendFetch,
    SendProposal,
    Stopped,
    TrimLog,
    WriteHighWatermarks,
)
from broker_agent.partitions.failures import Failures
from broker_agent.partitions.flushes import Flushes
from broker_agent.partitions.following import Following
from broker_agent.partitions.hosted_directory import HostedDirectory
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.partitions.leading import Leading
from broker_agent.partitions.manager_config import ManagerConfig, TopicConfig
from broker_agent.partitions.offset_questions import (
    CurrentLeader,
    EpochEnd,
    OffsetWanted,
    TimeQuestions,
    current_leader,
    find_end_of_epoch,
    find_offset,
    refusal,
)
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch
from broker_agent.partitions.serving import Serving
from broker_agent.partitions.upkeep import Upkeep
from broker_agent.partitions.watchers import Watchers
from broker_agent.publishing.assignments import AssignmentNews
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from broker_agent.replica.follower import StopReplica
from broker_agent.replica.isr import IsrAnswer
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.log_work import Scope
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.producers import PartitionRefused
from broker_agent.replica.purgatory import Acks
from broker_agent.session.isr_proposals import Place
from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.files import Directory
from metadata_log.format.data_batch import ProducerStamp, RecordSet
from metadata_log.format.errors import ErrorCode, LogFormatError
from metadata_log.format.ids import Epoch, NodeId, Uuid


class ReplicaManager:
    """All replicas of one broker. Every method returns the effects that its caller carries out, in their order."""

    def __init__(
        self, me: NodeId, directories: Mapping[Uuid, Directory], config: ManagerConfig, rng: random.Random
    ) -> None:
        """`directories` are the log directories by id. Nothing is read before `start`."""
        self._files = dict(directories)
        self._hosting = Hosting(me, config, rng)
        self._watchers = Watchers()
        self._flushes = Flushes(self._hosting)
        self._leading = Leading(self._hosting, self._watchers, self._flushes)
        self._following = Following(self._hosting, self._flushes)
        self._failures = Failures(self._hosting, self._watchers, self._retire)
        self._serving = Serving(self._hosting, self._watchers, self._leading, self._failures)
        self._assigning = Assigning(self._hosting, self._leading, self._following, self._failures)
        self._times = TimeQuestions(self._hosting, self._failures)
        self._upkeep = Upkeep(self._hosting)
        self._is_stopping = False
        self._has_ended = False

    def _retire(self, replica: HostedReplica) -> None:
        self._leading.resign(replica)
        self._following.stop(replica)

    # --- the beginning -----------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> Effects:
        """Read the log directories: which logs they have, and the high watermarks. Call this once, before everything else."""
        hosting = self._hosting
        for directory_id, files in self._files.items():
            try:
                hosting.directories[directory_id] = HostedDirectory(directory_id, files, hosting.config.open_logs_max)
            except (OSError, FlushFailed) as e:
                hosting.emit(DirectoryFailed(directory_id, str(e)))
        self._failures.check_broker()
        self._upkeep.start(now_ms)
        return self._done(now_ms)

    def registered(self, broker_epoch: int) -> None:
        """Take the broker epoch of this process, before the first `Lead` of the metadata that contains this registration."""
        self._hosting.broker_epoch = broker_epoch

    @property
    def notes(self) -> Mapping[Uuid, str]:
        """By log directory, after `start`: why its file of high watermarks could not be read."""
        return {each.id: each.note for each in self._hosting.directories.values() if each.note}

    @property
    def replicas(self) -> Mapping[Place, HostedReplica]:
        """All replicas of this broker. For reading only."""
        return self._hosting.replicas

    # --- metadata ----------------------------------------------------------------------------------------------------

    def assign(self, news: Iterable[AssignmentNews], now_ms: int) -> Effects:
        """Carry out assignments, in this order. A new leader epoch takes about 50 us, so give at most some hundreds at a time."""
        if not self._is_stopping:
            for each in news:
                self._assigning.take(each, now_ms)
        return self._done(now_ms)

    def topic_configured(self, topic_id: Uuid, config: TopicConfig, now_ms: int) -> Effects:
        """Take the configuration of a topic, before its first assignment and after each change. O(replicas of the topic)."""
        self._hosting.configure(topic_id, config)
        for replica in self._hosting.of_topic(topic_id):
            if replica.log is not None:
                replica.log.configure(config.log)
            self._leading.configured(replica, config, now_ms)
        return self._done(now_ms)

    def topic_forgotten(self, topic_id: Uuid) -> None:
        """Forget the configuration of a topic that does not exist any more."""
        self._hosting.configure(topic_id, None)

    def throttle(self, leader_bytes_per_s: int, follower_bytes_per_s: int, now_ms: int) -> Effects:
        """Take the rates of throttled replication (KIP-73): `throttle.UNLIMITED` at first. `TopicConfig` names the replicas."""
        self._hosting.leader_quota.limit(leader_bytes_per_s, now_ms)
        self._hosting.follower_quota.limit(follower_bytes_per_s, now_ms)
        return self._done(now_ms)

    def brokers_changed(self, candidates: Mapping[NodeId, int], now_ms: int) -> Effects:
        """Take the brokers that may be in an ISR, with their broker epochs: registered, unfenced, not in controlled shutdown.

        Leaders hear of it in the slices of `tick`.
        """
        self._hosting.candidates = dict(candidates)
        self._leading.brokers_changed()
        return self._done(now_ms)

    # --- disk work ---------------------------------------------------------------------------------------------------

    def disk_done(self, work: DiskWork, result: DiskResult, now_ms: int, wall_ms: int) -> Effects:
        """Take the end of disk work. `result` is what `run` has returned."""
        match work:
            case OpenLog():
                assert isinstance(result, PartitionLog)
                self._assigning.opened(work, result, now_ms)
            case DeleteLog():
                self._assigning.deleted(work, now_ms)
            case TrimLog():
                self._assigning.trimmed(work)
            case Flush():
                self._flushed(work, now_ms)
            case WriteHighWatermarks(directory_id):
                directory = self._hosting.directories[directory_id]
                self._following.go_on(directory.wrote())
                if directory.has_waiting and (again := directory.write()) is not None:
                    self._hosting.emit(again)
            case FindTime():
                assert not isinstance(result, PartitionLog)
                self._times.found(work, result)
            case _:
                assert_never(work)
        return self._work(now_ms, wall_ms)

    def disk_failed(self, work: DiskWork, error: Exception, now_ms: int, wall_ms: int) -> Effects:
        """Take the error that `run` has raised: it stops as little as possible.

        Raises:
            Exception: `error` itself, if it is no error of a log or a disk: a mistake of this program.
        """
        match work:
            case OpenLog():
                self._assigning.open_failed(work, error, now_ms)
            case DeleteLog():
                self._assigning.deletion_failed(work, error, now_ms)
            case TrimLog():
                self._assigning.trim_failed(work, error, now_ms)
            case Flush():
                replica = self._flushes.ended(work)
                if replica is not None:
                    self._failures.failed(replica, error)
            case WriteHighWatermarks(directory_id):
                self._hosting.directories[directory_id].write_failed(is_last=self._is_stopping)
                if self._failures.scope_of(error) is not Scope.NOTHING:
                    self._failures.stop_directory(directory_id, str(error))
            case FindTime():
                self._times.failed(work, error)
            case _:
                assert_never(work)
        return self._work(now_ms, wall_ms)

    def _flushed(self, flush: Flush, now_ms: int) -> None:
        replica = self._flushes.ended(flush)
        if replica is None or replica.failure is not None:
            return
        try:
            flush.log.complete_flush(flush.ticket)
        except (OSError, FlushFailed) as e:  # the note of the flushed end could not be written
            self._failures.failed(replica, e)
            return
        self._flushes.need(replica)
        if replica.leader is not None:
            self._leading.log_changed(replica, now_ms)
        elif replica.follower is not None:
            self._following.log_changed(replica, now_ms)

    # --- writes ------------------------------------------------------------------------------------------------------

    def append(
        self,
        place: Place,
        leader_epoch: Epoch | None,
        records: RecordSet,
        stamp: ProducerStamp,
        acks: Acks,
        deadline_ms: int,
        token: int,
        now_ms: int,
        wall_ms: int,
    ) -> Effects:
        """Append a batch. Exactly one `Produced(token)` is returned, now or later; with acks=0 at once.

        `leader_epoch` is the one that the producer knows; None: any. Two writes that wait have different tokens.
        """
        replica = self._hosting.replicas.get(place)
        code = refusal(replica, leader_epoch)
        if code is not ErrorCode.NONE or replica is None:
            self._hosting.emit(Produced(token, code, message=_text(code)))
            return self._done(now_ms)
        try:
            self._leading.append(replica, records, stamp, acks, deadline_ms, token, now_ms, wall_ms)
        except PartitionRefused as e:
            self._hosting.emit(Produced(token, e.code, message=str(e)))
        except LogFormatError as e:
            self._hosting.emit(Produced(token, ErrorCode.INVALID_REQUEST, message=f"{e}; nothing was appended"))
        except (OSError, FlushFailed) as e:
            self._failures.failed(replica, e)
            text = (
                f"the disk of this broker refused the records ({e}); nothing was appended. Send the batch again later"
            )
            self._hosting.emit(Produced(token, ErrorCode.STORAGE_ERROR, message=text))
        return self._done(now_ms)

    # --- fetches and questions -----------------------------------------------------------------------------------------

    def open_fetch(
        self,
        source: FetchSource | None,
        request: SessionRequest,
        now_ms: int,
        *,
        max_wait_ms: int,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> tuple[OpenFetch, Effects]:
        """Begin to serve a fetch of a follower, or of a consumer (`source` None). Call `poll` next."""
        fetch = self._serving.open(source, request, now_ms, max_wait_ms, min_bytes, max_bytes)
        return fetch, self._done(now_ms)

    def poll(self, fetch: OpenFetch, now_ms: int) -> tuple[SessionAnswer | None, Effects]:
        """Return the answer of a fetch. None: it waits, or there is more to look at; call `poll` again after its next `Wake`.

        A `Wake` comes when there may be an answer, and from `tick` at the deadline. An answered fetch must not be polled again.
        """
        answer = self._serving.poll(fetch, now_ms)
        return answer, self._done(now_ms)

    def drop_fetch(self, fetch: OpenFetch) -> None:
        """Forget a fetch whose caller went away. A `Wake` that is under way has no meaning any more."""
        if not fetch.is_done:
            self._serving.drop(fetch)

    def leader_of(self, place: Place) -> CurrentLeader | None:
        """Return the leader of a partition by its newest assignment; None if this broker has no replica of it."""
        replica = self._hosting.replicas.get(place)
        return None if replica is None else current_leader(replica)

    def list_offset(self, place: Place, leader_epoch: Epoch | None, wanted: OffsetWanted) -> FoundOffset:
        """Find an offset by name.

        NOT_READY: this broker has begun to lead, and does not know the high watermark yet; ask again.
        """
        replica = self._hosting.replicas.get(place)
        code = refusal(replica, leader_epoch)
        return FoundOffset(code) if code is not ErrorCode.NONE or replica is None else find_offset(replica, wanted)

    def find_time(
        self, place: ReplicaPlace, leader_epoch: Epoch | None, timestamp_ms: int, token: int, now_ms: int
    ) -> Effects:
        """Find the first committed record that is not older than a time. Exactly one `OffsetFound(token)` is returned, now or
        later. NOT_READY: as in `list_offset`.
        """
        self._times.ask(place, leader_epoch, timestamp_ms, token)
        return self._done(now_ms)

    def end_of_epoch(self, place: Place, current_epoch: Epoch | None, wanted: Epoch) -> EpochEnd:
        """Tell where a leader epoch ends in the leader's log (KIP-320)."""
        replica = self._hosting.replicas.get(place)
        code = refusal(replica, current_epoch)
        if code is not ErrorCode.NONE or replica is None:
            return EpochEnd(code)
        return find_end_of_epoch(replica, wanted)

    # --- own requests ------------------------------------------------------------------------------------------------

    def fetch_answered(self, sent: SendFetch, answer: SessionAnswer, now_ms: int, wall_ms: int) -> Effects:
        """Take the answer to a fetch of this broker. A late one has no effect."""
        self._following.answered(sent, answer, now_ms)
        return self._work(now_ms, wall_ms)

    def fetch_failed(self, sent: SendFetch, now_ms: int) -> Effects:
        """Note that a fetch of this broker had no answer: its fetcher pauses."""
        self._following.failed(sent, now_ms)
        return self._done(now_ms)

    def proposal_answered(self, sent: SendProposal, answer: IsrAnswer, now_ms: int) -> Effects:
        """Take the controllers' answer to a proposal; `NO_ANSWER` if the request can no longer arrive and has no answer."""
        self._leading.proposal_answered(sent, answer, now_ms)
        return self._done(now_ms)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, wall_ms: int) -> Effects:
        """Do one slice of what is due. Call this at `next_deadline_ms`, and let other work of the loop run between two calls."""
        self._leading.tick(now_ms)
        self._serving.tick(now_ms)
        self._assigning.tick(now_ms)
        replica = self._upkeep.tick(now_ms)
        if replica is not None:
            self._retain(replica, now_ms, wall_ms)
        return self._work(now_ms, wall_ms)

    def _retain(self, replica: HostedReplica, now_ms: int, wall_ms: int) -> None:
        try:
            self._upkeep.retain(replica, wall_ms)
        except Exception as e:
            self._failures.failed(replica, e)
            return
        if replica.leader is not None:
            self._leading.log_changed(replica, now_ms)
        else:
            self._following.log_changed(replica, now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `tick` is due; None if only an input can bring work. A time that is past means: soon."""
        times = (
            self._leading.next_deadline_ms(now_ms),
            self._serving.next_deadline_ms(),
            self._following.next_deadline_ms(now_ms),
            self._assigning.next_deadline_ms(),
            self._upkeep.next_deadline_ms(now_ms),
        )
        return min([each for each in times if each is not None], default=None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop(self, now_ms: int) -> Effects:
        """Serve and follow no more, and make everything durable. `Stopped` is the last effect."""
        self._is_stopping = True
        for replica in self._hosting.replicas.values():
            self._retire(replica)
            if replica.is_open:
                self._flushes.need(replica)
        self._upkeep.write_high_watermarks()
        return self._done(now_ms)

    def close(self) -> None:
        """Close all files. The manager must not be used any more."""
        self._assigning.close()

    # --- effects -----------------------------------------------------------------------------------------------------

    def _work(self, now_ms: int, wall_ms: int) -> Effects:
        for replica, reason in self._following.work(now_ms, wall_ms):
            if replica.failure is not None:
                continue  # an earlier error of this slice has stopped the whole directory
            if isinstance(reason, StopReplica):
                self._failures.stop_replica(replica, reason.reason)
            elif self._failures.failed(replica, reason) is Scope.NOTHING:
                self._following.no_room(replica, now_ms)
        return self._done(now_ms)

    def _done(self, now_ms: int) -> Effects:
        if self._is_stopping:
            self._following.ask_no_more()
            self._end()
        else:
            self._following.ask(now_ms)
        return [*self._hosting.take(), *self._watchers.take()]

    def _end(self) -> None:
        """After `stop`: say when everything is durable."""
        if self._flushes.under_way:
            return
        self._upkeep.write_high_watermarks()
        if all(each.is_written for each in self._hosting.online()) and not self._has_ended:
            self._has_ended = True
            self._hosting.emit(Stopped())


def _text(code: ErrorCode) -> str:
    return f"{code.name}: nothing was appended. Ask for the metadata of the topic, and send the batch to its leader"
