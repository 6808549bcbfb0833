"""Any sequence of reassignments, cancellations, ISR changes and fences, beside a twin that knows sets only.

The twin keeps the former replicas and the target apart, and recomputes everything from them. It has no order, no epochs, no
records, and no way to keep something from the step before.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import Partition
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    Reassignment,
)
from tests.quorum.controller.cluster import Cluster
from tests.quorum.controller.partitions.test_reassignments import in_sync

BROKERS = 5
Ids = frozenset[NodeId]


@dataclass
class Twin:
    """One partition, in sets."""

    former: Ids
    isr: Ids
    target: Ids | None = None
    active: set[NodeId] = field(default_factory=lambda: set(range(BROKERS)))

    @property
    def replicas(self) -> Ids:
        return self.former | (self.target or frozenset())

    def may_lead(self, isr: Ids) -> bool:
        return bool(isr & self.active)

    def finish(self) -> None:
        """The former replicas go when all that is added is in sync; if nothing is added, when one that stays is."""
        if self.target is None:
            return
        covered = self.target <= self.isr if self.target - self.former else bool(self.target & self.isr)
        if covered and (self.may_lead(self.isr & self.target) or not self.may_lead(self.isr)):
            self.former, self.isr, self.target = self.target, self.isr & self.target, None

    def reassign(self, target: Ids) -> ErrorCode:
        return self._take(target, self.former | target)

    def cancel(self) -> ErrorCode:
        if self.target is None:
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        return self._take(None, self.former)

    def _take(self, target: Ids | None, replicas: Ids) -> ErrorCode:
        kept, leads = self.isr & replicas, self.may_lead(self.isr)
        if kept != self.isr and (not kept or (leads and not self.may_lead(kept))):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        self.isr, self.target = kept, target
        self.finish()
        if self.target == self.former:
            self.target = None
        return ErrorCode.NONE

    def fence(self, broker_id: NodeId) -> None:
        self.active.discard(broker_id)
        self.isr = self.isr - {broker_id} or self.isr
        self.finish()

    def unfence(self, broker_id: NodeId) -> None:
        self.active.add(broker_id)
        if broker_id in self.replicas:
            self.finish()


def check(twin: Twin, now: Partition) -> None:
    """The record says what the twin says."""
    assert set(now.replicas) == twin.replicas
    target = twin.former if twin.target is None else twin.target
    assert set(now.replicas) - set(now.removing_replicas) == target
    assert set(now.replicas) - set(now.adding_replicas) == twin.former
    assert set(now.isr) == twin.isr
    assert now.leader in twin.isr & twin.active if twin.may_lead(twin.isr) else now.leader == NO_LEADER
    assert list(now.replicas[len(target) :]) == list(now.removing_replicas), "the target is first, in its own order"


TARGET = st.permutations(range(BROKERS)).flatmap(lambda order: st.integers(1, 3).map(lambda size: tuple(order[:size])))
STEP = st.one_of(
    st.tuples(st.just("reassign"), TARGET),
    st.tuples(st.just("cancel"), st.just(())),
    st.tuples(st.just("in sync"), st.sets(st.integers(0, BROKERS - 1)).map(tuple)),
    st.tuples(st.just("fence"), st.integers(0, BROKERS - 1).map(lambda each: (each,))),
    st.tuples(st.just("unfence"), st.integers(0, BROKERS - 1).map(lambda each: (each,))),
)


def ask(cluster: Cluster, replicas: tuple[NodeId, ...] | None) -> ErrorCode:
    command = AlterPartitionReassignments((Reassignment("t", 0, replicas),))
    return cluster.ask(command, AlterPartitionReassignmentsReply).results[0].error


def live(cluster: Cluster, twin: Twin, kind: str, ids: tuple[NodeId, ...]) -> None:
    """One step, of both."""
    now = cluster.partitions("t")[0]
    match kind:
        case "reassign":
            assert ask(cluster, ids) is twin.reassign(frozenset(ids))
        case "cancel":
            assert ask(cluster, None) is twin.cancel()
        case "in sync" if now.leader != NO_LEADER:
            isr = (twin.replicas & set(ids) & twin.active) | {now.leader}
            assert in_sync(cluster, *isr).error in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
            twin.isr = isr
            twin.finish()
        case "fence" if ids[0] in twin.active:
            cluster.contact(ids[0], wants_fence=True)
            twin.fence(ids[0])
        case "unfence" if ids[0] not in twin.active:
            cluster.contact(ids[0])
            twin.unfence(ids[0])
        case _:
            pass


@settings(max_examples=150, deadline=None)
@given(TARGET, st.lists(STEP, max_size=25))
def test_any_history_ends_as_the_sets_say(
    first: tuple[NodeId, ...], steps: list[tuple[str, tuple[NodeId, ...]]]
) -> None:
    """After every step the partition has the replicas, the target, the ISR and a leader as the twin has them. At the end all
    brokers are back and in sync: the reassignment in progress is finished, with exactly its target."""
    cluster = Cluster(BROKERS)
    cluster.assign("t", first)
    twin = Twin(frozenset(first), frozenset(first))
    for kind, ids in steps:
        live(cluster, twin, kind, ids)
        check(twin, cluster.partitions("t")[0])
    target = twin.former if twin.target is None else twin.target
    for broker_id in range(BROKERS):
        live(cluster, twin, "unfence", (broker_id,))
    live(cluster, twin, "in sync", tuple(range(BROKERS)))
    check(twin, cluster.partitions("t")[0])
    assert set(cluster.partitions("t")[0].replicas) == target
