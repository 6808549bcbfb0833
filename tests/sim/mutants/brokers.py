"""Bugs of the controller's work for brokers: registrations, fencing, sessions, leases, partitions, deltas."""

from collections.abc import Iterator
from dataclasses import replace

from metadata_log import delta
from metadata_log.ids import NodeId, Offset
from metadata_log.image import MetadataImage
from metadata_log.log import Log
from metadata_log.partition_state import PARTITION_EPOCH, PartitionState, merge
from metadata_log.records import MetadataRecord, PartitionChange, RegisterBroker
from quorum.controller import alter_partition
from quorum.controller import brokers as controller_brokers
from quorum.controller.brokers import Brokers
from quorum.controller.commands import AlterPartition, PartitionAlteration
from quorum.controller.contact import BrokerState, Next, next_state
from quorum.controller.controller import BrokerStanding
from quorum.controller.sessions import Sessions
from quorum.runtime import metadata_feed
from quorum.runtime.node import Node
from quorum.runtime.requests import MetadataFetch, MetadataFetched
from quorum.runtime.state_machine import StateMachine
from quorum.runtime.waiting import ParkedFetch, ParkedFetches
from tests.sim.mutants.patching import Mutant, patched

_leave_wholly = Brokers._leave
_deltas = metadata_feed.deltas
_register = delta.MetadataDelta._register_broker


def _hear_any_epoch(self: Sessions, broker_id: NodeId, broker_epoch: int, now_ms: int) -> None:
    session = self._by_broker.get(broker_id)
    if session is not None:
        session.last_contact_ms = now_ms
        session.deadline_ms = max(session.deadline_ms, now_ms + self._timeout_ms)


def _unfence_at_once(
    state: BrokerState, *, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, is_held: bool
) -> Next:
    return next_state(state, wants_fence=False, wants_shut_down=wants_shut_down, is_caught_up=True, is_held=is_held)


def _leave_nothing(
    self: Brokers, image: MetadataImage, broker_id: NodeId, now_ms: int
) -> tuple[list[PartitionChange], bool]:
    return [], True


def _leave_leaderships_only(
    self: Brokers, image: MetadataImage, broker_id: NodeId, now_ms: int
) -> tuple[list[MetadataRecord], bool]:
    moves, is_done = _leave_wholly(self, image, broker_id, now_ms)
    return [move for move in moves if not isinstance(move, PartitionChange) or move.leader is not None], is_done


def _epoch_of_the_earlier_life(self: delta.MetadataDelta, record: RegisterBroker, offset: Offset) -> None:
    old = self._brokers.get(record.broker_id)
    if old is not None and record.broker_epoch < 0:
        self._put(self._brokers, record.broker_id, record._replace(broker_epoch=old.broker_epoch))
        self.changed.brokers.add(record.broker_id)
        return
    _register(self, record, offset)


_REPLAYS_AS_THE_EARLIER_LIFE = delta.REPLAYS[RegisterBroker]._replace(apply=_epoch_of_the_earlier_life)


def _session_after_failover_is_over(self: Sessions, image: MetadataImage, now_ms: int) -> None:
    self._by_broker.clear()
    self._next_deadline_ms = None
    for broker in image.brokers.unordered_values():
        if not broker.fenced:
            self._open(broker.broker_id, broker.broker_epoch, now_ms - self._timeout_ms)


def _nobody_is_watched_after_failover(self: Sessions, image: MetadataImage, now_ms: int) -> None:
    self.clear()


def _lease_of_a_session(self: Node) -> int:
    return 2 * self._config.controller.session_timeout_ms


def _lease_by_the_look(self: Brokers, image: MetadataImage, broker_id: NodeId, offset: Offset) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def _merge_keeping_epoch(state: PartitionState, change: PartitionChange) -> PartitionState:
    merged = list(merge(state, change))
    merged[PARTITION_EPOCH] = state[PARTITION_EPOCH]
    return tuple(merged)  # type: ignore[return-value]


