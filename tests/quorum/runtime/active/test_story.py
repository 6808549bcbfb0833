"""What an active controller has decided is told when it is committed, in order; and never if nobody knows whether it will be."""

from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION_MAX,
    STATE_REASONS,
    Endpoint,
    FeatureRange,
    RegisterBroker,
)
from quorum.controller.protocol.brokers.broker_happenings import (
    BrokerFenced,
    BrokerOnline,
    BrokerRegistered,
    Registration,
    ReplicasMoved,
)
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import Command, RegisterBrokerCommand, RegisterBrokerReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.happenings import ConfigsChanged, ControllerRegistered, FeatureFinalized, LeadersElected
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.core.protocol.inputs import ShutDown
from quorum.runtime.active.story import FREQUENT_KEPT, TOLD_KEPT, Story, Told
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch, Refused
from quorum.runtime.protocol.tallies import Tallies
from quorum.runtime.protocol.world import BrokerFetch, Submission
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of

FEATURES = (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX), FeatureRange(STATE_REASONS, 0, 1))
REGISTER = RegisterBrokerCommand(7, bytes([7] * 16), (Endpoint("P", "b7", 9_092),), FEATURES, None, (bytes([8] * 16),))
SET = AlterConfigs(
    (ConfigAlteration(BROKER_RESOURCE, "", (ConfigOperation(ConfigOperationKind.SET, "num.io.threads", "9"),)),)
)
CHANGED = ConfigsChanged(1, ("broker (default): num.io.threads",))
TIMEOUT_MS = 100_000


def alone() -> LoneNode:
    """The only voter leads, and what it told while it became active is taken."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    assert [told.happening for told in lone.node.active.story.take()] == [
        FeatureFinalized("metadata.version", METADATA_VERSION_MAX),
        ControllerRegistered(1),
    ]
    return lone


def submit(lone: LoneNode, command: Command, identity: RequestIdentity | None = None) -> int:
    reply_to = lone.new_reply_to()
    lone.turn(Submission(command, reply_to, lone.now_ms + TIMEOUT_MS, identity))
    return reply_to


def registered(lone: LoneNode) -> int:
    """Registers broker 7. Returns its epoch."""
    reply_to = submit(lone, REGISTER)
    lone.run_until_idle()
    reply = lone.answers[reply_to]
    assert isinstance(reply, RegisterBrokerReply)
    return reply.broker_epoch


def says(lone: LoneNode, epoch: int, *, wants_fence: bool = False) -> None:
    """Broker 7 fetches at the end of the log."""
    fetch = MetadataFetch(
        7,
        epoch,
        REGISTER.incarnation_id,
        lone.node.log.end,
        lone.node.core.epoch,
        b"",
        max_wait_ms=0,
        max_bytes=1 << 20,
        wants_fence=wants_fence,
        wants_shut_down=False,
        offline_log_dirs=(),
    )
    lone.turn(BrokerFetch(fetch, lone.new_reply_to()))
    lone.run_until_idle()
    while lone.node.active.has_more_to_do:
        lone.turn()
        lone.run_until_idle()


def test_a_happening_is_told_when_it_is_committed_and_not_before() -> None:
    """With the end of its batch, and with the client's request that led to it."""
    lone = alone()
    identity = RequestIdentity(bytes([1] * 16), bytes(32), "CN=alice", 0)
    submit(lone, SET, identity)
    assert lone.node.active.story.take() == [], "it is appended, and not durable"

    lone.run_until_idle()
    assert lone.node.active.story.take() == [Told(CHANGED, lone.node.log.end, identity)]
    assert lone.node.active.story.take() == [], "each is told once"
    assert lone.node.tallies.happenings.values[("configs_changed",)] == 1

    again = submit(lone, SET, identity)
    lone.run_until_idle()
    assert again in lone.answers
    assert lone.node.active.story.take() == [], "a repeated request does nothing"


