"""The partitions that this broker leads: appends, the controllers' answers, and the effects of each `PartitionLeader`.

1. `Lead(epoch 5)` arrives: a new `PartitionLeader` begins with the log and the high watermark that the replica knows.
2. `append` puts a batch into the log, wakes the followers, and begins a flush. The write waits in the leader.
3. The flush ends, and the followers have fetched: the leader says `ProduceDone`, and the write is answered with its offset.
4. `Follow` or `Lead(epoch 6)` arrives: the leader resigns, and all writes that wait are answered.
"""

from typing import Final, assert_never

from broker_agent.partitions.agenda import Agenda
from broker_agent.partitions.effects import UNKNOWN_OFFSET, Produced, SendProposal
from broker_agent.partitions.flushes import Flushes
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.partitions.manager_config import TopicConfig
from broker_agent.partitions.watchers import Watchers
from broker_agent.publishing.assignments import Lead
from broker_agent.replica.isr import IsrAnswer, PartitionMetadata, ProposeIsr
from broker_agent.replica.leader import (
    FollowerMoved,
    LeaderConfig,
    LeaderEffects,
    LeaderHighWatermarkMoved,
    PartitionLeader,
)
from broker_agent.replica.purgatory import Acks, ProduceDone
from metadata_log.format.data_batch import ProducerStamp, RecordSet
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch

GROW_AGAIN_MS: Final = 1_000
"""How long to wait after INELIGIBLE_REPLICA before the same member is proposed again."""


