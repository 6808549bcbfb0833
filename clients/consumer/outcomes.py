"""The changes that the outcome of a request makes: records, positions, truncations and pauses.

    1. The fetch from broker 1 brings records of orders-0, and NOT_LEADER_OR_FOLLOWER for orders-1 with the hint "102, epoch 6".
    2. The records go into the buffer of orders-0. For orders-1 the consumer follows the hint, and asks for metadata (KIP-951).
    3. Broker 102 answers that epoch 5 ends at 8, below the position 10 of orders-1: records were lost. The policy decides: the
       consumer goes on at 8, or stops with LogTruncated.

An error of one partition gives this partition a pause, and no other. A request without an answer gives its broker a pause.
"""

from collections.abc import Iterable
from typing import Final

from clients.consumer.assigned import Asker, AssignedPartition
from clients.consumer.assignment import Assignment
from clients.consumer.commits import Commits
from clients.consumer.effects import Effect, Fetch, SawEpoch, Stale, Warn
from clients.consumer.errors import ConsumerError, CorruptRecords, OffsetOutOfRange, named
from clients.consumer.in_flight import FATAL, InFlight, Request
from clients.consumer.offset_query import AskedOffset
from clients.consumer.positions import Position
from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.cluster import Cluster
from clients.partition_values import (
    CallFailure,
    EndOfLog,
    EpochEnd,
    FailureKind,
    Fetched,
    FoundOffset,
    TopicIdPartition,
)
from metadata_log.format.errors import ErrorCode, LogFormatError

_MISSING: Final = Fetched(
    TopicIdPartition(b"", 0), ErrorCode.UNKNOWN_SERVER_ERROR, "the answer does not name the partition"
)


