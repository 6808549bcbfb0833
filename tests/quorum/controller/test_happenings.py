"""The story of each decision: what changed, for which broker, and why, in few values however many records there are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, get_args

import pytest

from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION_MAX,
    STATE_SINCE_MS_MAX,
    TOPIC_RESOURCE,
    BrokerRegistrationChange,
    Endpoint,
    FeatureRange,
    RegisterBroker,
)
from quorum.controller.protocol import happenings as told
from quorum.controller.protocol.brokers import broker_happenings as of_brokers
from quorum.controller.protocol.brokers.broker_happenings import Registration
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    AllocateProducerIds,
    AlterPartition,
    BrokerContact,
    Command,
    ContinueFencing,
    ContinueShutdown,
    ElectLeaderless,
    FenceBroker,
    FenceExpiredBrokers,
    IsrMember,
    PartitionAlteration,
    RegisterBrokerCommand,
    RegisterControllerCommand,
    ReportDeath,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigKeys,
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    ContinueConfigs,
)
from quorum.controller.protocol.directory_commands import AssignReplicasToDirs, ContinueDirectoryLoss
from quorum.controller.protocol.election_commands import BalanceLeaders, ElectLeaders, TopicPartition
from quorum.controller.protocol.entity_commands import (
    AlterKinds,
    CloseSession,
    EndExpiredSessions,
    OpenSession,
    Transact,
)
from quorum.controller.protocol.epoch_commands import ContinueRaise, RaiseEpochs
from quorum.controller.protocol.feature_commands import BootstrapFeatures, UpdateFeatures
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.label_commands import AlterLabels
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, ContinueReassignments
from quorum.controller.protocol.rights.acl_commands import CreateAcls, DeleteAcls
from quorum.controller.protocol.rights.quota_commands import AlterClientQuotas
from quorum.controller.protocol.rights.scram_commands import AlterUserScramCredentials
from quorum.controller.protocol.topic_commands import (
    ContinueTopics,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from tests.quorum.controller.cluster import WALL_MS, Cluster, incarnation, registration

SESSION_MS: Final = ControllerConfig().session_timeout_ms


def settled(*, reads_reasons: bool = False, config: ControllerConfig | None = None) -> Cluster:
    """Brokers 0, 1 and 2 online. Topic t: 0 leads partitions 0 and 1, 1 leads partition 2; partition 3 is on 0 alone."""
    cluster = Cluster(config=config)
    for broker_id in range(3):
        cluster.run(registration(broker_id, reads_reasons=reads_reasons))
        cluster.lives[broker_id] = 1
        cluster.contact(broker_id)
    cluster.assign("t", (0, 1, 2), (0, 1, 2), (1, 0, 2))
    cluster.assign("alone", (0,))
    return cluster


def epoch(cluster: Cluster, broker_id: int = 0) -> int:
    return cluster.image.brokers[broker_id].broker_epoch


def story(cluster: Cluster, command: Command) -> list[Happening]:
    return cluster.run(command).happenings


LEFT: Final = {"leaders_moved": 2, "without_leader": 1, "isr_changed": 3, "unclean": 0}
"""What becomes of the partitions when broker 0 goes."""


# --- why a broker is fenced ----------------------------------------------------------------------------------------


def test_a_session_that_ended_says_how_long_the_broker_was_silent() -> None:
    """One line for the fence and one for all partitions together."""
    cluster = settled()
    cluster.now_ms += 100
    for broker_id in (1, 2):
        cluster.contact(broker_id)
    cluster.now_ms += SESSION_MS - 100

    assert story(cluster, FenceExpiredBrokers()) == [
        of_brokers.BrokerFenced(0, epoch(cluster), StateReason.SESSION_ENDED, silent_ms=SESSION_MS),
        of_brokers.ReplicasMoved(0, StateReason.SESSION_ENDED, **LEFT),
    ]


def test_a_broker_that_was_never_heard_was_silent_since_the_controller_became_active() -> None:
    """After a failover the new controller counts from its own beginning (M8)."""
    cluster = settled()
    cluster.controller.activate(cluster.image, cluster.now_ms)
    cluster.now_ms += SESSION_MS + 5

    (fenced, _) = story(cluster, FenceExpiredBrokers())
    assert fenced == of_brokers.BrokerFenced(0, epoch(cluster), StateReason.SESSION_ENDED, silent_ms=SESSION_MS + 5)


def by_operator(cluster: Cluster) -> list[Happening]:
    cluster.controller.activate(cluster.image, cluster.now_ms)
    cluster.now_ms += SESSION_MS  # silent for a session, and nobody has looked yet
    return story(cluster, FenceBroker(0))


def by_its_own_wish(cluster: Cluster) -> list[Happening]:
    return story(cluster, cluster.said_by(0, wants_fence=True))


def by_its_end(cluster: Cluster) -> list[Happening]:
    return story(cluster, cluster.said_by(0, wants_fence=True, wants_shut_down=True))


@pytest.mark.parametrize(
    ("fence", "why"),
    [
        (by_operator, StateReason.OPERATOR),
        (by_its_own_wish, StateReason.ASKED),
        (by_its_end, StateReason.SHUT_DOWN),
    ],
)
def test_a_fence_says_why(fence: Callable[[Cluster], list[Happening]], why: StateReason) -> None:
    """The same two happenings, with the reason of the path that led there."""
    cluster = settled()
    assert fence(cluster)[:2] == [
        of_brokers.BrokerFenced(0, epoch(cluster), why),
        of_brokers.ReplicasMoved(0, why, **LEFT),
    ]


def test_the_last_lost_log_directory_fences() -> None:
    """A directory that is lost is told by itself; the broker is fenced if it was the last one."""
    cluster = settled()
    (directory,) = cluster.image.brokers[0].log_dirs

    assert story(cluster, cluster.said_by(0, offline_log_dirs=(directory,))) == [
        of_brokers.LogDirectoriesLost(0, epoch(cluster), lost=1, left=0),
        of_brokers.BrokerFenced(0, epoch(cluster), StateReason.LOG_DIRECTORIES_LOST),
        of_brokers.ReplicasMoved(0, StateReason.LOG_DIRECTORIES_LOST, **LEFT),
    ]


def test_another_process_supersedes_an_unfenced_one() -> None:
    """The old registration is fenced, and the new one is told with the epoch that the log gives it."""
    cluster = settled()
    before = epoch(cluster)
    run = cluster.run(replace(registration(0, life=2), previous_incarnation_id=incarnation(0)))

    assert run.happenings == [
        of_brokers.BrokerFenced(0, before, StateReason.SUPERSEDED),
        of_brokers.ReplicasMoved(0, StateReason.SUPERSEDED, **LEFT),
        of_brokers.BrokerRegistered(0, Registration.SUPERSEDES, epoch(cluster), previous_epoch=before),
    ]
    assert epoch(cluster) == cluster.image.offset - 1


def test_a_fencing_in_many_batches_keeps_the_reason_of_the_first() -> None:
    """The fence, which comes last, has the first batch's reason and silence, and one happening counts all partitions."""
    cluster = settled(config=ControllerConfig(slice_changes_max=1, slice_partitions_max=1))
    cluster.create("many", partitions=200, replication_factor=3)
    cluster.now_ms += 5
    for broker_id in (1, 2):
        cluster.contact(broker_id)
    cluster.now_ms += SESSION_MS - 5
    run = cluster.run(FenceExpiredBrokers())

    fenced, moved = run.happenings
    assert run.steps > 3
    assert fenced == of_brokers.BrokerFenced(0, epoch(cluster), StateReason.SESSION_ENDED, SESSION_MS)
    assert isinstance(moved, of_brokers.ReplicasMoved)
    assert (moved.why, moved.isr_changed) == (StateReason.SESSION_ENDED, 203)


