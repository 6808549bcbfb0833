"""The leader of one partition in one leader epoch: who has which records, what is committed, who is in sync. Pure.

The caller brings the inputs: the log's new shape, the fetches of followers, metadata, answers of the controller, and time. Each
method returns effects, which the caller carries out. The rules are those of Kafka's `Partition`:

* *The high watermark* is the least durable end among the leader and the members of the maximal ISR (see `isr`). The high
  watermark stands still while the committed ISR is smaller than `min.insync.replicas` (KIP-966), and never goes back.
* *Growth*: a follower joins the ISR as soon as its fetch is at or above the high watermark *and* the start of the leader's epoch.
  Its broker must be unfenced and not stopping (KIP-841), and the fetch must be of the broker's present process (KIP-903).
* *Shrinking*: a member that was not caught up for `replica.lag.time.max.ms` (see `follower_progress`) leaves the ISR. The caller
  calls `tick` every half of this time, so the leader proposes the removal within one and a half of this time.
* A follower that is caught up and may join holds the high watermark back, so that it can join under steady load.

The epoch's start matters for growth, because a new leader knows a lower high watermark than the old leader:

    1. Leader 1 has the ISR 1,2 and the high watermark 9. Follower 2 has all 9 records, but knows the high watermark 4 only.
    2. Broker 1 dies. Broker 2 leads the next epoch, which starts at 9. Follower 3 fetches at 5.
    3. If 3 joined the ISR now and broker 2 died, broker 3 would lead without the acknowledged records 5 to 8.

Every new leader epoch is a new `PartitionLeader`, also if the same broker leads again. One process leads an epoch at most once,
and no other process leads it: a broker that restarts registers again, and the controller then begins a new leader epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from broker_agent.replica.divergence import Refused, Valid, Verdict, judge_fetch
from broker_agent.replica.follower_progress import FollowerProgress
from broker_agent.replica.isr import IsrAnswer, IsrState, PartitionMetadata, ProposeIsr
from broker_agent.replica.purgatory import Acks, ProduceDone, Purgatory
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.log_shape import LogShape


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """The configuration of the broker and the topic for one partition."""

    lag_time_max_ms: int = 30_000
    """How long a member of the ISR may not be caught up (`replica.lag.time.max.ms`)."""
    min_insync_replicas: int = 1
    retry_backoff_ms: int = 50
    """How long the leader waits before it sends a proposal again."""


class ReplicaFetch(NamedTuple):
    """One follower's fetch of this partition: all records below `offset` are durable on the follower's disk."""

    broker_id: NodeId
    broker_epoch: int
    leader_epoch: Epoch
    offset: Offset
    last_fetched_epoch: Epoch


@dataclass(frozen=True, slots=True)
class LeaderHighWatermarkMoved:
    """Effect: the records below `high_watermark` are committed; consumers and followers that wait may be answered."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class FollowerMoved:
    """Effect: the durable end of a follower's log is `end` now."""

    broker_id: NodeId
    end: Offset


LeaderEffect: TypeAlias = ProposeIsr | LeaderHighWatermarkMoved | FollowerMoved | ProduceDone
LeaderEffects: TypeAlias = list[LeaderEffect]


