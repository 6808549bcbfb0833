"""Death certificates: a process that is known to have ended is fenced at once, and never unfenced again."""

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_state import ELR
from metadata_log.format.records import (
    ELR_VERSION,
    METADATA_VERSION,
    BrokerRegistrationChange,
    FeatureLevel,
    RegisterBroker,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE
from quorum.controller.brokers.contact import BrokerState, shown_state
from quorum.controller.controller import Controller
from quorum.controller.protocol.brokers.broker_happenings import BrokerDied, BrokerFenced, ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    BrokerContact,
    Command,
    FenceBroker,
    ReportDeath,
    ReportDeathReply,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.mode_commands import EndBrokerMode, Mode
from tests.metadata_log.image.test_delta import replayed
from tests.quorum.controller.cluster import Cluster, incarnation, registration

SLICES = ControllerConfig(slice_changes_max=10, slice_partitions_max=10)


def death(broker_id: int = 0, life: int = 1) -> ReportDeath:
    """The report of one process."""
    return ReportDeath(broker_id, (incarnation(broker_id, life),))


def refused(cluster: Cluster, command: Command) -> ErrorCode:
    """The code of a refusal that wrote nothing."""
    before = cluster.image
    with pytest.raises(ControllerError) as caught:
        cluster.run(command)
    assert cluster.image is before
    assert caught.value.message
    return caught.value.code


def fail_over(cluster: Cluster) -> None:
    """Another controller becomes active, from the log alone."""
    cluster.controller = Controller(cluster.controller.config, random.Random(1))
    cluster.controller.activate(cluster.image, cluster.now_ms)


def is_dead(cluster: Cluster) -> bool:
    """True if broker 0 is fenced, and the log says that its process is dead."""
    broker: RegisterBroker = cluster.image.brokers[0]
    return broker.dead and broker.fenced


# --- the fencing -----------------------------------------------------------------------------------------------------


def test_a_dead_process_is_fenced_at_once() -> None:
    """No session has to end: leaders move, ISRs shrink, and the last record fences the process and says that it is dead."""
    cluster = Cluster(3)
    cluster.assign("orders", (0, 1, 2))
    epoch = cluster.image.brokers[0].broker_epoch
    run = cluster.run(death())

    assert run.records[-1] == BrokerRegistrationChange(0, epoch, fenced=True, dead=True)
    assert run.reply == ReportDeathReply(cluster.image.offset, epoch)
    assert cluster.leaders("orders") == [1]
    assert cluster.partitions("orders")[0].isr == (1, 2)
    assert run.happenings[0] == BrokerFenced(0, epoch, StateReason.PROCESS_DEAD)
    assert isinstance(run.happenings[1], ReplicasMoved) and run.happenings[1].why is StateReason.PROCESS_DEAD
    cluster.check_laws()


def test_the_record_has_the_reason() -> None:
    """An operator finds `process_dead` after any failover."""
    cluster = Cluster()
    cluster.run(registration(0, reads_reasons=True))
    cluster.lives[0] = 1
    cluster.contact(0)
    cluster.run(death())
    assert (cluster.image.brokers[0].reason, cluster.image.brokers[0].dead) == ("process_dead", True)
    assert shown_state(cluster.image.brokers[0]) is BrokerState.FENCED


def test_a_large_death_moves_first_and_is_recorded_last() -> None:
    """While the slices are written, no fetch of the dead process gets it anything; another report joins the first one."""
    cluster = Cluster(3, config=SLICES)
    cluster.create("a", 100, 2)
    following: Command | None = death()
    steps = 0
    while following is not None:
        decision = cluster.controller.decide(cluster.image, following, cluster.now_ms)
        cluster.fold(decision)
        following = decision.then
        steps += 1
        if following is not None:
            assert following == death()
            assert not is_dead(cluster)
            assert cluster.contact(0) == []
            assert not cluster.controller.may_serve(cluster.image, 0, cluster.image.offset)
    assert steps >= 3
    assert is_dead(cluster)
    cluster.check_laws()


def test_a_death_that_was_cut_short_is_recorded_by_its_second_report() -> None:
    """Every slice leaves a valid state, and the watcher repeats a report whose outcome is unknown."""
    cluster = Cluster(3, config=SLICES)
    cluster.create("a", 100, 2)
    cluster.fold(cluster.controller.decide(cluster.image, death(), cluster.now_ms))
    fail_over(cluster)
    assert not cluster.image.brokers[0].fenced
    cluster.run(death())
    assert is_dead(cluster)
    cluster.check_laws()


@pytest.mark.parametrize("wants_shut_down", [False, True])
def test_a_death_takes_over_a_fencing_that_is_under_way(wants_shut_down: bool) -> None:
    """The rest of the walk is enough; the last record says that the process is dead."""
    cluster = Cluster(3, config=SLICES)
    cluster.create("a", 100, 2)
    said = cluster.said_by(0, wants_shut_down=wants_shut_down, wants_fence=not wants_shut_down)
    cluster.fold(cluster.controller.decide(cluster.image, said, cluster.now_ms))
    cluster.run(death())
    assert is_dead(cluster)
    cluster.check_laws()


def test_a_death_leaves_the_broker_eligible_as_a_session_s_end_does() -> None:
    """KIP-966: the next registration says that the shutdown was unclean, and no one before it."""
    cluster = Cluster(2)
    cluster.append(FeatureLevel(ELR_VERSION, 1))
    cluster.assign("orders", (0,))
    cluster.run(death())
    topic = cluster.image.topic("orders")
    assert topic is not None
    state = topic.state(0)
    assert state is not None
    assert (cluster.leaders("orders"), state[ELR]) == ([NO_LEADER], (0,))


def test_the_death_of_a_fenced_process_keeps_the_reason() -> None:
    """A broker that has shut down in order is still shown as OFFLINE: its absence is no alarm."""
    cluster = Cluster()
    for broker_id in (0, 1):
        cluster.run(registration(broker_id, reads_reasons=True))
        cluster.lives[broker_id] = 1
        cluster.contact(broker_id)
    cluster.contact(0, wants_shut_down=True)
    epoch = cluster.image.brokers[0].broker_epoch
    run = cluster.run(death())
    assert run.records == [BrokerRegistrationChange(0, epoch, dead=True)]
    assert run.happenings == [BrokerDied(0, epoch)]
    assert shown_state(cluster.image.brokers[0]) is BrokerState.OFFLINE


# --- for ever --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["nothing", "a failover", "a snapshot"])
def test_a_late_fetch_of_a_dead_process_has_no_effect(after: str) -> None:
    """Not here, not at the next controller, and not where the log was replaced by a snapshot."""
    cluster = Cluster(3)
    late = cluster.said_by(0)
    cluster.run(death())
    if after == "a failover":
        fail_over(cluster)
    elif after == "a snapshot":
        cluster.image = replayed(EMPTY_IMAGE, *cluster.image.canonical_records(), kind=DeltaKind.LOADING)
        fail_over(cluster)
    assert refused(cluster, late) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(cluster, BrokerContact(0, late.broker_epoch, late.incarnation_id, 1 << 40)) is (
        ErrorCode.STALE_BROKER_EPOCH
    )
    assert cluster.image.brokers[0].fenced


def test_a_dead_process_does_not_register_again() -> None:
    """Its own request may be late too; the next process registers as ever, without knowing its predecessor."""
    cluster = Cluster(2)
    cluster.run(death())
    assert refused(cluster, registration(0)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.register(0, life=2)
    cluster.contact(0)
    assert not cluster.image.brokers[0].fenced


def test_no_mode_and_no_operator_brings_a_dead_process_back() -> None:
    """The end of a mode lets the broker's fetch decide, and a dead process has none that counts."""
    cluster = Cluster(3)
    late = cluster.said_by(0)
    cluster.run(FenceBroker(0))
    cluster.run(death())
    cluster.run(EndBrokerMode(0, Mode.FENCED))
    assert refused(cluster, late) is ErrorCode.STALE_BROKER_EPOCH


def test_the_replay_refuses_a_record_that_revives_a_dead_process() -> None:
    """Even a controller with a bug cannot unfence it: no node would take the record."""
    cluster = Cluster(2)
    cluster.run(death())
    broker = cluster.image.brokers[0]
    revivals = (
        BrokerRegistrationChange(0, broker.broker_epoch, fenced=False),
        broker._replace(fenced=False),
        broker._replace(dead=False),
    )
    for record in revivals:
        with pytest.raises(InvalidRecord):
            MetadataDelta(cluster.image).replay(record, cluster.image.offset)


def test_a_dead_broker_may_be_unregistered_at_once() -> None:
    """It is not alive, however lately it was heard."""
    cluster = Cluster(2)
    cluster.run(death())
    cluster.run(UnregisterBroker(0))
    assert 0 not in cluster.image.brokers


# --- reports that change nothing -------------------------------------------------------------------------------------


def test_a_doubled_report_changes_nothing() -> None:
    """It is answered like the first one."""
    cluster = Cluster(3)
    epoch = cluster.image.brokers[0].broker_epoch
    cluster.run(death())
    again = cluster.run(death())
    assert again.records == []
    assert isinstance(again.reply, ReportDeathReply) and again.reply.broker_epoch == epoch


def test_a_stale_or_foreign_report_is_refused() -> None:
    """Of an older process, of one that was never registered, or of a broker that nobody knows."""
    cluster = Cluster(3)
    cluster.run(death())
    cluster.register(0, life=2)
    cluster.contact(0)
    assert refused(cluster, death(life=1)) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(cluster, death(life=7)) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(cluster, ReportDeath(0, (incarnation(1),))) is ErrorCode.STALE_BROKER_EPOCH
    assert refused(cluster, death(99)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert not cluster.image.brokers[0].fenced


def test_below_level_2_no_death_is_reported() -> None:
    """Older nodes cannot read the record, and a fence without it would end with the next late fetch: the session decides."""
    cluster = Cluster(2, config=ControllerConfig(bootstrap_metadata_version=1))
    assert refused(cluster, death()) is ErrorCode.UNSUPPORTED_VERSION
    assert not cluster.image.brokers[0].fenced


def test_no_downgrade_loses_a_death() -> None:
    """At level 1 a snapshot has no place for it, and a late fetch would revive the process."""
    cluster = Cluster(2)
    cluster.run(death())
    down = UpdateFeatures((FeatureUpdate(METADATA_VERSION, 1, UpgradeType.SAFE_DOWNGRADE),))
    with pytest.raises(ControllerError, match="the death of broker 0"):
        cluster.run(down)
    cluster.register(0, life=2)
    cluster.run(down)
    assert cluster.image.metadata_version == 1


# --- any history -----------------------------------------------------------------------------------------------------


@dataclass
class Twin:
    """One broker id, as dumb as it can be."""

    life: int
    online: bool = False
    dead: bool = False


class OneBroker(Cluster):
    """Checks after each batch, follow-ups included, that the image never revives a process."""

    def fold(self, decision: Decision) -> None:
        before: RegisterBroker | None = self.image.brokers.get(0)
        super().fold(decision)
        after: RegisterBroker | None = self.image.brokers.get(0)
        if before is not None and after is not None and before.dead and before.incarnation_id == after.incarnation_id:
            assert after.dead and after.fenced


EVENTS = st.lists(
    st.tuples(st.sampled_from(["register", "fetch", "report", "failover", "snapshot", "silence"]), st.integers(0, 2))
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_any_history_of_registrations_fetches_and_reports_is_that_of_the_dumb_twin(
    events: list[tuple[str, int]],
) -> None:
    """`age`: 0 is the newest process, 1 and 2 are older ones, whose messages are late."""
    cluster = OneBroker(2)
    twin, epochs = Twin(1, online=True), {1: cluster.image.brokers[0].broker_epoch}
    for event, age in events:
        life = max(1, twin.life - age)
        refusal = None
        try:
            match event:
                case "register":
                    named = registration(0, twin.life + 1)
                    cluster.run(replace(named, previous_incarnation_id=incarnation(0, twin.life)))
                    twin = Twin(twin.life + 1)
                    epochs[twin.life] = cluster.image.brokers[0].broker_epoch
                case "fetch":
                    cluster.run(BrokerContact(0, epochs[life], incarnation(0, life), 1 << 40))
                case "report":
                    cluster.run(death(life=life))
                case "failover":
                    fail_over(cluster)
                case "snapshot":
                    cluster.image = replayed(EMPTY_IMAGE, *cluster.image.canonical_records(), kind=DeltaKind.LOADING)
                    fail_over(cluster)
                case _:
                    cluster.now_ms += 30_000
                    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
                        cluster.run(due)
                    twin.online = False
        except ControllerError as e:
            refusal = e.code
        counts = life == twin.life
        if event == "fetch":
            assert (refusal is None) is (counts and not twin.dead)
            twin.online = twin.online or (counts and not twin.dead)
        elif event == "report":
            assert (refusal is None) is counts
            twin.dead = twin.dead or counts
            twin.online = twin.online and not counts
        else:
            assert refusal is None
        broker = cluster.image.brokers[0]
        assert (broker.incarnation_id, broker.dead, not broker.fenced) == (
            incarnation(0, twin.life),
            twin.dead,
            twin.online,
        )