# --- every other decision ------------------------------------------------------------------------------------------


def test_a_broker_comes_and_goes() -> None:
    """Registered, online, amended, stopping, fenced because it is done, registered again, unregistered."""
    cluster = settled()
    assert story(cluster, registration(3)) == [
        of_brokers.BrokerRegistered(3, Registration.NEW, cluster.image.offset - 1)
    ]
    cluster.lives[3] = 1
    assert story(cluster, cluster.said_by(3)) == [of_brokers.BrokerOnline(3, epoch(cluster, 3))]
    assert story(cluster, registration(3)) == []
    amended = replace(registration(3), endpoints=(Endpoint("PLAIN", "elsewhere", 9),))
    assert story(cluster, amended) == [
        of_brokers.BrokerRegistered(3, Registration.AMENDED, epoch(cluster, 3), epoch(cluster, 3))
    ]
    assert story(cluster, cluster.said_by(3, wants_shut_down=True)) == [
        of_brokers.BrokerFenced(3, epoch(cluster, 3), StateReason.SHUT_DOWN)
    ]
    before = epoch(cluster, 3)
    assert story(cluster, registration(3, life=2)) == [
        of_brokers.BrokerRegistered(3, Registration.RESTARTED, cluster.image.offset - 1, before)
    ]
    assert story(cluster, UnregisterBroker(3)) == [of_brokers.BrokerUnregistered(3, cluster.image.offset - 2)]


