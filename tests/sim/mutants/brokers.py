"""Bugs of the controller's work for brokers: registrations, fencing, sessions, leases, partitions, deltas."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from metadata_log.format.ids import NO_LEADER, NodeId, Offset, Uuid
from metadata_log.format.partition_state import PARTITION_EPOCH, REPLICAS, PartitionState, merge
from metadata_log.format.records import PartitionChange, RegisterBroker
from metadata_log.image import delta, topic_delta
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers import broker_commands as controller_brokers
from quorum.controller.brokers import registrations
from quorum.controller.brokers.contact import BrokerState, Next, next_state
from quorum.controller.brokers.departures import Cause, Departures, Slice
from quorum.controller.brokers.returns import Elected, Returns
from quorum.controller.brokers.sessions import Sessions
from quorum.controller.controller import BrokerStanding, Controller
from quorum.controller.partitions import alter_partition
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.partitions.placement import Placer
from quorum.controller.protocol.commands import AlterPartition, Command, IsrMember, PartitionAlteration
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.topics import topic_pieces
from quorum.controller.topics.topic_pieces import TopicPieces
from quorum.runtime.active import metadata_feed
from quorum.runtime.active.broker_feed import BrokerFeed
from quorum.runtime.active.metadata_feed import Range, Ranges
from quorum.runtime.active.waiting_room import ParkedFetch, ParkedFetches
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched
from tests.sim.mutants.patching import Mutant, patched

_check_isr, _check_members = alter_partition._check_isr, alter_partition._check_members
_decide, _standing = Controller.decide, Controller.standing
_make_view = BrokerView.__init__
_step_wholly = Departures.step
_asked_by = Ranges.asked_by
_deltas = metadata_feed.deltas
_elected = PartitionChangeBuilder._elected
_place = Placer.place
_lease_ms = BrokerFeed._lease_ms
_register = delta.MetadataDelta._register_broker


STRANGER_ID = 999


def _hear_any_epoch(self: Sessions, broker_id: NodeId, broker_epoch: int, now_ms: int) -> None:
    session = self._by_broker.get(broker_id)
    if session is not None:
        self._note(broker_id, session, now_ms)


def _unfence_at_once(
    state: BrokerState, *, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, is_held: bool
) -> Next:
    return next_state(state, wants_fence=False, wants_shut_down=wants_shut_down, is_caught_up=True, is_held=is_held)


def _leave_nothing(self: Departures, image: MetadataImage, broker_id: NodeId, cause: Cause, now_ms: int) -> Slice:
    return Slice((), cause, True, ())


def _elect_nothing(self: Returns, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
    return Elected()


def _look_for_nothing(self: Returns, image: MetadataImage, now_ms: int) -> None:
    pass


@contextmanager
def _return_to_nothing() -> Iterator[None]:
    with patched(Returns, "returned", _elect_nothing), patched(Returns, "begin_look", _look_for_nothing):
        yield


def _leave_leaderships_only(
    self: Departures, image: MetadataImage, broker_id: NodeId, cause: Cause, now_ms: int
) -> Slice:
    left = _step_wholly(self, image, broker_id, cause, now_ms)
    return left._replace(changes=tuple([change for change in left.changes if change.leader is not None]))


def _epoch_of_the_earlier_life(self: delta.MetadataDelta, record: RegisterBroker, offset: Offset) -> None:
    old = self._brokers.get(record.broker_id)
    if old is not None and record.broker_epoch < 0:
        self._put(self._brokers, record.broker_id, record._replace(broker_epoch=old.broker_epoch))
        self.changed.brokers.add(record.broker_id)
        return
    _register(self, record, offset)


_REPLAYS_AS_THE_EARLIER_LIFE = delta.REPLAYS[RegisterBroker]._replace(apply=_epoch_of_the_earlier_life)


def _session_after_failover_is_over(self: Sessions, image: MetadataImage, now_ms: int) -> None:
    self.clear()
    for broker in image.brokers.unordered_values():
        if not broker.fenced:
            self._open(broker.broker_id, broker.broker_epoch, now_ms - self._timeout_ms)


def _nobody_is_watched_after_failover(self: Sessions, image: MetadataImage, now_ms: int) -> None:
    self.clear()


def _lease_of_a_session(self: BrokerFeed) -> int:
    return 2 * self._config.controller.session_timeout_ms if _lease_ms(self) > 0 else 0


def _lease_of_any_age(self: BrokerFeed) -> int:
    return self._config.lease_ms


def _lease_by_the_look(self: BrokerFeed, fetch: MetadataFetch) -> int:
    broker = self._state.committed.brokers.get(fetch.broker_id)
    return self._lease_ms() if broker is not None and not broker.fenced else 0


def _elect_whoever_is_there(self: PartitionChangeBuilder) -> NodeId:
    elected = _elected(self)
    if elected != NO_LEADER:
        return elected
    return next((replica for replica in self._state[REPLICAS] if replica in self._active), NO_LEADER)


@contextmanager
def _elect_without_a_check() -> Iterator[None]:
    with (
        patched(PartitionChangeBuilder, "_elected", _elect_whoever_is_there),
        patched(topic_delta, "misfit", lambda state: None),
    ):
        yield


def _id_by_count(self: TopicPieces, image: MetadataImage) -> Uuid:
    return (len(image.topics_by_id) + 1).to_bytes(16, "big")


def _place_on_strangers(self: Placer, partition_count: int, replication_factor: int) -> list[tuple[NodeId, ...]]:
    placed = _place(self, partition_count, replication_factor)
    return [(*replicas[:-1], STRANGER_ID) if len(replicas) > 1 else replicas for replicas in placed]


@contextmanager
def _place_without_a_check() -> Iterator[None]:
    with (
        patched(Placer, "place", _place_on_strangers),
        patched(topic_delta.TopicDelta, "_check_registered", lambda self, broker_ids, known: None),
    ):
        yield


def _any_number_of_replicas(name: str, replication_factor: int, usable: int, online: int, registered: int) -> None:
    pass


def _forget_whoever_is_named(image: MetadataImage, broker: RegisterBroker, sessions: Sessions, now_ms: int) -> None:
    pass


def _merge_keeping_epoch(state: PartitionState, change: PartitionChange) -> PartitionState:
    merged = list(merge(state, change))
    merged[PARTITION_EPOCH] = state[PARTITION_EPOCH]
    return tuple(merged)  # type: ignore[return-value]


def _compare_nothing(state: PartitionState, command: AlterPartition, alteration: PartitionAlteration) -> None:
    pass


def _leader_may_be_missing(state: PartitionState, alteration: PartitionAlteration, isr: tuple[int, ...]) -> None:
    try:
        _check_isr(state, alteration, isr)
    except Rejected as e:
        if "lacks the leader" not in e.message:
            raise


def _member_of_any_life(
    image: MetadataImage, state: PartitionState, alteration: PartitionAlteration, view: BrokerView
) -> None:
    members = tuple(IsrMember(each.broker_id) for each in alteration.new_isr)
    _check_members(image, state, replace(alteration, new_isr=members), view)


def _propose_as_of_any_life(
    self: Controller, image: MetadataImage, command: Command, now_ms: int, wall_ms: int = 0
) -> Decision:
    broker = image.brokers.get(command.broker_id) if isinstance(command, AlterPartition) else None
    if isinstance(command, AlterPartition) and broker is not None:
        command = replace(command, broker_epoch=broker.broker_epoch)
    return _decide(self, image, command, now_ms, wall_ms)


def _may_go_when_it_asks(self: Controller, image: MetadataImage, broker_id: NodeId) -> BrokerStanding:
    standing, broker = _standing(self, image, broker_id), image.brokers.get(broker_id)
    return standing._replace(should_shut_down=True) if broker and broker.in_controlled_shutdown else standing


def _stopping_is_active(
    self: BrokerView,
    image: MetadataImage,
    barred: frozenset[NodeId],
    drained: frozenset[NodeId],
    rng: random.Random,
    failing: Mapping[NodeId, frozenset[Uuid]],
) -> None:
    _make_view(self, image, barred, drained, rng, failing)
    unfenced = {broker.broker_id for broker in image.brokers.unordered_values() if not broker.fenced}
    self.active = frozenset(unfenced - barred)
    self.may_lead = self.active - self.resting


def _deltas_to_the_end(
    fetch: MetadataFetch, ranges: Ranges, *, epoch: int, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    answer = _deltas(fetch, ranges, epoch=epoch, standing=standing, lease_ms=lease_ms)
    batches = ranges.log.read(fetch.offset, 1 << 20)
    end = batches[-1].end_offset if batches else fetch.offset
    return replace(answer, batches=batches, end_offset=end, digest=b"", digest_offset=end, part=None)


def _deltas_with_a_gap(
    fetch: MetadataFetch, ranges: Ranges, *, epoch: int, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    answer = _deltas(fetch, ranges, epoch=epoch, standing=standing, lease_ms=lease_ms)
    return replace(answer, batches=answer.batches[1:]) if len(answer.batches) > 1 else answer


def _digest_of_what_is_proposed(
    fetch: MetadataFetch, ranges: Ranges, *, epoch: int, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    answer = _deltas(fetch, ranges, epoch=epoch, standing=standing, lease_ms=lease_ms)
    return replace(answer, digest=ranges.state.proposed.digest_bytes) if answer.digest else answer


def _range_of_another(self: Ranges, fetch: MetadataFetch) -> Range:
    if self._until == self.state.applied and self._found:
        return next(iter(self._found.values()))
    return _asked_by(self, fetch)


def _deltas_with_one_lease(
    fetch: MetadataFetch, ranges: Ranges, *, epoch: int, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    of_all: dict[tuple[Offset, Offset], int] = ranges.__dict__.setdefault("leases", {})
    lease_ms = of_all.setdefault((ranges.state.applied, fetch.offset), lease_ms)
    return _deltas(fetch, ranges, epoch=epoch, standing=standing, lease_ms=lease_ms)


def _always_now(self: Sessions) -> int | None:
    return 0 if self._by_broker else None


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
        "a broker is fenced and keeps its leaderships",
        lambda: patched(Departures, "step", _leave_nothing),
    ),
    "fenced-broker-in-isr": Mutant(
        "a broker is fenced and stays in the ISRs of other leaders",
        lambda: patched(Departures, "step", _leave_leaderships_only),
    ),
    "returned-broker-not-elected": Mutant(
        "a broker that is online again is not elected for partitions without a leader",
        _return_to_nothing,
    ),
    "stopping-broker-elected": Mutant(
        "a broker that is about to stop is still given leaderships",
        lambda: patched(BrokerView, "__init__", _stopping_is_active),
    ),
    "told-to-go-too-early": Mutant(
        "a broker that stops is told that it may go while it leads",
        lambda: patched(Controller, "standing", _may_go_when_it_asks),
    ),
    "unclean-election-unasked": Mutant(
        "if no member of the ISR can lead, any replica does, though no topic allows it (KIP-106)",
        lambda: patched(ElectionRules, "allows_unclean", lambda self: True),
    ),
    "no-session-after-failover": Mutant(
        "a new controller counts the silence of brokers from before its own time",
        lambda: patched(Sessions, "reset", _session_after_failover_is_over),
    ),
    "nobody-watched-after-failover": Mutant(
        "a new controller does not know which brokers it has to watch (KAFKA-18138)",
        lambda: patched(Sessions, "reset", _nobody_is_watched_after_failover),
    ),
    "lease-outlasts-session": Mutant(
        "a lease is longer than the session that it is a promise about",
        lambda: patched(BrokerFeed, "_lease_ms", _lease_of_a_session),
    ),
    "lease-of-a-deposed-leader": Mutant(
        "a leader gives leases however long ago a majority has said that it leads",
        lambda: patched(BrokerFeed, "_lease_ms", _lease_of_any_age),
    ),
    "lease-by-the-look": Mutant(
        "a broker that is unfenced in the image gets a lease, although its fencing is already proposed",
        lambda: patched(BrokerFeed, "_lease_for", _lease_by_the_look),
    ),
    "partition-epoch-not-raised": Mutant(
        "a partition changes and keeps its epoch",
        lambda: patched(topic_delta, "merge", _merge_keeping_epoch),
    ),
    "leader-outside-the-isr": Mutant(
        "if no member of the ISR is left, any replica leads, and replay accepts this",
        _elect_without_a_check,
    ),
    "topic-id-used-again": Mutant(
        "a topic's id is the number of topics",
        lambda: patched(TopicPieces, "_new_topic_id", _id_by_count),
    ),
    "replica-on-a-stranger": Mutant(
        "a replica is placed on a broker that has never registered, and no replay minds",
        _place_without_a_check,
    ),
    "forgotten-with-replicas": Mutant(
        "an operator's word makes the controllers forget a broker that lives, or holds replicas",
        lambda: patched(registrations, "check_may_be_unregistered", _forget_whoever_is_named),
    ),
    "placed-unasked": Mutant(
        "replicas are placed without asking whether there are so many brokers, or any that could lead",
        lambda: patched(topic_pieces, "check_replication_factor", _any_number_of_replicas),
    ),
    "isr-changed-by-stale-epoch": Mutant(
        "a leader's proposal is taken whatever epochs it was made for (KIP-497)",
        lambda: patched(alter_partition, "_check_epochs", _compare_nothing),
    ),
    "isr-without-its-leader": Mutant(
        "a leader's proposal may leave the leader out, and then another leads",
        lambda: patched(alter_partition, "_check_isr", _leader_may_be_missing),
    ),
    "isr-member-of-an-earlier-life": Mutant(
        "a leader has seen an earlier process of a replica, and its present one is in the ISR (KIP-903)",
        lambda: patched(alter_partition, "_check_members", _member_of_any_life),
    ),
    "isr-proposed-by-an-earlier-life": Mutant(
        "a broker's earlier process proposes an ISR, and it is granted",
        lambda: patched(Controller, "decide", _propose_as_of_any_life),
    ),
    "broker-given-uncommitted": Mutant(
        "a broker is given uncommitted records of the leader's log",
        lambda: patched(metadata_feed, "deltas", _deltas_to_the_end),
    ),
    "broker-given-a-gap": Mutant(
        "of several batches a broker is not given the first",
        lambda: patched(metadata_feed, "deltas", _deltas_with_a_gap),
    ),
    "digest-of-what-is-proposed": Mutant(
        "a broker is told the digest of the proposed image, not of the committed one",
        lambda: patched(metadata_feed, "deltas", _digest_of_what_is_proposed),
    ),
    "range-of-another": Mutant(
        "the range that was read first after a commit is given to all brokers, wherever they are",
        lambda: patched(Ranges, "asked_by", _range_of_another),
    ),
    "lease-of-another": Mutant(
        "all brokers that ask for the same range get the lease of the first one",
        lambda: patched(metadata_feed, "deltas", _deltas_with_one_lease),
    ),
    "session-deadline-never-moves": Mutant(
        "a controller that watches brokers is due at every moment",
        lambda: patched(Sessions, "next_deadline_ms", _always_now),
    ),
    "parked-fetch-forgotten": Mutant(
        "a broker that waits for news is told nothing when its time is up",
        lambda: patched(ParkedFetches, "expired", _none_expires),
    ),
}