class PartitionLeader:
    """This broker leads one partition. Attributes without an underscore are for reading only."""

    def __init__(
        self,
        me: NodeId,
        broker_epoch: int,
        metadata: PartitionMetadata,
        shape: LogShape,
        high_watermark: Offset,
        config: LeaderConfig,
        candidates: Mapping[NodeId, int],
        now_ms: int,
    ) -> None:
        """Begin a leader epoch. `high_watermark` is the one that this replica knew before.

        `candidates` has the brokers that may be in the ISR, with their broker epochs: registered, unfenced, not in controlled
        shutdown, with the replica's log directory online.
        """
        assert metadata.leader_id == me
        assert high_watermark <= shape.flushed_end, "a replica knows no high watermark above its own disk"
        self.me = me
        self.config = config
        self.shape = shape
        self.epoch_start = shape.end
        """The end of the log when this leader epoch began."""
        self.high_watermark = max(high_watermark, shape.start.offset)
        self.isr = IsrState(metadata)
        self.followers: dict[NodeId, FollowerProgress] = {}
        self._broker_epoch = broker_epoch
        self._candidates = candidates
        self._purgatory = Purgatory()
        self._assign(metadata, now_ms)
        for broker_id in self.isr.committed - {me}:
            self.followers[broker_id].last_caught_up_ms = now_ms
        self._advance(now_ms)

    @property
    def leader_epoch(self) -> Epoch:
        return self.isr.leader_epoch

    @property
    def min_isr(self) -> int:
        """The smallest ISR that commits records: at most the number of replicas."""
        return min(self.config.min_insync_replicas, len(self.isr.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr.committed) < self.min_isr

    # --- writes ------------------------------------------------------------------------------------------------------

    def refusal_of_write(self, acks: Acks) -> ErrorCode:
        """Return the reason for refusing a write before anything is appended, or NONE."""
        if acks is Acks.ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def appended(
        self, shape: LogShape, end: Offset, token: int, acks: Acks, deadline_ms: int, now_ms: int
    ) -> LeaderEffects:
        """Note that a write's records are in the log, below `end`. `ProduceDone(token)` follows, unless acks is 0.

        A repeated write has the `end` of its first time, and may be done at once.
        """
        assert end <= shape.end, "the records are in the log"
        if acks is not Acks.NONE:
            self._purgatory.wait(token, end, acks, deadline_ms)
        return self.log_changed(shape, now_ms)

    def log_changed(self, shape: LogShape, now_ms: int) -> LeaderEffects:
        """Note the new shape of the log after an append, a flush, or a new log start."""
        assert shape.end >= self.shape.end, "a leader never truncates"
        if shape.end > self.shape.end:
            for broker_id in self.isr.committed & self.followers.keys():
                self.followers[broker_id].leader_appends(self.shape.end, now_ms)
        self.shape = shape
        moved = self._advance(now_ms)
        done = self._purgatory.reached(Acks.LEADER, shape.flushed_end, ErrorCode.NONE)
        return [*moved, *done, *self._acknowledge()]

    def resign(self) -> LeaderEffects:
        """End the leadership: all writes that wait are answered. The object must not be used any more."""
        return [*self._purgatory.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    # --- followers ---------------------------------------------------------------------------------------------------

    def fetched(self, fetch: ReplicaFetch, now_ms: int) -> tuple[Verdict, LeaderEffects]:
        """Judge a follower's fetch, and note its progress if the fetch is valid."""
        code = self._refusal_of_fetch(fetch)
        if code is not ErrorCode.NONE:
            return Refused(code), []
        verdict = judge_fetch(self.shape, fetch.offset, fetch.last_fetched_epoch)
        if not isinstance(verdict, Valid):
            return verdict, []
        follower = self.followers[fetch.broker_id]
        moved = follower.end != fetch.offset
        follower.fetched(fetch.offset, fetch.broker_epoch, self.shape.end, now_ms)
        effects: LeaderEffects = [FollowerMoved(fetch.broker_id, fetch.offset)] if moved else []
        effects += self._grow(fetch.broker_id)
        return verdict, effects + self._advance(now_ms)

    def _refusal_of_fetch(self, fetch: ReplicaFetch) -> ErrorCode:
        if fetch.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        follower = self.followers.get(fetch.broker_id)
        if fetch.leader_epoch > self.leader_epoch or follower is None:
            # A reassignment may have added the follower: this broker has not read its newest metadata. The follower asks again.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if follower.broker_epoch is not None and fetch.broker_epoch < follower.broker_epoch:
            return (
                ErrorCode.NOT_LEADER_OR_FOLLOWER
            )  # a late request of an earlier process, which may have had another disk
        return ErrorCode.NONE

    # --- metadata and the controller's answers -----------------------------------------------------------------------

    def metadata(self, metadata: PartitionMetadata, now_ms: int) -> LeaderEffects:
        """Take the partition's metadata of this leader epoch. Older metadata has no effect."""
        if not self.isr.updated(metadata):
            return []
        self._assign(metadata, now_ms)
        return self._advance(now_ms)

    def brokers_changed(self, candidates: Mapping[NodeId, int], now_ms: int) -> LeaderEffects:
        """Take the brokers that may be in the ISR now, with their broker epochs."""
        self._candidates = candidates
        return self._advance(now_ms)

    def configured(self, config: LeaderConfig, now_ms: int) -> LeaderEffects:
        self.config = config
        return self._advance(now_ms)

    def answered(self, proposal: ProposeIsr, answer: IsrAnswer, now_ms: int) -> LeaderEffects:
        """Take the controller's answer to a proposal of this leader; `NO_ANSWER` if none came."""
        if not self.isr.answered(proposal, answer, now_ms + self.config.retry_backoff_ms):
            return []
        return self._advance(now_ms)

    def grow(self, now_ms: int) -> LeaderEffects:
        """Propose to add a follower that is in sync by its last fetch.

        Call this after a change of brokers or metadata, and after a granted proposal: the follower of an idle partition does not
        fetch again for that.
        """
        effects = [effect for broker_id in self.followers for effect in self._grow(broker_id)]
        return effects + self._advance(now_ms)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> LeaderEffects:
        """Do what is due: call this every half of `lag_time_max_ms`, and at `next_deadline_ms`."""
        again = self.isr.retry(now_ms)
        effects: LeaderEffects = [] if again is None else [again]
        effects += self._shrink(now_ms)
        effects += self._advance(now_ms)
        late = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_under_min_isr else ErrorCode.REQUEST_TIMED_OUT
        return [*effects, *self._purgatory.expire(now_ms, late)]

    def next_deadline_ms(self) -> int | None:
        """When a proposal is to be sent again, or a write expires. The regular ticks come besides."""
        times = [at_ms for at_ms in (self.isr.retry_at_ms, self._purgatory.next_deadline_ms()) if at_ms is not None]
        return min(times, default=None)

    # --- the rules ---------------------------------------------------------------------------------------------------

    def _assign(self, metadata: PartitionMetadata, now_ms: int) -> None:
        """Make the followers those of the assignment. A member of the ISR that is new here has the full time to catch up."""
        others = [broker_id for broker_id in metadata.replicas if broker_id != self.me]
        known = self.followers
        self.followers = {broker_id: known.get(broker_id) or FollowerProgress() for broker_id in others}
        for broker_id in self.isr.committed & (self.followers.keys() - known.keys()):
            self.followers[broker_id].last_caught_up_ms = now_ms

    def _advance(self, now_ms: int) -> LeaderEffects:
        """Move the high watermark as far as it may go, and end the writes below it."""
        reached = self._committed_end(now_ms)
        if reached is None or reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        return [LeaderHighWatermarkMoved(reached), *self._acknowledge()]

    def _acknowledge(self) -> list[ProduceDone]:
        """End the writes with acks=all below the high watermark."""
        enough = len(self.isr.maximal) >= self.min_isr
        code = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self._purgatory.reached(Acks.ALL, self.high_watermark, code)

    def _committed_end(self, now_ms: int) -> Offset | None:
        """The least durable end that counts; None if an end is not known, or the ISR is too small."""
        if self.is_under_min_isr:
            return None
        ends = [self.shape.flushed_end]
        maximal = self.isr.maximal
        for broker_id, follower in self.followers.items():
            if broker_id in maximal or self._is_about_to_join(broker_id, follower, now_ms):
                if follower.end is None:
                    return None
                ends.append(follower.end)
        return min(ends)

    def _is_about_to_join(self, broker_id: NodeId, follower: FollowerProgress, now_ms: int) -> bool:
        caught_up = follower.is_caught_up(self.shape.end, now_ms, self.config.lag_time_max_ms)
        return caught_up and self._is_eligible(broker_id, follower)

    def _is_eligible(self, broker_id: NodeId, follower: FollowerProgress) -> bool:
        """True if the follower's fetches are those of a process that may be in the ISR."""
        return follower.broker_epoch is not None and self._candidates.get(broker_id) == follower.broker_epoch

    def _is_in_sync(self, follower: FollowerProgress) -> bool:
        return follower.end is not None and follower.end >= max(self.high_watermark, self.epoch_start)

    def _grow(self, broker_id: NodeId) -> LeaderEffects:
        """Propose to add a follower that has just fetched."""
        follower = self.followers[broker_id]
        if broker_id in self.isr.committed or not self.isr.may_propose:
            return []
        if not self._is_eligible(broker_id, follower) or not self._is_in_sync(follower):
            return []
        return self._propose(self.isr.committed | {broker_id})

    def _shrink(self, now_ms: int) -> LeaderEffects:
        """Propose to remove the members that lag."""
        if not self.isr.may_propose:
            return []
        lagging = {
            broker_id
            for broker_id in self.isr.committed - {self.me}
            if not self._keeps_up(self.followers.get(broker_id), now_ms)
        }
        return self._propose(self.isr.committed - lagging) if lagging else []

    def _keeps_up(self, follower: FollowerProgress | None, now_ms: int) -> bool:
        return follower is not None and follower.is_caught_up(self.shape.end, now_ms, self.config.lag_time_max_ms)

    def _propose(self, members: frozenset[NodeId]) -> LeaderEffects:
        epochs = {broker_id: follower.broker_epoch for broker_id, follower in self.followers.items()}
        return [self.isr.propose(members, epochs | {self.me: self._broker_epoch})]

    def __str__(self) -> str:
        ends = " ".join(f"{broker_id}:{'?' if of.end is None else of.end}" for broker_id, of in self.followers.items())
        log = f"log {self.shape.end} flushed {self.shape.flushed_end} high watermark {self.high_watermark}"
        return f"leader {self.me} epoch {self.leader_epoch}: {log}; followers {ends}; {self.isr}"