def test_a_controlled_shutdown_is_told_from_its_beginning() -> None:
    """The leaders move while the broker is stopping; the fence comes when the others and the broker itself know the moves."""
    cluster = settled()
    assert story(cluster, cluster.said_by(0, wants_shut_down=True)) == [
        of_brokers.BrokerStopping(0, epoch(cluster)),
        of_brokers.ReplicasMoved(0, StateReason.STOPPING, leaders_moved=2, without_leader=0, isr_changed=3, unclean=0),
    ]
    for broker_id in (1, 2):
        assert story(cluster, cluster.said_by(broker_id)) == []
    assert story(cluster, cluster.said_by(0, wants_shut_down=True)) == [
        of_brokers.BrokerFenced(0, epoch(cluster), StateReason.SHUT_DOWN),
        of_brokers.ReplicasMoved(0, StateReason.SHUT_DOWN, leaders_moved=0, without_leader=1, isr_changed=0, unclean=0),
    ]


def test_a_shutdown_and_a_return_in_many_batches_are_told_once() -> None:
    """One happening counts all partitions, even if the last batch has none."""
    cluster = settled(config=ControllerConfig(slice_changes_max=1, slice_partitions_max=1))
    cluster.create("many", partitions=200, replication_factor=3)
    cluster.assign("more", *[(0,)] * 130)
    run = cluster.run(cluster.said_by(0, wants_shut_down=True))
    stopping, moved = run.happenings
    assert run.steps > 3 and stopping == of_brokers.BrokerStopping(0, epoch(cluster))
    assert isinstance(moved, of_brokers.ReplicasMoved)
    assert (moved.why, moved.isr_changed) == (StateReason.STOPPING, 203)

    for broker_id in (1, 2):
        cluster.contact(broker_id)
    cluster.contact(0, wants_shut_down=True)
    assert cluster.image.brokers[0].fenced
    cluster.register(0, life=2)
    run = cluster.run(cluster.said_by(0))
    online, led = run.happenings
    assert run.steps > 3 and online == of_brokers.BrokerOnline(0, epoch(cluster))
    assert led == of_brokers.ReplicasMoved(0, StateReason.CAUGHT_UP, 131, without_leader=0, isr_changed=0, unclean=0)


def test_partitions_without_a_leader_get_the_broker_that_came_back() -> None:
    """The happening of a broker's return says how many partitions it leads now."""
    cluster = settled()
    cluster.contact(0, wants_fence=True)
    assert story(cluster, cluster.said_by(0)) == [
        of_brokers.BrokerOnline(0, epoch(cluster)),
        of_brokers.ReplicasMoved(0, StateReason.CAUGHT_UP, leaders_moved=1, without_leader=0, isr_changed=0, unclean=0),
    ]


def proposal(cluster: Cluster, number: int, *isr: int) -> PartitionAlteration:
    partition = cluster.partitions("t")[number]
    members = tuple(IsrMember(broker_id) for broker_id in isr)
    return PartitionAlteration(partition.topic_id, number, partition.leader_epoch, partition.partition_epoch, members)