class Outcomes:
    """Applies the outcomes of requests to the partitions of one consumer."""

    def __init__(self, assignment: Assignment, in_flight: InFlight, commits: Commits, policy: EndOfLog | None) -> None:
        self._assignment = assignment
        self._in_flight = in_flight
        self._commits = commits
        self._policy = policy
        self.effects: list[Effect] = []
        """The work for the owner, besides requests."""

    @property
    def _backoff(self) -> ExponentialBackoff:
        return self._in_flight.backoff

    # --- requests ----------------------------------------------------------------------------------------------------

    def answered(
        self, request: Request, answers: Iterable[Fetched | FoundOffset | EpochEnd], cluster: Cluster, now_ms: int
    ) -> None:
        """Take the answer of a broker."""
        self._in_flight.answered(request.sent.node.node_id)
        told = list(answers)
        by_place = {each.place: each for each in told} if isinstance(request.sent, Fetch) else None
        for index, entry in enumerate(request.entries):
            asker = entry.asker
            if not entry.counts(request.sent.number):
                continue
            asker.asked = None
            if by_place is None:  # the answers to questions are in the order of the questions
                answer = told[index] if index < len(told) else _MISSING
            else:
                answer = by_place.get(entry.place, _MISSING)
            if answer.code is not ErrorCode.NONE:
                self._refused(asker, answer, cluster, now_ms)
            elif isinstance(answer, Fetched) and isinstance(asker, AssignedPartition):
                if not self._fetched(asker, answer):
                    continue
            elif isinstance(answer, FoundOffset):
                self._found(asker, answer)
            elif isinstance(answer, EpochEnd) and isinstance(asker, AssignedPartition):
                self._compared(asker, answer)
            if isinstance(asker, AssignedPartition):
                self._assignment.touch(asker)

    def failed(self, request: Request, failure: CallFailure, cluster: Cluster, now_ms: int) -> None:
        """Take the failure of a whole request."""
        node_id = request.sent.node.node_id
        is_fatal = failure.kind is FailureKind.FATAL or failure.code in FATAL
        if not is_fatal:
            self._in_flight.failed(node_id, now_ms)
            self.effects.append(Stale(failure.code, node_id))
        for entry in request.entries:
            asker = entry.asker
            if not entry.counts(request.sent.number):
                continue
            asker.asked = None
            if is_fatal:
                self._stop(asker, ConsumerError(failure.code, asker.key, failure.message))
            else:
                self._drop_hint(asker, cluster)
            if isinstance(asker, AssignedPartition):
                self._assignment.touch(asker)

    # --- partitions --------------------------------------------------------------------------------------------------

    def _fetched(self, part: AssignedPartition, answer: Fetched) -> bool:
        """Take the records of one partition; return False if there are none."""
        position = part.position
        assert position is not None and part.leader is not None
        offset = part.fetch_offset
        part.high_watermark = answer.high_watermark
        part.retry_ms = part.failures = 0
        if not answer.batches:
            return False
        try:
            size = part.buffer.add(answer.batches, offset, position.epoch, part.leader.epoch, answer.high_watermark)
        except LogFormatError as e:
            part.stop_with(CorruptRecords(part.key, offset, str(e)))
            return True
        if size:
            self._assignment.put_behind(part)
        return True

    def _found(self, asker: Asker, answer: FoundOffset) -> None:
        asker.retry_ms = asker.failures = 0
        if isinstance(asker, AskedOffset):
            asker.is_found, asker.offset = True, answer.offset
        elif isinstance(asker, AssignedPartition):
            if answer.offset is None:  # no record is as young as the wanted time: go on with those to come
                asker.want(EndOfLog.LATEST)
            else:
                asker.move_to(Position(answer.offset))
                self._commits.move(asker.key, asker.stored)

    def _compared(self, part: AssignedPartition, answer: EpochEnd) -> None:
        part.retry_ms = part.failures = 0
        truncated = part.compare(answer.end)
        if truncated is None:
            return
        if self._policy is None:
            part.stop_with(truncated)
            return
        at, end = truncated.divergent_offset, answer.end
        where = self._policy.value if at is None or end is None else f"offset {at}"
        self.effects.append(Warn(f"{truncated.fact}; the consumer goes on at {where}"))
        if at is None or end is None:
            self._reset(part, self._policy)
        else:
            part.cut_to(Position(at, end.epoch if at == end.offset else None))
            self._commits.move(part.key, part.stored)

    def _refused(self, asker: Asker, answer: Fetched | FoundOffset | EpochEnd, cluster: Cluster, now_ms: int) -> None:
        code = answer.code
        if code in FATAL:
            self._stop(asker, ConsumerError(code, asker.key, f"{named(asker.key)}: {answer.message or code.name}"))
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and isinstance(answer, Fetched):
            assert isinstance(asker, AssignedPartition)
            self._out_of_range(asker, answer, now_ms)
        else:
            self.effects.append(Stale(code))
            asker.back_off(self._backoff, now_ms)
            self._take_hint(asker, answer, cluster, now_ms)

    def _take_hint(self, asker: Asker, answer: Fetched | FoundOffset | EpochEnd, cluster: Cluster, now_ms: int) -> None:
        """Follow the leader that the answer names, if it is later than the asked one; else trust the metadata again."""
        hint, leader = answer.current_leader, asker.leader
        if hint is None or leader is None or leader.epoch is None or hint.leader_epoch <= leader.epoch:
            self._drop_hint(asker, cluster)
            return
        assert asker.topic_id is not None
        self.effects.append(SawEpoch(asker.key, asker.topic_id, hint.leader_epoch))
        if hint.leader_id in cluster.nodes:
            asker.hint = hint
            asker.retry_ms = now_ms
            if isinstance(asker, AssignedPartition):
                asker.follow(asker.leader_in(cluster))

    def _drop_hint(self, asker: Asker, cluster: Cluster) -> None:
        if asker.hint is not None:
            asker.hint = None
            if isinstance(asker, AssignedPartition):
                retry = (asker.retry_ms, asker.failures)
                asker.follow(asker.leader_in(cluster))
                asker.retry_ms, asker.failures = retry

    def _out_of_range(self, part: AssignedPartition, answer: Fetched, now_ms: int) -> None:
        assert part.position is not None
        if part.buffer:  # the program reads what it has; then the position itself is out of range or not
            part.back_off(self._backoff, now_ms)
            return
        error = OffsetOutOfRange(part.key, part.position.offset, answer.log_start_offset)
        if self._policy is None:
            part.stop_with(error)
        else:
            self.effects.append(Warn(f"{error.fact}; the consumer goes on at {self._policy.value}"))
            self._reset(part, self._policy)

    def _reset(self, part: AssignedPartition, policy: EndOfLog) -> None:
        part.want(policy)
        self._commits.move(part.key, None)

    def _stop(self, asker: Asker, error: ConsumerError) -> None:
        if isinstance(asker, AskedOffset):
            asker.query.error = error
        elif isinstance(asker, AssignedPartition):
            asker.stop_with(error)
