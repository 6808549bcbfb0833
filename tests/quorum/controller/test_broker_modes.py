"""Modes of brokers: an operator keeps a broker out, or drains it for maintenance, until the operator ends that."""

import random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_state import ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import (
    FENCED_MODE,
    MAINTENANCE_MODE,
    METADATA_VERSION,
    NO_MODE,
    TOPIC_RESOURCE,
    BrokerMode,
    Config,
    PartitionChange,
)
from metadata_log.format.records import UnregisterBroker as UnregisterBrokerRecord
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE
from quorum.controller.brokers.modes import ABANDONED_MS
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.protocol.brokers import broker_happenings as of_brokers
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    Command,
    FenceBroker,
    IsrMember,
    PartitionAlteration,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, ElectLeadersReply, TopicPartition
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode, Mode
from quorum.controller.protocol.topic_commands import CreateTopics, DeleteTopics, NewTopic
from tests.metadata_log.image.test_delta import replayed
from tests.quorum.controller.cluster import WALL_MS, Cluster

SLICED = ControllerConfig(slice_changes_max=1, slice_partitions_max=1)
SESSION_MS = ControllerConfig().session_timeout_ms


def refusal(cluster: Cluster, command: Command) -> ControllerError:
    before = cluster.image.digest
    with pytest.raises(ControllerError) as caught:
        cluster.run(command)
    assert cluster.image.digest == before
    return caught.value