def test_a_leader_shrinks_and_grows_the_isr() -> None:
    """The leader, the number of partitions, and the ISR before and after of the first few."""
    cluster = settled()
    both = (proposal(cluster, 0, 0, 2), proposal(cluster, 1, 0))
    assert story(cluster, AlterPartition(0, epoch(cluster), both)) == [
        told.IsrShrunk(0, 2, ("t-0: 0,1,2 -> 0,2", "t-1: 0,1,2 -> 0"))
    ]
    swap = (proposal(cluster, 0, 0, 1),)
    assert story(cluster, AlterPartition(0, epoch(cluster), swap)) == [
        told.IsrShrunk(0, 1, ("t-0: 0,2 -> 0,1",)),
        told.IsrGrown(0, 1, ("t-0: 0,2 -> 0,1",)),
    ]
    assert story(cluster, AlterPartition(0, epoch(cluster), swap)) == [], "a retry changes nothing"


def test_topics_are_named_up_to_a_bound() -> None:
    """Ten thousand topics are one happening, which names five."""
    cluster = settled()
    topics = tuple(NewTopic(f"many-{number:03d}", 2, 1) for number in range(100))
    names = tuple(topic.name for topic in topics)
    assert story(cluster, CreateTopics(topics)) == [told.TopicsCreated(100, 200, names[:5])]
    assert story(cluster, CreateTopics(topics)) == [], "they exist already"
    assert story(cluster, CreateTopics((NewTopic("tried", 1, 1),), validate_only=True)) == []
    grown = tuple(NewPartitions(name, 5) for name in names[:2])
    assert story(cluster, CreatePartitions((*grown, NewPartitions("missing", 5)))) == [
        told.PartitionsAdded(2, 6, names[:2])
    ]
    assert story(cluster, CreatePartitions((NewPartitions("t", 9),), validate_only=True)) == []
    assert story(cluster, DeleteTopics((*names, "missing"))) == [told.TopicsDeleted(100, 206, names[:5])]


def test_a_changed_config_is_named_and_its_value_is_not() -> None:
    """A value may be a secret."""
    cluster = settled()
    secret = ConfigOperation(ConfigOperationKind.SET, "retention.ms", "4242424242")
    of_all = ConfigOperation(ConfigOperationKind.SET, "message.max.bytes", "424242")
    alterations = (
        ConfigAlteration(TOPIC_RESOURCE, "t", (secret,)),
        ConfigAlteration(BROKER_RESOURCE, "", (of_all,)),
    )
    (changed,) = story(cluster, AlterConfigs(alterations))
    assert changed == told.ConfigsChanged(2, ("topic t: retention.ms", "broker (default): message.max.bytes"))
    assert "4242" not in repr(changed)
    assert story(cluster, AlterConfigs(alterations)) == []


def test_leaders_that_were_asked_for_are_told() -> None:
    """Only the partitions that got their preferred leader are counted."""
    cluster = settled()
    cluster.contact(0, wants_fence=True)
    cluster.contact(0)
    cluster.run(AlterPartition(1, epoch(cluster, 1), (proposal(cluster, 0, 0, 1, 2),)))
    asked = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2))
    assert story(cluster, ElectLeaders(asked)) == [told.LeadersElected(1, ("t-0: 0",))]


def test_controllers_and_features_are_told_once() -> None:
    """Saying the same again writes nothing, and so tells nothing."""
    cluster = Cluster()
    register = RegisterControllerCommand(
        9, incarnation(9), (Endpoint("C", "c9", 9),), (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),)
    )
    assert story(cluster, register) == [told.ControllerRegistered(9)]
    assert story(cluster, register) == []
    assert story(cluster, BootstrapFeatures()) == []


TELLING: Final = {
    CreateTopics, CreatePartitions, ContinueTopics, DeleteTopics, AlterConfigs, ContinueConfigs,
    AlterConfigKeys, AlterLabels, BootstrapFeatures,
    RegisterBrokerCommand, BrokerContact,
    FenceExpiredBrokers, FenceBroker, ReportDeath, UnregisterBroker, ContinueFencing, ContinueShutdown, ElectLeaderless,
    RegisterControllerCommand, AlterPartition, ElectLeaders, BalanceLeaders, AlterPartitionReassignments,
    ContinueReassignments, UpdateFeatures, AlterClientQuotas, RaiseEpochs, ContinueRaise, CreateAcls, DeleteAcls,
    AlterUserScramCredentials,
    DrainBroker, EndBrokerMode, AssignReplicasToDirs, ContinueDirectoryLoss,
    OpenSession, CloseSession, EndExpiredSessions,
}  # fmt: skip
"""Commands whose records are told: `test_any_command` holds all of them to it."""
SILENT: Final = {AllocateProducerIds, Transact, AlterKinds}
"""Commands whose records are not told: brokers ask for producer ids all the time, embedders write entities all the time, and no
operator asks about that later. (The topics and configs of a transaction are told.)"""