def test_what_is_not_committed_is_not_told() -> None:
    """The leadership ends with the batch on one disk of three: its client hears "may have happened", the log nothing."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    lone.elect()
    lone.run_until_idle()
    others = [ReplicaKey(node_id, directory_id(node_id)) for node_id in (2, 3)]
    for _ in range(2):
        for other in others:
            lone.fetched_by(other, lone.node.log.end)
        lone.run_until_idle()
    assert lone.node.active.on
    lone.node.active.story.take()
    reply_to = submit(lone, SET)
    lone.run_until_idle()
    lone.turn(ShutDown())
    lone.run_until_idle()

    assert isinstance(lone.answers[reply_to], Refused)
    assert lone.node.active.story.take() == []
    assert lone.node.tallies.happenings.values[("configs_changed",)] == 0


def test_a_brokers_whole_story() -> None:
    """Registered, online, silent, fenced: each with the broker's epoch; and the record says the same to whoever reads the log."""
    lone = alone()
    epoch = registered(lone)
    says(lone, epoch)
    silent_ms = lone.config.controller.session_timeout_ms + 3
    lone.now_ms += silent_ms
    lone.turn()
    lone.run_until_idle()

    assert [told.happening for told in lone.node.active.story.take()] == [
        BrokerRegistered(7, Registration.NEW, epoch),
        BrokerOnline(7, epoch),
        BrokerFenced(7, epoch, StateReason.SESSION_ENDED, silent_ms),
    ]
    assert lone.node.tallies.brokers_fenced.values == {("7", "session_ended"): 1}
    broker: RegisterBroker | None = lone.node.state.committed.brokers.get(7)
    assert broker is not None
    assert (broker.fenced, broker.reason, broker.since_ms) == (True, "session_ended", lone.wall_ms)


def test_the_sum_of_many_batches_is_told_even_if_the_last_decision_has_no_record() -> None:
    """The sum is told once everything that was appended before is committed."""
    slices = ControllerConfig(default_replication_factor=1, slice_changes_max=1, slice_partitions_max=1)
    lone = LoneNode(formatted_disk(voters_of([1])), NodeConfig(controller=slices))
    lone.run_until_idle()
    epoch = registered(lone)
    says(lone, epoch)
    submit(lone, CreateTopics((NewTopic("t", 1, 1),)))
    lone.run_until_idle()
    says(lone, epoch, wants_fence=True)
    lone.node.active.story.take()

    says(lone, epoch)
    online, led = lone.node.active.story.take()
    assert online.happening == BrokerOnline(7, epoch)
    assert led.happening == ReplicasMoved(7, StateReason.CAUGHT_UP, 1, without_leader=0, isr_changed=0, unclean=0)
    assert online.offset < led.offset == lone.node.log.end


def test_elections_outside_the_isr_are_counted_once_they_are_committed() -> None:
    """Kafka's ElectionFromEligibleLeaderReplicasPerSec and UncleanLeaderElectionsPerSec."""
    tallies = Tallies()
    story = Story(tallies)
    story.appended([ReplicasMoved(7, StateReason.CAUGHT_UP, 5, 0, 5, unclean=2, from_elr=3)], 10, None)
    story.appended([LeadersElected(4, ("t-0: 1",), unclean=1, from_elr=1)], 11, None)
    story.applied(10)
    assert tallies.outside_elections.values == {("elr",): 3, ("unclean",): 2}
    story.applied(11)
    assert tallies.outside_elections.values == {("elr",): 4, ("unclean",): 3}


def test_no_number_of_changed_configs_hides_a_broker_that_was_fenced() -> None:
    """A disk hangs, and then one turn applies all that has waited. All happenings are counted; those of brokers are all told."""
    tallies = Tallies()
    story = Story(tallies)
    fenced = BrokerFenced(7, 3, StateReason.SESSION_ENDED, 9_000)
    story.appended((fenced,), 1, None)
    for offset in range(2, 5_000):
        story.appended((CHANGED,), offset, None)
    story.appended((BrokerOnline(7, 3),), 5_000, None)
    story.applied(5_000)
    told = [each.happening for each in story.take()]
    assert told == [fenced, *[CHANGED] * FREQUENT_KEPT, BrokerOnline(7, 3)]
    assert tallies.happenings.total == 5_000

    story.appended((CHANGED,), 5_001, None)
    story.applied(5_001)
    assert [each.happening for each in story.take()] == [CHANGED], "the next turn begins to count anew"


def test_a_story_that_nobody_takes_stays_small() -> None:
    """The oldest happenings go; all are counted."""
    tallies = Tallies()
    story = Story(tallies)
    for offset in range(TOLD_KEPT + 10):
        story.appended((BrokerOnline(1, offset),), offset + 1, None)
    story.applied(TOLD_KEPT + 10)
    taken = story.take()
    assert (len(taken), taken[0].offset) == (TOLD_KEPT, 11)
    assert tallies.happenings.total == TOLD_KEPT + 10
