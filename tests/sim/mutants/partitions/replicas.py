"""Bugs of replicated partitions: of leaders, followers, logs, and the broker that hosts them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields

from broker_agent.partitions.open_fetch import OpenFetch
from broker_agent.partitions.serving import Serving
from broker_agent.publishing import assignments
from broker_agent.publishing.assignments import Follow, Lead, Stop
from broker_agent.replica import leader
from broker_agent.replica.divergence import Diverged, Valid, Verdict
from broker_agent.replica.follower import FollowerEffects, PartitionAnswer, PartitionFetch, PartitionFollower
from broker_agent.replica.follower_progress import FollowerProgress
from broker_agent.replica.isr import IsrState, ProposeIsr
from broker_agent.replica.leader import LeaderEffects, LeaderHighWatermarkMoved, PartitionLeader
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.producers import ProducedBatch, ProducerStates
from broker_agent.replica.purgatory import Acks, ProduceDone, Purgatory
from broker_agent.session.isr_proposals import Place
from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import ProducerStamp
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.log_shape import LogShape
from metadata_log.format.partition_state import PartitionState
from metadata_log.image.topic_image import TopicImage
from tests.sim.mutants.patching import Mutant, patched

_propose, _log_changed = IsrState.propose, PartitionLeader.log_changed
_assignment_of = assignments.assignment_of
_wait, _expire, _check, _read = Purgatory.wait, Purgatory.expire, ProducerStates.check, Serving._read


def _up_to_the_end(self: PartitionFollower) -> FollowerEffects:
    self.high_watermark = max(self.high_watermark, min(self.shape.end, self.leader_high_watermark))
    return []


def _always_awaits(self: PartitionFollower, asked: PartitionFetch) -> bool:
    return self.is_active


def _judge_by_offset(shape: LogShape, offset: Offset, last_fetched_epoch: Epoch) -> Verdict:
    return Valid() if offset <= shape.end else Diverged(shape.end_and_epoch)


def _removed_at_once(
    self: IsrState, members: frozenset[NodeId], broker_epochs: Mapping[NodeId, int | None]
) -> ProposeIsr:
    proposal = _propose(self, members, broker_epochs)
    self.committed &= members
    return proposal


def _unflushed(self: PartitionLeader, shape: LogShape, now_ms: int) -> LeaderEffects:
    return _log_changed(self, shape._replace(flushed_end=shape.end, flushed_chain=shape.chain), now_ms)


def _fetched_lately(self: FollowerProgress, leader_end: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
    return self.last_fetch_ms is None or now_ms - self.last_fetch_ms <= lag_time_max_ms


def _active_before_its_flush(self: PartitionFollower) -> bool:
    return self.stopped is None and not self.awaits_metadata


def _fetch_from_the_end(self: PartitionFollower) -> PartitionFetch:
    return PartitionFetch(self.shape.end, self.leader_epoch, self.shape.last_epoch)


@contextmanager
def _fetches_before_its_flush() -> Iterator[None]:
    with ExitStack() as both:
        both.enter_context(patched(PartitionFollower, "is_active", property(_active_before_its_flush)))
        both.enter_context(patched(PartitionFollower, "next_fetch", _fetch_from_the_end))
        yield


def _no_repetition(self: ProducerStates, stamp: ProducerStamp, record_count: int) -> ProducedBatch | None:
    _check(self, stamp, record_count)
    return None


def _any_first_sequence(self: ProducerStates, stamp: ProducerStamp, record_count: int) -> ProducedBatch | None:
    if stamp.is_idempotent and stamp.producer_id not in self._producers:
        return None
    return _check(self, stamp, record_count)


def _without_producers(self: PartitionLog, batches: Sequence[Batch], wall_ms: int) -> None:
    self._log.append_batches(batches)


def _waits_for_the_leader(self: Purgatory, token: int, end: Offset, acks: Acks, deadline_ms: int) -> None:
    _wait(self, token, end, Acks.LEADER, deadline_ms)


def _resigns_content(self: PartitionLeader) -> LeaderEffects:
    return [*self._purgatory.fail(ErrorCode.NONE)]


def _late_is_done(self: Purgatory, now_ms: int, code_of_all: ErrorCode) -> list[ProduceDone]:
    return _expire(self, now_ms, ErrorCode.NONE)


def _read_until(
    self: Serving,
    fetch: OpenFetch,
    place: Place,
    asked: PartitionFetch,
    now_ms: int,
    until: Callable[[PartitionLeader], Offset],
) -> tuple[PartitionAnswer, bool]:
    """Of a consumer; a follower reads as ever."""
    replica = self._hosting.replicas.get(place)
    leader = None if replica is None or fetch.source is not None else replica.leader
    if leader is None:
        return _read(self, fetch, place, asked, now_ms)
    before, leader.high_watermark = leader.high_watermark, until(leader)
    try:
        return _read(self, fetch, place, asked, now_ms)
    finally:
        leader.high_watermark = before


def _read_to_the_end(
    self: Serving, fetch: OpenFetch, place: Place, asked: PartitionFetch, now_ms: int
) -> tuple[PartitionAnswer, bool]:
    return _read_until(self, fetch, place, asked, now_ms, lambda leader: leader.shape.end)


def _read_less(
    self: Serving, fetch: OpenFetch, place: Place, asked: PartitionFetch, now_ms: int
) -> tuple[PartitionAnswer, bool]:
    return _read_until(
        self, fetch, place, asked, now_ms, lambda leader: max(leader.shape.start.offset, leader.high_watermark - 1)
    )


def _back_and_forth(self: PartitionLeader, now_ms: int) -> LeaderEffects:
    reached = self._committed_end(now_ms)
    if reached is None or reached == self.high_watermark:
        return []
    self.high_watermark = reached
    return [LeaderHighWatermarkMoved(reached), *self._acknowledge()]


def _led_by_the_preferred(
    broker_id: NodeId, topic: TopicImage, partition: int, state: PartitionState, offset: Offset
) -> Lead | Follow | Stop:
    assignment = _assignment_of(broker_id, topic, partition, state, offset)
    if not isinstance(assignment, Follow) or assignment.replicas[0] != broker_id:
        return assignment
    values = {each.name: getattr(assignment, each.name) for each in fields(assignment)}
    return Lead(**(values | {"leader": broker_id}))


REPLICAS: dict[str, Mutant] = {
    "proposed-member-not-counted": Mutant(
        "the high watermark of a partition ignores a member that its leader has only proposed",
        lambda: patched(IsrState, "maximal", property(lambda self: self.committed)),
    ),
    "removed-member-not-counted": Mutant(
        "a member that the leader of a partition proposes to remove does not count from then on",
        lambda: patched(IsrState, "propose", _removed_at_once),
    ),
    "watermark-moves-below-min-isr": Mutant(
        "the high watermark of a partition moves whatever the size of the ISR (KIP-966)",
        lambda: patched(PartitionLeader, "min_isr", property(lambda self: 1)),
    ),
    "partition-leader-counts-unflushed": Mutant(
        "the leader of a partition counts records that its own disk may lose",
        lambda: patched(PartitionLeader, "log_changed", _unflushed),
    ),
    "replica-fetches-before-its-flush": Mutant(
        "a follower of a partition acknowledges records that its disk may lose",
        _fetches_before_its_flush,
    ),
    "replica-watermark-before-its-flush": Mutant(
        "a follower takes its leader's high watermark up to its own end, flushed or not",
        lambda: patched(PartitionFollower, "_advance", _up_to_the_end),
    ),
    "late-records-taken": Mutant(
        "a follower takes the answer to an earlier fetch for the answer to its last one",
        lambda: patched(PartitionFollower, "_awaits", _always_awaits),
    ),
    "replicas-compared-by-offset": Mutant(
        "a leader takes each replica that is not longer than its own log for a prefix of its own log (KIP-101)",
        lambda: patched(leader, "judge_fetch", _judge_by_offset),
    ),
    "partition-watermark-goes-back": Mutant(
        "the high watermark of a partition follows its replicas back, when an earlier fetch arrives late",
        lambda: patched(PartitionLeader, "_advance", _back_and_forth),
    ),
    "preferred-replica-leads": Mutant(
        "a broker leads the partitions that prefer it, whatever the metadata says",
        lambda: patched(assignments, "assignment_of", _led_by_the_preferred),
    ),
    "last-batch-not-read": Mutant(
        "a consumer reads up to the record below the last committed one",
        lambda: patched(Serving, "_read", _read_less),
    ),
    "fetching-is-keeping-up": Mutant(
        "a member stays in the ISR while it fetches, however little it gets",
        lambda: patched(FollowerProgress, "is_caught_up", _fetched_lately),
    ),
    "written-by-the-leader-alone": Mutant(
        "a write with acks=all is acknowledged when the leader's own disk has it",
        lambda: patched(Purgatory, "wait", _waits_for_the_leader),
    ),
    "batch-appended-twice": Mutant(
        "a repeated batch of a producer is appended again (KIP-98)",
        lambda: patched(ProducerStates, "check", _no_repetition),
    ),
    "any-first-sequence": Mutant(
        "a producer that the log does not know may begin at any sequence",
        lambda: patched(ProducerStates, "check", _any_first_sequence),
    ),
    "resigned-leader-acknowledges": Mutant(
        "a leader of a partition that resigns acknowledges the writes that wait",
        lambda: patched(PartitionLeader, "resign", _resigns_content),
    ),
    "late-write-acknowledged": Mutant(
        "a write with acks=all is acknowledged at its deadline, whatever its replicas have",
        lambda: patched(Purgatory, "expire", _late_is_done),
    ),
    "consumer-reads-to-the-end": Mutant(
        "a consumer reads up to the end of the leader's log, above the high watermark",
        lambda: patched(Serving, "_read", _read_to_the_end),
    ),
    "followers-forget-producers": Mutant(
        "a follower takes over the records of a producer, and not its sequences",
        lambda: patched(PartitionLog, "append_fetched", _without_producers),
    ),
}