def due(cluster: Cluster) -> None:
    """All that is due without a request."""
    while (command := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        cluster.run(command)


def grow_isr(cluster: Cluster, topic: str, *isr: int) -> AlterPartitionReply:
    """The leader of partition 0 proposes this ISR."""
    found = cluster.image.topic(topic)
    assert found is not None
    now = cluster.partitions(topic)[0]
    members = tuple(IsrMember(each) for each in isr)
    proposal = PartitionAlteration(found.topic_id, 0, now.leader_epoch, now.partition_epoch, members)
    epoch = cluster.image.brokers[now.leader].broker_epoch
    return cluster.ask(AlterPartition(now.leader, epoch, (proposal,)), AlterPartitionReply)


def alone_in_sync(cluster: Cluster, topic: str, broker_id: int, other: int) -> None:
    """A topic with the replicas `broker_id` and `other`, of which only the first is in sync. Both brokers are online."""
    cluster.assign(topic, (broker_id, other))
    cluster.contact(other, wants_fence=True)
    cluster.contact(other)
    assert cluster.partitions(topic)[0].isr == (broker_id,)


# --- an operator's fence -------------------------------------------------------------------------------------------


def test_a_fence_lasts_until_the_operator_ends_it() -> None:
    """The broker is alive and says that it is well: it stays fenced, across a new process and a new controller."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2), (1, 2, 0))
    run = cluster.run(FenceBroker(0, "slow disk"))
    assert run.records[-1] == BrokerMode(0, FENCED_MODE, "slow disk", WALL_MS + cluster.now_ms)
    assert cluster.leaders("t") == [1, 1]
    assert cluster.contact(0) == [], "a fetch does not unfence the broker"

    cluster.controller.activate(cluster.image, cluster.now_ms)
    due(cluster)
    cluster.contact(0)
    cluster.now_ms += SESSION_MS
    cluster.register(0, life=2)
    cluster.contact(0)
    assert cluster.image.brokers[0].fenced
    assert cluster.contact(0, wants_shut_down=True) == []
    assert cluster.controller.standing(cluster.image, 0).should_shut_down, "its process may end"

    cluster.run(EndBrokerMode(0, Mode.FENCED))
    assert cluster.image.brokers[0].fenced, "the broker is back with its next fetch"
    cluster.contact(0)
    assert not cluster.image.brokers[0].fenced


def test_a_fence_in_slices_ends_with_the_mode() -> None:
    """The mode is in the batch of the fence record: no image shows the mode of a broker that is not fenced."""
    cluster = Cluster(3, config=SLICED)
    cluster.create("a", 200, 2)
    command = FenceBroker(0, "why")
    decision = cluster.controller.decide(cluster.image, command, cluster.now_ms)
    cluster.fold(decision)
    assert decision.then == command
    assert 0 not in cluster.image.broker_modes
    assert cluster.contact(0) == [], "the broker is barred"
    cluster.run(command)
    assert cluster.image.brokers[0].fenced
    assert cluster.image.broker_modes[0].mode == FENCED_MODE
    cluster.check_laws()


def test_a_fence_that_another_cause_has_begun_gets_its_mode() -> None:
    """1. The session of broker 0 ends, and its fencing is under way. 2. An operator fences broker 0. 3. The fencing ends with the
    first cause, and the operator's request adds the mode."""
    cluster = Cluster(3, config=SLICED)
    cluster.create("a", 100, 2)
    cluster.now_ms += SESSION_MS
    for broker_id in (1, 2):
        cluster.contact(broker_id)
    expired = cluster.controller.due(cluster.image, cluster.now_ms)
    assert expired is not None
    first = cluster.controller.decide(cluster.image, expired, cluster.now_ms)
    cluster.fold(first)
    cluster.run(FenceBroker(0))
    assert cluster.image.broker_modes[0].mode == FENCED_MODE
    assert first.then is not None
    assert cluster.run(first.then).records == []
    cluster.check_laws()


def test_fencing_again_changes_the_reason_only() -> None:
    """The same reason writes nothing; another reason keeps the time since when the broker is fenced."""
    cluster = Cluster(2)
    cluster.run(FenceBroker(0, "a"))
    since_ms = cluster.image.broker_modes[0].since_ms
    cluster.now_ms += 500
    assert cluster.run(FenceBroker(0, "a")).records == []
    assert cluster.run(FenceBroker(0, "b")).records == [BrokerMode(0, FENCED_MODE, "b", since_ms)]


def test_a_dry_run_of_each_change_writes_nothing() -> None:
    """It refuses what the change would refuse."""
    cluster = Cluster(2)
    assert cluster.run(FenceBroker(0, validate_only=True)).records == []
    assert cluster.run(DrainBroker(0, validate_only=True)).records == []
    cluster.run(DrainBroker(0))
    assert cluster.run(EndBrokerMode(0, Mode.MAINTENANCE, validate_only=True)).records == []
    assert refusal(cluster, FenceBroker(7, validate_only=True)).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert refusal(cluster, DrainBroker(0, "x" * 201, validate_only=True)).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines", "\x1b[31m"])
def test_a_reason_is_short_and_printable(reason: str) -> None:
    """A terminal would obey some characters, and the record stays in the log."""
    cluster = Cluster(2)
    for command in (FenceBroker(0, reason), DrainBroker(0, reason)):
        refused = refusal(cluster, command)
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert "nothing was done" in refused.message


# --- maintenance ---------------------------------------------------------------------------------------------------


def test_a_drained_broker_leads_nothing_and_stays_in_sync() -> None:
    """The leaderships move to the other members of the ISRs; no ISR changes, and no partition loses its leader."""
    cluster = Cluster(3)
    cluster.create("t", 60)
    run = cluster.run(DrainBroker(0, "new disk"))
    assert run.records[-1] == BrokerMode(0, MAINTENANCE_MODE, "new disk", WALL_MS + cluster.now_ms)
    assert set(cluster.leaders("t")) == {1, 2}
    assert all(len(partition.isr) == 3 for partition in cluster.partitions("t"))
    assert not cluster.image.brokers[0].fenced
    moved = of_brokers.ReplicasMoved(0, StateReason.MAINTENANCE, 20, 0, 0, 0)
    assert run.happenings == [of_brokers.BrokerModeSet(0, "maintenance", "new disk", 0), moved]


def test_a_drain_in_slices_ends_with_the_mode() -> None:
    """During the walk nothing is elected or placed on the broker, and the balancing does not give anything back."""
    cluster = Cluster(3, config=SLICED._replace(leader_imbalance_check_interval_ms=1_000))
    cluster.create("a", 100, 2)
    command = DrainBroker(0)
    decision = cluster.controller.decide(cluster.image, command, cluster.now_ms)
    cluster.fold(decision)
    assert decision.then == command
    assert 0 not in cluster.image.broker_modes
    cluster.create("b", 20, 2)
    assert all(0 not in partition.replicas for partition in cluster.partitions("b"))
    cluster.now_ms += 1_000
    due(cluster)
    cluster.run(command)
    assert 0 not in cluster.leaders("a")
    assert cluster.image.broker_modes[0].mode == MAINTENANCE_MODE
    cluster.check_laws()


def test_a_drain_causes_no_outage() -> None:
    """A partition whose ISR is the drained broker alone keeps its leader, until another replica enters the ISR."""
    cluster = Cluster(3)
    alone_in_sync(cluster, "t", 0, 1)
    run = cluster.run(DrainBroker(0))
    assert cluster.leaders("t") == [0]
    assert run.happenings[0] == of_brokers.BrokerModeSet(0, "maintenance", "", 1)

    (result,) = grow_isr(cluster, "t", 0, 1).results
    assert result.error is ErrorCode.NEW_LEADER_ELECTED
    (partition,) = cluster.partitions("t")
    assert (partition.leader, partition.isr) == (1, (0, 1)), "the record that lets broker 1 in makes it the leader"
    cluster.check_laws()


def test_a_drained_broker_that_restarts_leads_what_nobody_else_can() -> None:
    """orders-0 has no other replica in sync: without broker 0 it would have no leader."""
    cluster = Cluster(3)
    alone_in_sync(cluster, "t", 0, 1)
    cluster.assign("u", (0, 1))
    cluster.run(DrainBroker(0))
    cluster.contact(0, wants_fence=True)
    assert cluster.leaders("t") == [NO_LEADER]
    cluster.now_ms += SESSION_MS
    cluster.register(0, life=2)
    cluster.contact(0)
    assert cluster.leaders("t") == [0]
    assert cluster.leaders("u") == [1]


def test_nothing_new_is_placed_on_a_broker_with_a_mode() -> None:
    """If the others are too few, the topic is refused, and the text says who keeps brokers back."""
    cluster = Cluster(4)
    cluster.run(DrainBroker(0))
    cluster.run(FenceBroker(1))
    cluster.create("t", 50, 2)
    assert {replica for partition in cluster.partitions("t") for replica in partition.replicas} == {2, 3}
    refused = cluster.create_one(NewTopic("u", 1, 3))
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.message == (
        "topic 'u': replication factor is 3, but of 4 brokers only 2 take new replicas: an operator has fenced or drained "
        "the others"
    )


def test_an_assignment_by_hand_may_name_a_drained_broker_that_then_follows() -> None:
    """The operator asked for it. A partition that no other broker can lead is refused."""
    cluster = Cluster(2)
    cluster.run(DrainBroker(0))
    cluster.assign("t", (0, 1))
    (partition,) = cluster.partitions("t")
    assert (partition.isr, partition.leader) == ((0, 1), 1)
    refused = cluster.create_one(NewTopic("u", assignment=((0,),)))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_elections_on_request_pass_over_a_drained_broker() -> None:
    """Preferred and designated elections refuse it; an unclean election takes any other active replica first."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2))
    cluster.run(DrainBroker(0))
    place = (TopicPartition("t", 0),)
    for command, code in (
        (ElectLeaders(place), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectLeaders(place, ElectionType.DESIGNATED, 0), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        (result,) = cluster.ask(command, ElectLeadersReply).results
        assert result.error is code
        assert "is in maintenance" in result.message
    cluster.assign("lost", (2, 0, 1))
    for broker_id in (0, 1):
        cluster.contact(broker_id, wants_fence=True)
    cluster.contact(2, wants_fence=True)
    for broker_id in (0, 1):
        cluster.contact(broker_id)
    (result,) = cluster.ask(ElectLeaders((TopicPartition("lost", 0),), ElectionType.UNCLEAN), ElectLeadersReply).results
    assert result.leader_id == 1


def test_the_last_other_broker_stops_and_the_drained_one_leads() -> None:
    """A shutdown of broker 1 gives its leaderships to broker 0 in maintenance, rather than to nobody."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    cluster.run(DrainBroker(0))
    assert cluster.leaders("t") == [1]
    cluster.contact(1, wants_shut_down=True)
    assert cluster.leaders("t") == [0]


def test_the_end_of_a_maintenance_lets_the_broker_lead_again() -> None:
    """1. Brokers 0 and 1 are drained, and broker 0 leads t-0, because nobody else can. 2. The maintenance of broker 1 ends: it
    leads t-0. 3. The maintenance of broker 0 ends: the balancing gives t-0 back."""
    cluster = Cluster(3, config=ControllerConfig(leader_imbalance_check_interval_ms=1_000))
    cluster.assign("t", (0, 1))
    cluster.run(DrainBroker(1))
    cluster.run(DrainBroker(0))
    assert cluster.leaders("t") == [0]
    run = cluster.run(EndBrokerMode(1, Mode.MAINTENANCE))
    assert run.records == [BrokerMode(1, NO_MODE)]
    due(cluster)
    assert cluster.leaders("t") == [1]
    cluster.now_ms += 1_000
    due(cluster)
    assert cluster.leaders("t") == [1], "broker 0 is the preferred leader, and is in maintenance"
    assert cluster.run(EndBrokerMode(0, Mode.MAINTENANCE)).happenings == [of_brokers.BrokerModeEnded(0, "maintenance")]
    due(cluster)
    cluster.now_ms += 1_000
    due(cluster)
    assert cluster.leaders("t") == [0]


def test_a_new_controller_finishes_what_the_one_before_could_not_see() -> None:
    """1. Broker 1 is on its way out, when t-0 looks for a leader: only broker 0 in maintenance is left. 2. The controller dies in
    the middle of this way out, and broker 1 is heard again. 3. The next controller gives t-0 to broker 1."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    cluster.run(DrainBroker(0))
    topic = cluster.image.topic("t")
    assert topic is not None
    moved = PartitionChange(topic.topic_id, 0, leader=0)
    cluster.image = replayed(cluster.image, moved)
    cluster.controller.activate(cluster.image, cluster.now_ms)
    due(cluster)
    assert cluster.leaders("t") == [1]


def test_an_abandoned_drain_does_not_hold_the_broker_back_for_ever() -> None:
    """The batch of the first slice never reached the log, for example because the disk was full, and nobody asks again."""
    cluster = Cluster(3, config=SLICED)
    cluster.create("a", 100, 2)
    cluster.fold(cluster.controller.decide(cluster.image, DrainBroker(0), cluster.now_ms))
    cluster.now_ms += ABANDONED_MS
    deadline_ms = cluster.controller.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms <= cluster.now_ms
    for broker_id in range(3):
        cluster.contact(broker_id)
    due(cluster)
    cluster.create("b", 60, 2)
    assert 0 in cluster.leaders("b")


# --- which mode ----------------------------------------------------------------------------------------------------


def test_each_mode_has_its_own_end() -> None:
    """A fence is not ended by `undrain`, nor a maintenance by `unfence`; without a mode both find nothing to do."""
    cluster = Cluster(2)
    for mode in Mode:
        assert cluster.run(EndBrokerMode(0, mode)).records == []
    cluster.run(DrainBroker(0))
    refused = refusal(cluster, EndBrokerMode(0, Mode.FENCED))
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "`quorumctl brokers undrain 0` ends that" in refused.message
    cluster.run(FenceBroker(0))
    assert cluster.image.broker_modes[0].mode == FENCED_MODE, "a fence takes the place of a maintenance"
    assert "unfence 0" in refusal(cluster, EndBrokerMode(0, Mode.MAINTENANCE)).message
    refused = refusal(cluster, DrainBroker(0))
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "Unfence it first" in refused.message
    assert cluster.ask(EndBrokerMode(0, Mode.FENCED), BrokerModeReply).broker_id == 0
    assert not len(cluster.image.broker_modes)


def test_an_unregistered_broker_loses_its_mode() -> None:
    """The id may be given to another machine later, which must not be fenced."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    cluster.run(FenceBroker(0))
    cluster.run(DeleteTopics(("t",)))
    cluster.now_ms += SESSION_MS
    records = cluster.run(UnregisterBroker(0)).records
    assert records[0] == BrokerMode(0, NO_MODE)
    assert isinstance(records[1], UnregisterBrokerRecord)
    cluster.register(0, life=2)
    cluster.contact(0)
    assert not cluster.image.brokers[0].fenced
    for command in (FenceBroker(7), DrainBroker(7), EndBrokerMode(7, Mode.FENCED)):
        assert refusal(cluster, command).code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_snapshot_keeps_the_modes() -> None:
    cluster = Cluster(3)
    cluster.run(FenceBroker(0, "a"))
    cluster.run(DrainBroker(1, "b"))
    loaded = replayed(EMPTY_IMAGE, *cluster.image.canonical_records(), kind=DeltaKind.LOADING)
    assert loaded.broker_modes == cluster.image.broker_modes
    assert loaded.digest == cluster.image.digest


def test_a_mode_needs_its_level_and_no_downgrade_loses_one() -> None:
    """At level 1 a drain is refused, and so is a downgrade to level 1 while a broker has a mode."""
    old = Cluster(2, config=ControllerConfig(bootstrap_metadata_version=1))
    for command in (DrainBroker(0), EndBrokerMode(0, Mode.FENCED)):
        assert refusal(old, command).code is ErrorCode.UNSUPPORTED_VERSION
    cluster = Cluster(2)
    cluster.run(DrainBroker(0))
    down = UpdateFeatures((FeatureUpdate(METADATA_VERSION, 1, UpgradeType.SAFE_DOWNGRADE),))
    assert "the mode of broker 0" in refusal(cluster, down).message
    cluster.run(EndBrokerMode(0, Mode.MAINTENANCE))
    cluster.run(down)
    assert cluster.image.metadata_version == 1


# --- the twin ------------------------------------------------------------------------------------------------------


def dumb_leader(
    leader: int, replicas: list[int], isr: list[int], active: set[int], resting: set[int], unclean: bool
) -> int:
    """The rules of `partition_changes` in the order of its page, one loop for each."""
    for group in (active - resting, active & resting):
        ranked = [leader, *replicas]
        for candidate in ranked:
            if candidate in group and candidate in isr:
                return candidate
    for group in (active - resting, active & resting):
        for candidate in replicas:
            if unclean and candidate in group:
                return candidate
    return NO_LEADER


BROKER_IDS = st.integers(0, 4)


@given(
    st.permutations(range(5)), st.sets(BROKER_IDS), st.sets(BROKER_IDS), st.sets(BROKER_IDS), st.booleans(), st.data()
)
def test_who_leads_agrees_with_the_twin(
    order: list[int], in_sync: set[int], active: set[int], resting: set[int], unclean: bool, data: st.DataObject
) -> None:
    """Any ISR, any set of active and resting brokers. Somebody in maintenance leads only if no other member of the ISR can."""
    replicas = tuple(order[:4])
    isr = tuple(each for each in replicas if each in in_sync) or replicas[:1]
    leader = data.draw(st.sampled_from((NO_LEADER, *isr)))
    cluster = Cluster(5)
    cluster.assign("t", replicas)
    topic = cluster.image.topic("t")
    assert topic is not None
    state = topic.state(0)
    assert state is not None
    fields = list(state)
    fields[REPLICAS], fields[ISR], fields[LEADER] = replicas, isr, leader
    state = cast(PartitionState, tuple(fields))
    configs = [Config(TOPIC_RESOURCE, "t", "unclean.leader.election.enable", "true" if unclean else "false")]
    rules = ElectionRules(replayed(cluster.image, *configs), ControllerConfig(), "t")
    builder = PartitionChangeBuilder(topic.topic_id, 0, state, active, resting, rules)
    change = builder.build()
    elected = leader if change is None or change.leader is None else change.leader
    assert elected == dumb_leader(leader, list(replicas), list(isr), active, resting, unclean)


ACTIONS = ("fence", "drain", "end", "leave", "return", "silent", "failover")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 4)), max_size=12), st.integers(0, 99))
def test_who_may_lead_and_be_placed_on_agrees_with_the_twin(actions: list[tuple[str, int]], seed: int) -> None:
    """The twin keeps two words for each broker: its mode, and whether it is online."""
    cluster = Cluster(5, seed=seed)
    modes: dict[int, str] = {}
    online = set(range(5))
    for action, broker_id in actions:
        match action:
            case "fence":
                cluster.run(FenceBroker(broker_id))
                modes[broker_id] = "fenced"
                online.discard(broker_id)
            case "drain" if modes.get(broker_id) != "fenced":
                cluster.run(DrainBroker(broker_id))
                modes[broker_id] = "maintenance"
            case "end" if broker_id in modes:
                cluster.run(EndBrokerMode(broker_id, Mode[modes.pop(broker_id).upper()]))
            case "leave":
                cluster.contact(broker_id, wants_fence=True)
                online.discard(broker_id)
            case "return":
                cluster.contact(broker_id)
                if modes.get(broker_id) != "fenced":
                    online.add(broker_id)
            case "failover":
                cluster.controller.activate(cluster.image, cluster.now_ms)
            case _:
                pass
    view = BrokerView(cluster.image, frozenset(), frozenset(), random.Random(seed))
    assert view.active == online
    assert view.may_lead == {each for each in online if each not in modes}
    free = set(range(5)) - set(modes)
    assert view.capacity == (len(free), len(free & online), 5)
    if free & online:
        placed = {each for replicas in view.placer.place(40, len(free)) for each in replicas}
        assert placed == free
        cluster.run(CreateTopics((NewTopic("t", 20, len(free)),)))
        assert all(partition.leader in view.may_lead for partition in cluster.partitions("t"))
