"""The decisions of a consumer: the requests to brokers, and the next records. Pure: inputs go in, effects come out.

    assign, seek, pause     the program's wishes
    follow                  a new view of the metadata
    step                    returns the requests to send now, and what the metadata client shall know
    answered, failed        the outcome of a request
    poll                    returns records that have arrived, each partition's in the order of their offsets
    next_ms                 the time at which `step` is called again, if nothing happens before

    1. `assign([orders-0])`. The store has position 10, epoch 5. Broker 1 leads epoch 6: `step` asks it where epoch 5 ends.
    2. Epoch 5 ends at 20, so broker 1 has record 9. `step` fetches from offset 10. `answered` brings the records 10 to 14.
    3. `poll` returns the five records, and `step` fetches from 15. Broker 1 parks the fetch, because there are no records yet.
    4. Broker 1 dies: `failed`. The effect `Stale` makes the metadata client ask. Its next view has broker 2 with epoch 7.
    5. The consumer asks broker 2 where epoch 6 ends. It ends at 15: nothing was lost, and the fetch goes on.

*Fetches have no session.* A request in a session would name only changes (KIP-227). Without a session each request names all
partitions of the leader, with about 50 bytes for each. An idle consumer of 1,000 partitions sends 100 KB a second. In return a
lost answer and a dropped request cost nothing, and the leader keeps nothing for the consumer.

*A partition that is served goes behind the others*, in the request and in `poll`, so each gets its share. A step looks at
the partitions of those leaders that have no fetch in flight, and at no others.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Final

from clients.consumer.assigned import AssignedPartition
from clients.consumer.assignment import Assignment
from clients.consumer.commits import Commits
from clients.consumer.config import ConsumerConfig
from clients.consumer.effects import Cancel, Effect, Stale
from clients.consumer.errors import CorruptRecords, NoPosition, PartitionMissing, named
from clients.consumer.in_flight import InFlight
from clients.consumer.offset_query import OffsetQuery
from clients.consumer.outcomes import Outcomes
from clients.consumer.partition_names import parse_partition
from clients.consumer.planner import Planner
from clients.consumer.positions import Position, StoredPosition
from clients.consumer.records import ConsumerRecord
from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.cluster import Cluster, TopicPartition
from clients.partition_values import (
    CallFailure,
    EndOfLog,
    EpochEnd,
    FailureKind,
    Fetched,
    FoundOffset,
    WantedOffset,
)
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset

FAR_MS: Final = 60_000
"""How long `step` is not needed at most."""
_POLICIES: Final = {"earliest": EndOfLog.EARLIEST, "latest": EndOfLog.LATEST, "none": None}
_PASSING: Final = (CorruptRecords, PartitionMissing)
"""The errors that end when the program has heard of them: the consumer tries again."""


class ConsumerCore:
    """One consumer. Not thread-safe: the owner steps it."""

    def __init__(
        self, config: ConsumerConfig, dice: random.Random, stored: Mapping[TopicPartition, StoredPosition]
    ) -> None:
        """`stored`: the positions of the store. `dice`: for the jitter of pauses."""
        self._config = config
        self._policy = _POLICIES[config.auto_offset_reset]
        self._cluster = Cluster()
        self._assignment = Assignment()
        self._queries: list[OffsetQuery] = []
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, dice)
        self._in_flight = InFlight(backoff)
        self._planner = Planner(config, self._in_flight)
        self.commits = Commits(config.auto_commit_interval_ms, stored)
        """The positions of the program, for the store."""
        self._outcomes = Outcomes(self._assignment, self._in_flight, self.commits, self._policy)
        self.is_hungry = False
        """True if `poll` has made room in the buffer since the last `step`."""

    # --- the program's wishes ----------------------------------------------------------------------------------------

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        return tuple(self._assignment.partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Those that were assigned before go on where they are."""
        self._assignment.assign(partitions, self._cluster, self._begin)

    def _begin(self, part: AssignedPartition, is_anew: bool) -> None:
        """Give a partition its first position: the stored one, or that of the policy. `is_anew`: its topic was created anew."""
        stored = self.commits.lookup(part.key)
        if stored is not None and (stored.topic_id == part.topic_id or not is_anew):
            part.topic_id = part.topic_id if stored.topic_id is None else stored.topic_id
            part.move_to(Position(stored.offset, stored.epoch))
        elif self._policy is not None:
            part.want(self._policy)
        else:
            why = "the topic was created anew after the position was stored" if is_anew else "no position is stored"
            part.stop_with(NoPosition(part.key, why))

    def seek(self, partition: TopicPartition, position: Position) -> None:
        """Go on at `position`."""
        part = self._part(partition)
        part.move_to(position)
        self.commits.move(part.key, part.stored)
        self._assignment.touch(part)

    def seek_to(self, partition: TopicPartition, wanted: WantedOffset) -> None:
        """Go on at an end of the log, or at a time."""
        part = self._part(partition)
        part.want(wanted)
        self.commits.move(part.key, None)
        self._assignment.touch(part)

    def pause(self, partition: TopicPartition, is_paused: bool) -> None:
        """Give the program no records of a partition, or give records again. The buffer keeps its records."""
        part = self._part(partition)
        part.is_paused = is_paused
        self._assignment.touch(part)

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(key for key, part in self._assignment.partitions.items() if part.is_paused)

    def position(self, partition: TopicPartition) -> Offset | None:
        """Return the offset of the next record for the program; None while the leader has not told it."""
        position = self._part(partition).position
        return None if position is None else position.offset

    def high_watermark(self, partition: TopicPartition) -> Offset | None:
        """Return the high watermark of the last answer; None before the first one."""
        return self._part(partition).high_watermark

    def ask(self, query: OffsetQuery) -> None:
        """Ask for offsets, until `query.is_over` or `forget`."""
        self._queries.append(query)

    def forget(self, query: OffsetQuery) -> None:
        self._queries = [each for each in self._queries if each is not query]

    def missing(self, partitions: Iterable[TopicPartition], code: ErrorCode, message: str) -> None:
        """Note that the metadata lacks these partitions. `poll` tells the program once."""
        for key in partitions:
            part = self._assignment.partitions.get(key)
            if part is not None and part.leader is None and part.error is None:
                part.stop_with(PartitionMissing(code, key, message))
                self._assignment.touch(part)

    def _part(self, partition: TopicPartition) -> AssignedPartition:
        part = self._assignment.partitions.get(partition)
        if part is None:
            raise ValueError(f"{named(parse_partition(partition))} is not assigned to this consumer")
        return part

    # --- requests ----------------------------------------------------------------------------------------------------

    def follow(self, cluster: Cluster) -> None:
        """Take a new view of the metadata."""
        self._cluster = cluster
        self._assignment.follow(cluster, self._begin)

    def step(self, now_ms: int) -> list[Effect]:
        """Return what to do now."""
        self.is_hungry = False
        self._planner.wake_ms = now_ms + FAR_MS
        effects = self._drop_requests(now_ms)
        questions, leaderless = self._planner.questions(self._assignment, self._queries, self._cluster, now_ms)
        for asker in leaderless:
            asker.back_off(self._in_flight.backoff, now_ms)
            self._planner.wake_at(asker.retry_ms)
        if leaderless:
            effects.append(Stale(ErrorCode.LEADER_NOT_AVAILABLE))
        return effects + questions + self._planner.fetches(self._assignment, now_ms) + self._take_effects()

    def _drop_requests(self, now_ms: int) -> list[Effect]:
        """Give up late requests, and unwanted ones."""
        dropped: list[Effect] = []
        for number, request in list(self._in_flight.requests.items()):
            is_late = now_ms >= request.late_ms
            if not is_late and request.is_wanted:
                continue
            dropped.append(Cancel(number))
            if is_late:
                node = request.sent.node
                text = f"{node.host}:{node.port} did not answer in time"
                self.failed(number, CallFailure(FailureKind.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, text), now_ms)
            else:
                self._in_flight.end(number)
        return dropped

    def _take_effects(self) -> list[Effect]:
        effects, self._outcomes.effects = self._outcomes.effects, []
        return effects

    def next_ms(self) -> int:
        """Return the time of the next step, if nothing happens before."""
        lates = (request.late_ms for request in self._in_flight.requests.values())
        return min((*lates, self._planner.wake_ms))

    def answered(
        self, number: int, answers: Iterable[Fetched] | Iterable[FoundOffset] | Iterable[EpochEnd], now_ms: int
    ) -> None:
        """Take the answer to a request. An answer to a dropped request changes nothing."""
        request = self._in_flight.end(number)
        if request is not None:
            self._outcomes.answered(request, answers, self._cluster, now_ms)

    def failed(self, number: int, failure: CallFailure, now_ms: int) -> None:
        """Note that a request ended without an answer."""
        request = self._in_flight.end(number)
        if request is not None:
            self._outcomes.failed(request, failure, self._cluster, now_ms)

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(self, limit: int) -> list[ConsumerRecord]:
        """Return at most `limit` records that have arrived. The program has done with those of the last `poll`.

        An error that lasts must not keep the records of other partitions from the program, so it is raised once. `remind`
        raises it again.

        Raises:
            ConsumerError: a partition cannot be read on by itself, and the program has not heard of this yet. CorruptRecords
                and PartitionMissing are raised once for each failed attempt.
        """
        self.commits.take_all()
        self._raise(self._assignment.failed(is_told=False))
        before = self._assignment.queued_bytes
        records, moved = self._assignment.take(limit)
        for key, part in moved.items():
            assert part.stored is not None
            self.commits.hand_out(key, part.stored)
        if self._assignment.queued_bytes < before:
            self.is_hungry = True
        if not records:
            self._raise(self._assignment.failed(is_told=False))
        return records

    def remind(self) -> None:
        """Raise the error of a partition that still waits for a seek, a pause or an assignment: one after the other."""
        self._raise(self._assignment.failed(is_told=True))

    def _raise(self, part: AssignedPartition | None) -> None:
        if part is None or part.error is None:
            return
        error = part.error
        if isinstance(error, _PASSING):
            part.error = None
            self._assignment.touch(part)
        else:
            self._assignment.put_error_behind(part)
        raise error.with_traceback(None)  # a traceback grows with each raise

    @property
    def has_error(self) -> bool:
        """True if the next `poll` raises an error."""
        return self._assignment.failed(is_told=False) is not None

    def __str__(self) -> str:
        """One line: each partition with its position and its need."""
        parts = self._assignment.partitions.values()
        return ", ".join(f"{named(each.key)}@{each.position}:{each.need.name}" for each in parts)