class Leading:
    """All leaderships of this broker."""

    def __init__(self, hosting: Hosting, watchers: Watchers, flushes: Flushes) -> None:
        self._hosting = hosting
        self._watchers = watchers
        self._flushes = flushes
        self._due: Agenda[HostedReplica] = Agenda()
        self._unaware: dict[HostedReplica, None] = {}
        """The leaders that do not know the newest brokers yet."""

    # --- roles -------------------------------------------------------------------------------------------------------

    def lead(self, replica: HostedReplica, assignment: Lead, now_ms: int) -> None:
        """Lead in the epoch of the assignment, or take newer metadata of the same epoch."""
        metadata = metadata_of(assignment, self._hosting.me)
        leader = replica.leader
        if leader is None or leader.leader_epoch != assignment.leader_epoch:
            self._begin(replica, metadata, now_ms)
            return
        effects = leader.metadata(metadata, now_ms)
        self.carry(replica, effects + leader.grow(now_ms))

    def _begin(self, replica: HostedReplica, metadata: PartitionMetadata, now_ms: int) -> None:
        log, hosting = replica.log, self._hosting
        assert log is not None
        self.resign(replica)
        shape = log.shape
        known = hosting.directory_of(replica).high_watermarks.get(replica.place, 0)
        replica.leader = PartitionLeader(
            hosting.me,
            hosting.broker_epoch,
            metadata,
            shape,
            min(known, shape.flushed_end),
            self._config(hosting.topic(replica.place.topic_id)),
            hosting.candidates,
            now_ms,
        )
        hosting.directory_of(replica).note_high_watermark(replica.place, replica.leader.high_watermark)
        self._flushes.need(replica)
        self._due.set(replica, now_ms + hosting.config.lag_time_max_ms // 2)
        self._watchers.changed(replica.place)
        self._watchers.await_followers(replica.place, replica.leader.followers, now_ms)

    def resign(self, replica: HostedReplica) -> None:
        """End the leadership, if any: all waiting writes are answered."""
        leader, replica.leader = replica.leader, None
        if leader is None:
            return
        self.carry(replica, leader.resign())
        self._due.drop(replica)
        self._unaware.pop(replica, None)
        self._watchers.changed(replica.place)

    def _config(self, topic: TopicConfig) -> LeaderConfig:
        config = self._hosting.config
        return LeaderConfig(config.lag_time_max_ms, topic.min_insync_replicas, config.proposal_backoff_ms)

    # --- writes ------------------------------------------------------------------------------------------------------

    def append(
        self,
        replica: HostedReplica,
        records: RecordSet,
        stamp: ProducerStamp,
        acks: Acks,
        deadline_ms: int,
        token: int,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Append a batch. `Produced(token)` follows, now or later.

        Raises:
            LogFormatError: the stamp is impossible; nothing was appended.
            PartitionRefused, OSError, FlushFailed: see `PartitionLog.append`; nothing was appended.
        """
        leader, log = replica.leader, replica.log
        assert leader is not None and log is not None
        refusal = leader.refusal_of_write(acks)
        if refusal is not ErrorCode.NONE:
            text = f"the ISR has fewer than {leader.min_isr} members; nothing was appended. Send the batch again later"
            self._hosting.emit(Produced(token, refusal, message=text))
            return
        if log.shape.last_epoch > leader.leader_epoch:
            text = (
                f"the log has records of leader epoch {log.shape.last_epoch}, and the metadata says {leader.leader_epoch}: the "
                "cluster was recovered to an older history. Nothing was appended; elect leaders until the epoch is larger"
            )
            self._hosting.emit(Produced(token, ErrorCode.STORAGE_ERROR, message=text))
            return
        appended = log.append(records, stamp, leader.leader_epoch, wall_ms)
        self._hosting.directory_of(replica).logs.used(log)
        if not appended.is_duplicate:
            self._watchers.appended(replica.place)
        if acks is Acks.NONE:
            done = Produced(token, ErrorCode.NONE, appended.base_offset, log.shape.start.offset)
            self._hosting.emit(done)
        else:
            replica.base_offsets[token] = appended.base_offset
        effects = leader.appended(log.shape, appended.end_offset, token, acks, deadline_ms, now_ms)
        self._flushes.need(replica)
        self.carry(replica, effects)

    def log_changed(self, replica: HostedReplica, now_ms: int) -> None:
        """Note the new shape of the log after a flush, or a new log start."""
        leader, log = replica.leader, replica.log
        assert leader is not None and log is not None
        shape = log.shape
        if shape.start != leader.shape.start:
            self._watchers.changed(replica.place)
        self.carry(replica, leader.log_changed(shape, now_ms))

    # --- the controllers ---------------------------------------------------------------------------------------------

    def proposal_answered(self, sent: SendProposal, answer: IsrAnswer, now_ms: int) -> None:
        """Take the answer to a proposal. It has no effect if its leadership is over."""
        replica = self._hosting.replicas.get(sent.place)
        if replica is None or replica.leader is None:
            return
        leader = replica.leader
        effects = leader.answered(sent.proposal, answer, now_ms)
        if answer.code is ErrorCode.NONE:
            effects += leader.grow(now_ms)
        elif answer.code is ErrorCode.INELIGIBLE_REPLICA:
            # The broker may be eligible again by now, and its fetches do not name an idle partition.
            self._due.bring_forward(replica, now_ms + GROW_AGAIN_MS)
        self.carry(replica, effects)

    def brokers_changed(self) -> None:
        """Make all leaders take the newest brokers, in the slices of `tick`."""
        self._unaware = {each: None for each in self._hosting.replicas.values() if each.leader is not None}

    def configured(self, replica: HostedReplica, topic: TopicConfig, now_ms: int) -> None:
        """Take the topic's configuration."""
        if replica.leader is not None:
            self.carry(replica, replica.leader.configured(self._config(topic), now_ms))

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Do one slice of what is due."""
        for _ in range(self._hosting.config.slice_max):
            if self._unaware:
                replica = next(iter(self._unaware))
                del self._unaware[replica]
                leader = replica.leader
                assert leader is not None
                effects = leader.brokers_changed(self._hosting.candidates, now_ms)
                self.carry(replica, effects + leader.grow(now_ms))
                continue
            due = self._due.due(now_ms)
            if due is None:
                return
            assert due.leader is not None
            effects = due.leader.tick(now_ms) + due.leader.grow(now_ms)
            self._due.set(due, now_ms + self._hosting.config.lag_time_max_ms // 2)
            self.carry(due, effects)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `tick` is due."""
        return now_ms if self._unaware else self._due.next_ms()

    # --- effects -----------------------------------------------------------------------------------------------------

    def carry(self, replica: HostedReplica, effects: LeaderEffects) -> None:
        """Carry out the effects of a leader, and note its next deadline."""
        hosting = self._hosting
        for effect in effects:
            match effect:
                case ProduceDone(token, code):
                    base = replica.base_offsets.pop(token, UNKNOWN_OFFSET)
                    start = UNKNOWN_OFFSET if replica.log is None else replica.log.shape.start.offset
                    hosting.emit(Produced(token, code, base, start))
                case LeaderHighWatermarkMoved(high_watermark):
                    hosting.directory_of(replica).note_high_watermark(replica.place, high_watermark)
                    self._watchers.changed(replica.place)
                case ProposeIsr():
                    hosting.emit(SendProposal(replica.place, effect))
                case FollowerMoved():
                    pass  # the high watermark, if it has moved, has its own effect
                case _:
                    assert_never(effect)
        if replica.leader is not None:
            self._due.bring_forward(replica, replica.leader.next_deadline_ms())


def metadata_of(assignment: Lead, me: int) -> PartitionMetadata:
    """Return the partition's state as a leader needs it."""
    epoch: Epoch = assignment.leader_epoch
    return PartitionMetadata(me, epoch, assignment.partition_epoch, assignment.replicas, assignment.isr)
