"""The requests that one broker answers: writes of producers, and fetches of followers and consumers.

The lease is looked at when a request has come, and when its answer leaves. An answer after the lease is BROKER_NOT_AVAILABLE: an
acknowledgement that the manager has given is not told then.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker_agent.partitions.effects import Effects, Produced
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.purgatory import Acks
from metadata_log.format.data_batch import ProducerStamp, RecordSet
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch
from tests.sim.laws.partitions.committed import Place

if TYPE_CHECKING:
    from tests.sim.data.plane import DataPlane

NOT_AVAILABLE = ErrorCode.BROKER_NOT_AVAILABLE
OnProduced: TypeAlias = Callable[[Produced], None]
OnFetched: TypeAlias = Callable[[SessionAnswer], None]


class Write(NamedTuple):
    """A batch of a producer."""

    place: Place
    leader_epoch: Epoch | None
    records: RecordSet
    stamp: ProducerStamp
    acks: Acks
    timeout_ms: int


class Serving:
    """The requests that wait for their answers."""

    def __init__(self, plane: "DataPlane") -> None:
        self._plane = plane
        self._token = 0
        self._writes: dict[int, tuple[Write, OnProduced]] = {}
        self._fetches: dict[OpenFetch, OnFetched] = {}

    def booted(self) -> None:
        self._writes.clear()
        self._fetches.clear()

    # --- writes ------------------------------------------------------------------------------------------------------

    def append(self, write: Write, on_answer: OnProduced) -> None:
        """A producer's request has arrived."""
        plane = self._plane
        self._token += 1
        token = self._token

        def act(manager: ReplicaManager) -> Effects:
            if not plane.may_serve():
                on_answer(Produced(token, NOT_AVAILABLE))
                return []
            self._writes[token] = write, on_answer
            now_ms = plane.now_ms()
            place = ReplicaPlace(*write.place)
            return manager.append(
                place, write.leader_epoch, write.records, write.stamp, write.acks, now_ms + write.timeout_ms, token,
                now_ms, plane.wall_ms(),
            )  # fmt: skip

        plane.act(act, "append")

    def produced(self, done: Produced) -> None:
        """The manager answers a write."""
        write, on_answer = self._writes.pop(done.token)
        plane, laws = self._plane, self._plane.cluster.laws.partitions
        if not plane.may_serve():
            plane.cluster.coverage["data: lease over when a write was answered"] += 1
            on_answer(Produced(done.token, NOT_AVAILABLE))
            return
        plane.cluster.coverage[f"data: write {done.code.name}"] += 1
        if done.code is ErrorCode.NONE:
            laws.answers_as_leader(plane, write.place)
            if write.acks is Acks.ALL:
                packed = write.records.packed
                laws.acknowledges(plane, write.place, done.base_offset, write.records.record_count, packed)
        on_answer(done)

    # --- fetches -----------------------------------------------------------------------------------------------------

    def fetch(
        self,
        source: FetchSource | None,
        request: SessionRequest,
        max_wait_ms: int,
        max_bytes: int,
        on_answer: OnFetched,
    ) -> None:
        """A follower's or a consumer's request has arrived."""
        plane = self._plane

        def act(manager: ReplicaManager) -> Effects:
            if not plane.may_serve():
                on_answer(SessionAnswer(NOT_AVAILABLE))
                return []
            fetch, effects = manager.open_fetch(
                source, request, plane.now_ms(), max_wait_ms=max_wait_ms, max_bytes=max_bytes
            )
            self._fetches[fetch] = on_answer
            return [*effects, *self.poll(fetch)]

        plane.act(act, "fetch" if source is None else f"fetch b{source.broker_id}")

    def poll(self, fetch: OpenFetch) -> Effects:
        """An open fetch may have its answer now."""
        plane, laws = self._plane, self._plane.cluster.laws.partitions
        if fetch not in self._fetches or plane.manager is None:
            return []
        answer, effects = plane.manager.poll(fetch, plane.now_ms())
        if answer is None:
            return effects
        on_answer = self._fetches.pop(fetch)
        if not plane.may_serve():
            plane.cluster.coverage["data: lease over when a fetch was answered"] += 1
            on_answer(SessionAnswer(NOT_AVAILABLE))
            return effects
        for place, each in answer.answers:
            if each.error is ErrorCode.NONE:
                laws.answers_as_leader(plane, place)
                if fetch.source is None:
                    leader = plane.manager.leader_of(ReplicaPlace(*place))
                    assert leader is not None
                    laws.tells_consumer(plane, place, leader.leader_epoch, each.high_watermark)
        on_answer(answer)
        return effects