def test_every_command_tells_its_story_or_is_listed_as_silent() -> None:
    """Whoever adds a command decides which it is."""
    assert set(get_args(Command)) == TELLING | SILENT
    cluster = settled()
    assert story(cluster, AllocateProducerIds(0, epoch(cluster))) == []


# --- the reason in the record --------------------------------------------------------------------------------------


def test_the_record_says_why_and_since_when() -> None:
    """So a new leader, every broker and `quorumctl log dump` can tell it after a failover."""
    cluster = settled(reads_reasons=True)
    assert cluster.image.brokers[0].reason == "caught_up"
    cluster.now_ms += 250
    (*_, fence) = cluster.contact(0, wants_fence=True)

    since_ms = WALL_MS + cluster.now_ms
    expected = BrokerRegistrationChange(0, epoch(cluster), fenced=True, reason="asked", since_ms=since_ms)
    assert fence == expected
    broker = cluster.image.brokers[0]
    assert (broker.reason, broker.since_ms) == ("asked", since_ms)


def test_a_repeated_registration_keeps_reason_and_time() -> None:
    """New endpoints are no new state; a new process is."""
    cluster = settled(reads_reasons=True)
    before = cluster.image.brokers[0]
    cluster.now_ms += 1_000
    cluster.run(replace(registration(0, reads_reasons=True), endpoints=(Endpoint("PLAIN", "elsewhere", 9),)))
    after = cluster.image.brokers[0]
    assert (after.reason, after.since_ms, after.endpoints[0].host) == (before.reason, before.since_ms, "elsewhere")

    again = replace(registration(0, life=2, reads_reasons=True), previous_incarnation_id=incarnation(0))
    (*_, record) = cluster.run(again).records
    assert isinstance(record, RegisterBroker)
    assert (record.reason, record.since_ms) == ("registered", WALL_MS + cluster.now_ms)


def test_no_reason_is_written_while_a_broker_of_an_older_release_is_registered() -> None:
    """It would take a record with fields that it does not know for damage. The story is told all the same."""
    cluster = settled(reads_reasons=True)
    cluster.register(3)
    run = cluster.run(cluster.said_by(0, wants_fence=True))
    assert run.records[-1] == BrokerRegistrationChange(0, epoch(cluster), fenced=True)
    assert run.happenings[0] == of_brokers.BrokerFenced(0, epoch(cluster), StateReason.ASKED)

    cluster.run(registration(3, life=2, reads_reasons=True))
    (unfenced, *_) = cluster.contact(0)
    assert isinstance(unfenced, BrokerRegistrationChange)
    assert unfenced.reason == "caught_up"


@pytest.mark.parametrize(("wall_ms", "since_ms"), [(-5, 0), (1 << 70, STATE_SINCE_MS_MAX)])
def test_a_clock_that_is_far_off_costs_no_decision(wall_ms: int, since_ms: int) -> None:
    """The record has the nearest time that fits."""
    cluster = settled(reads_reasons=True)
    contact = cluster.said_by(0, wants_fence=True)
    cluster.fold(cluster.controller.decide(cluster.image, contact, cluster.now_ms, wall_ms))
    assert cluster.image.brokers[0].since_ms == since_ms


def test_the_time_of_day_decides_nothing() -> None:
    """Two controllers whose clocks differ by a day decide the same, but for the time in the record."""
    decisions = []
    for wall_ms in (WALL_MS, WALL_MS + 86_400_000):
        cluster = settled(reads_reasons=True)
        decision = cluster.controller.decide(
            cluster.image, cluster.said_by(0, wants_fence=True), cluster.now_ms, wall_ms
        )
        fence = decision.records[-1]
        assert isinstance(fence, BrokerRegistrationChange)
        decisions.append((decision.records[:-1], fence._replace(since_ms=0), decision.happenings))
    assert decisions[0] == decisions[1]
