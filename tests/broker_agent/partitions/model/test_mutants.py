"""Planted bugs in the room of partitions: each breaks a law of the toy cluster within a few seeds."""

from collections.abc import Callable

import pytest

from broker_agent.partitions import following, leading
from broker_agent.partitions.effects import Flush
from broker_agent.partitions.flushes import Flushes
from broker_agent.partitions.following import Following
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.leading import Leading
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.partitions.serving import Serving
from broker_agent.partitions.watchers import Watchers
from broker_agent.publishing.assignments import Follow, Lead
from broker_agent.replica import session_cache
from broker_agent.replica.follower import PartitionAnswer, TruncateLog
from broker_agent.replica.leader import PartitionLeader
from broker_agent.replica.log_work import carry_out
from broker_agent.session.isr_proposals import Place
from tests.broker_agent.partitions.model.toy_cluster import ToyCluster

SEEDS = 40
STEPS = 800

Plant = Callable[[pytest.MonkeyPatch], None]


def flushed_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    """A flush counts at once, and the disk has the records later, perhaps."""
    need = Flushes.need

    def at_once(self: Flushes, replica: HostedReplica) -> bool:
        found = need(self, replica)
        if found and replica.flushing is not None and replica.log is not None:
            replica.log.complete_flush(replica.flushing.ticket)
        return found

    patch.setattr(Flushes, "need", at_once)


def two_flushes(patch: pytest.MonkeyPatch) -> None:
    """Each append begins a flush of its own."""
    need = Flushes.need

    def again(self: Flushes, replica: HostedReplica) -> bool:
        replica.flushing = None
        return need(self, replica)

    patch.setattr(Flushes, "need", again)


def no_flush_after_a_flush(patch: pytest.MonkeyPatch) -> None:
    """The records that came during a flush wait for the next append."""
    flushed = ReplicaManager._flushed

    def alone(self: ReplicaManager, flush: Flush, now_ms: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Flushes, "need", lambda *_: False)
            flushed(self, flush, now_ms)

    patch.setattr(ReplicaManager, "_flushed", alone)


def no_resignation(patch: pytest.MonkeyPatch) -> None:
    """A new leader epoch of the same broker goes on with the old leader object."""

    def lead(self: Leading, replica: HostedReplica, assignment: Lead, now_ms: int) -> None:
        if replica.leader is None:
            self._begin(replica, leading.metadata_of(assignment, self._hosting.me), now_ms)

    patch.setattr(Leading, "lead", lead)


def writes_forgotten_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A leader that resigns answers no write."""
    patch.setattr(PartitionLeader, "resign", lambda self: [])


def no_news(patch: pytest.MonkeyPatch) -> None:
    """A session does not hear of high watermarks that have moved."""
    patch.setattr(Watchers, "changed", lambda self, place: None)


def a_divergence_tells_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """The source takes for granted that the follower has taken a high watermark from an answer that makes it truncate."""
    news = session_cache._Session.news

    def told(
        self: session_cache._Session, answers: dict[Place, PartitionAnswer]
    ) -> tuple[tuple[Place, PartitionAnswer], ...]:
        found = news(self, answers)
        self.said.update({at: session_cache._Said.of(each) for at, each in answers.items() if each.diverged})
        return found

    patch.setattr(session_cache._Session, "news", told)


def answers_before_the_log_has_worked(patch: pytest.MonkeyPatch) -> None:
    """A follower that has another leader epoch forgets that its log has unflushed records."""

    def follow(self: Following, replica: HostedReplica, assignment: Follow, now_ms: int) -> None:
        inner(self, replica, assignment, now_ms)
        if replica.follower is not None and replica.log is not None:
            shape = replica.log.shape
            replica.follower.log_changed(shape._replace(flushed_end=shape.end))

    inner = Following.follow
    patch.setattr(Following, "follow", follow)


def no_truncation(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader has not."""

    def keep(log: object, effect: object, wall_ms: int) -> object:
        if isinstance(effect, TruncateLog):
            return log.begin_flush()  # type: ignore[attr-defined]
        return carry_out(log, effect, wall_ms)  # type: ignore[arg-type]

    patch.setattr(following, "carry_out", keep)


def consumers_read_to_the_end(patch: pytest.MonkeyPatch) -> None:
    """A consumer gets records that are not committed."""
    read = Serving._read

    def everything(self: Serving, fetch: object, *more: object) -> object:
        source = fetch.source  # type: ignore[attr-defined]
        if source is not None:
            return read(self, fetch, *more)  # type: ignore[arg-type]
        replica = self._hosting.replicas[more[0]]  # type: ignore[index]
        known = replica.leader.high_watermark  # type: ignore[union-attr]
        replica.leader.high_watermark = replica.leader.shape.end  # type: ignore[union-attr]
        try:
            return read(self, fetch, *more)  # type: ignore[arg-type]
        finally:
            replica.leader.high_watermark = known  # type: ignore[union-attr]

    patch.setattr(Serving, "_read", everything)


MUTANTS: dict[Plant, str] = {
    flushed_before_the_disk: "",
    two_flushes: "one flush",
    no_flush_after_a_flush: "heals",
    no_resignation: "",
    writes_forgotten_at_the_end: "heals",
    no_news: "heals",
    a_divergence_tells_the_high_watermark: "heals",
    answers_before_the_log_has_worked: "",
    no_truncation: "",
    consumers_read_to_the_end: "committed",
}
"""Mutant -> the law that it breaks; empty if the seed decides which of several laws it breaks first."""


def found_by(seeds: range) -> str:
    """The first broken law, or the first mistake that the code noticed; empty if all seeds pass."""
    for seed in seeds:
        try:
            cluster = ToyCluster(seed).run(STEPS)
            cluster.heal()
            cluster.check_sequences()
        except AssertionError as e:
            return str(e) or "an assertion"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "law"), [pytest.param(*each, id=each[0].__name__) for each in MUTANTS.items()])
def test_a_planted_bug_breaks_a_law(plant: Plant, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws have teeth."""
    plant(monkeypatch)
    told = found_by(range(SEEDS))
    assert told
    assert told.startswith(law)