def _compare_nothing(state: PartitionState, command: AlterPartition, alteration: PartitionAlteration) -> None:
    pass


def _deltas_to_the_end(
    fetch: MetadataFetch, log: Log, state: StateMachine, *, epoch: int, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    answer = _deltas(fetch, log, state, epoch=epoch, standing=standing, lease_ms=lease_ms)
    batches = log.read(fetch.offset, 1 << 20)
    end = batches[-1].end_offset if batches else fetch.offset
    return replace(answer, batches=batches, end_offset=end, digest=b"", digest_offset=end)


def _deltas_with_a_gap(
    fetch: MetadataFetch, log: Log, state: StateMachine, *, epoch: int, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    answer = _deltas(fetch, log, state, epoch=epoch, standing=standing, lease_ms=lease_ms)
    return replace(answer, batches=answer.batches[1:]) if len(answer.batches) > 1 else answer


def _none_expires(self: ParkedFetches, now_ms: int) -> Iterator[ParkedFetch]:
    return iter(())


BROKERS: dict[str, Mutant] = {
    "stale-broker-epoch-heard": Mutant(
        "a broker's earlier life speaks for its present one",
        lambda: patched(Sessions, "touch", _hear_any_epoch),
    ),
    "broker-epoch-reused": Mutant(
        "a broker's new process gets the epoch of its earlier one",
        lambda: patched(delta, "REPLAYS", {**delta.REPLAYS, RegisterBroker: _REPLAYS_AS_THE_EARLIER_LIFE}),
    ),
    "unfenced-before-caught-up": Mutant(
        "a broker is unfenced before it has applied its own registration",
        lambda: patched(controller_brokers, "next_state", _unfence_at_once),
    ),
    "fenced-broker-leads": Mutant(
        "a broker is fenced and what it leads is left with it",
        lambda: patched(Brokers, "_leave", _leave_nothing),
    ),
    "fenced-broker-in-isr": Mutant(
        "a broker is fenced and stays in the ISRs of what others lead",
        lambda: patched(Brokers, "_leave", _leave_leaderships_only),
    ),
    "no-session-after-failover": Mutant(
        "a new controller judges brokers by a silence that it was not there to hear",
        lambda: patched(Sessions, "reset", _session_after_failover_is_over),
    ),
    "nobody-watched-after-failover": Mutant(
        "a new controller does not know whom it has to hear of (KAFKA-18138)",
        lambda: patched(Sessions, "reset", _nobody_is_watched_after_failover),
    ),
    "lease-outlasts-session": Mutant(
        "a lease is longer than the session that it is a promise about",
        lambda: patched(Node, "_lease_ms", _lease_of_a_session),
    ),
    "lease-by-the-look": Mutant(
        "a broker that looks unfenced is given a lease, whatever is decided and not applied",
        lambda: patched(Brokers, "may_serve", _lease_by_the_look),
    ),
    "partition-epoch-not-raised": Mutant(
        "a partition changes and keeps its epoch",
        lambda: patched(delta, "merge", _merge_keeping_epoch),
    ),
    "isr-changed-by-stale-epoch": Mutant(
        "a leader's proposal is taken whatever epochs it was made for (KIP-497)",
        lambda: patched(alter_partition, "_check_epochs", _compare_nothing),
    ),
    "broker-given-uncommitted": Mutant(
        "a broker is given what is in the leader's log",
        lambda: patched(metadata_feed, "deltas", _deltas_to_the_end),
    ),
    "broker-given-a-gap": Mutant(
        "of several batches a broker is not given the first",
        lambda: patched(metadata_feed, "deltas", _deltas_with_a_gap),
    ),
    "parked-fetch-forgotten": Mutant(
        "a broker that waits for news is told nothing when its time is up",
        lambda: patched(ParkedFetches, "expired", _none_expires),
    ),
}
