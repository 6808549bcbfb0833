"""Brokers' lives: registration and epochs, fencing, unregistration (M1-M4, M8)."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Uuid
from metadata_log.format.records import (
    BROKER_RESOURCE,
    RECOVERING,
    TOPIC_RESOURCE,
    BrokerRegistrationChange,
    Endpoint,
    FeatureRange,
    PartitionChange,
    RegisterBroker,
)
from metadata_log.format.records import UnregisterBroker as UnregisterBrokerRecord
from quorum.controller.controller import BrokerState, Controller
from quorum.controller.protocol.brokers.broker_happenings import BrokerFenced
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlterPartition,
    BrokerContact,
    Command,
    ContinueFencing,
    FenceBroker,
    FenceExpiredBrokers,
    IsrMember,
    PartitionAlteration,
    RegisterBrokerCommand,
    RegisterBrokerReply,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.happenings import Happening, LeadersElected
from quorum.controller.protocol.topic_commands import DeleteTopics
from tests.quorum.controller.cluster import Cluster, incarnation, registration

SESSION_MS = ControllerConfig().session_timeout_ms


def refusal(cluster: Cluster, command: Command) -> ControllerError:
    """The refusal of a command, which has written nothing."""
    before = cluster.image
    with pytest.raises(ControllerError) as refused:
        cluster.run(command)
    assert cluster.image is before
    return refused.value


# --- registration --------------------------------------------------------------------------------------------------


def test_a_brokers_epoch_is_the_offset_of_its_registration() -> None:
    """M1, for a first registration and for one that comes after its predecessor's moves in the same batch."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1), (0, 2))
    command = replace(registration(0, life=2), previous_incarnation_id=incarnation(0))
    base = cluster.image.offset
    run = cluster.run(command)
    assert isinstance(run.reply, RegisterBrokerReply)

    assert run.reply.broker_epoch == base + len(run.records) - 1
    assert cluster.image.brokers[0].broker_epoch == run.reply.broker_epoch
    assert isinstance(run.records[-1], RegisterBroker)
    assert [type(record) for record in run.records[:-1]] == [PartitionChange, PartitionChange]
    assert cluster.leaders("t") == [1, 2]


def test_the_same_incarnation_keeps_epoch_and_flags() -> None:
    """A retry writes nothing; new endpoints amend the record (KAFKA-16952)."""
    cluster = Cluster(1)
    before = cluster.image.brokers[0]
    retry = cluster.run(registration(0))
    assert isinstance(retry.reply, RegisterBrokerReply)
    assert (retry.records, retry.reply.broker_epoch) == ([], before.broker_epoch)

    moved = replace(registration(0), endpoints=(Endpoint("PLAIN", "elsewhere", 9),))
    amended = cluster.ask(moved, RegisterBrokerReply)
    after = cluster.image.brokers[0]
    assert amended.broker_epoch == after.broker_epoch == before.broker_epoch
    assert (after.fenced, after.endpoints[0].host) == (False, "elsewhere")


def test_a_registration_says_what_moves_the_data() -> None:
    """Something beside the agent, unless it says otherwise; a retry may amend it, and old registrations said nothing."""
    cluster = Cluster(1)
    assert cluster.image.brokers[0].data_plane == "external"
    epoch = cluster.image.brokers[0].broker_epoch
    cluster.run(replace(registration(0), data_plane="none"))
    assert (cluster.image.brokers[0].data_plane, cluster.image.brokers[0].broker_epoch) == ("none", epoch)
    cluster.contact(0, wants_fence=True)
    assert cluster.image.brokers[0].data_plane == "none"


def test_another_incarnation_waits_for_the_firsts_session() -> None:
    """Two processes with one id: the second is told so, until the first has been silent for a session."""
    cluster = Cluster(2)
    refused = refusal(cluster, registration(0, life=2))
    assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "session timeout of 9000 ms" in refused.message

    cluster.now_ms += SESSION_MS
    cluster.register(0, life=2)
    assert cluster.image.brokers[0].fenced


def test_an_own_dead_predecessor_is_superseded_at_once() -> None:
    """The directory's lock proves that it is dead (KAFKA-19047); naming some other incarnation proves nothing."""
    cluster = Cluster(2)
    stranger = replace(registration(0, life=3), previous_incarnation_id=incarnation(0, 9))
    assert refusal(cluster, stranger).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.run(replace(registration(0, life=2), previous_incarnation_id=incarnation(0)))

    assert cluster.image.brokers[0].incarnation_id == incarnation(0, 2)


def test_a_broker_that_was_told_to_go_may_come_back_at_once() -> None:
    """Its session ended with the farewell (KAFKA-19130)."""
    cluster = Cluster(1)
    cluster.contact(0, wants_shut_down=True)
    cluster.register(0, life=2)

    assert cluster.image.brokers[0].incarnation_id == incarnation(0, 2)


BAD_REGISTRATIONS = [
    (
        replace(registration(1), broker_id=-1),
        ErrorCode.INVALID_REGISTRATION,
        "broker id -1 is not between 0 and 2147483647",
    ),
    (replace(registration(1), incarnation_id=b"short"), ErrorCode.INVALID_REGISTRATION, "must be 16 bytes"),
    (replace(registration(1), endpoints=()), ErrorCode.INVALID_REGISTRATION, "no endpoints"),
    (
        replace(registration(1), endpoints=(Endpoint("A", "h", 1), Endpoint("A", "h", 2))),
        ErrorCode.INVALID_REGISTRATION,
        "listener 'A' is named twice",
    ),
    (
        replace(registration(1), endpoints=(Endpoint("A", "h", 65_536),)),
        ErrorCode.INVALID_REGISTRATION,
        "the port of listener 'A' is between 1 and 65535, not 65536",
    ),
    (
        replace(registration(1), endpoints=(Endpoint("A", "", 1),)),
        ErrorCode.INVALID_REGISTRATION,
        "the host of listener 'A' has 1 to 255 characters, not 0",
    ),
    (replace(registration(1), rack=""), ErrorCode.INVALID_REGISTRATION, "a rack has 1 to 255 characters, not 0"),
    (replace(registration(1), log_dirs=()), ErrorCode.INVALID_REGISTRATION, "0 log directories"),
    (replace(registration(1), log_dirs=(b"x",)), ErrorCode.INVALID_REGISTRATION, "must be 16 bytes"),
    (replace(registration(1), log_dirs=(bytes(16),)), ErrorCode.INVALID_REGISTRATION, "are reserved"),
    (
        replace(registration(1), log_dirs=(b"1" * 16,) * 2),
        ErrorCode.INVALID_REGISTRATION,
        "is named twice",
    ),
    (
        replace(registration(1), log_dirs=registration(0).log_dirs),
        ErrorCode.INVALID_REGISTRATION,
        "belongs to broker 0: is this a copied disk?",
    ),
    (
        replace(registration(1), features=()),
        ErrorCode.UNSUPPORTED_VERSION,
        "feature metadata.version is at level 3 in this cluster, and the node does not know it",
    ),
    (
        replace(registration(1), features=(FeatureRange("metadata.version", 4, 5),)),
        ErrorCode.UNSUPPORTED_VERSION,
        "feature metadata.version is at level 3 in this cluster, and the node supports 4 to 5",
    ),
]


@pytest.mark.parametrize(("command", "code", "text"), BAD_REGISTRATIONS, ids=lambda value: str(value)[-40:])
def test_a_bad_registration_is_told_why(command: RegisterBrokerCommand, code: ErrorCode, text: str) -> None:
    """And nothing is written."""
    refused = refusal(Cluster(1), command)

    assert refused.code is code
    assert text in refused.message


# --- identity ------------------------------------------------------------------------------------------------------


def test_a_stale_contact_has_no_effect_at_all() -> None:
    """M2: an old epoch, another incarnation or an unknown id refreshes nothing and changes nothing."""
    cluster = Cluster(2)
    epoch = cluster.image.brokers[0].broker_epoch
    stale = BrokerContact(0, epoch - 1, incarnation(0), cluster.image.offset, wants_shut_down=True)
    before = cluster.controller.standing(cluster.image, 0)
    cluster.now_ms += SESSION_MS - 1
    cluster.contact(1)
    cluster.controller.touch(0, epoch - 1, cluster.now_ms)
    cluster.controller.touch(99, epoch, cluster.now_ms)

    assert refusal(cluster, stale).code is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(cluster, replace(stale, broker_epoch=epoch, incarnation_id=incarnation(0, 7))).code is (
        ErrorCode.STALE_BROKER_EPOCH
    )
    assert refusal(cluster, replace(stale, broker_id=99)).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert refusal(cluster, AllocateProducerIds(0, epoch - 1)).code is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.controller.standing(cluster.image, 0) == before
    cluster.now_ms += 1
    assert cluster.controller.due(cluster.image, cluster.now_ms) == FenceExpiredBrokers()


def test_producer_ids_come_in_blocks() -> None:
    """No id is given out twice."""
    cluster = Cluster(1)
    ask = AllocateProducerIds(0, cluster.image.brokers[0].broker_epoch)
    blocks = [cluster.ask(ask, AllocateProducerIdsReply) for _ in range(3)]

    assert [(block.first_producer_id, block.count) for block in blocks] == [(0, 1_000), (1_000, 1_000), (2_000, 1_000)]


# --- fencing -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 70), st.data())
def test_the_law_of_fencing(seed: int, brokers: int, partitions: int, data: st.DataObject) -> None:
    """M3-M5: a fenced broker leads nothing and is in an ISR only as its last member; each change adds exactly 1 to its epochs."""
    config = ControllerConfig(slice_changes_max=data.draw(st.integers(1, 40)), slice_partitions_max=10)
    cluster = Cluster(brokers, config=config, seed=seed)
    cluster.create("a", partitions, data.draw(st.integers(1, brokers)))
    cluster.create("b", 3, 1)
    fenced: set[int] = set()
    for broker_id in data.draw(st.lists(st.integers(0, brokers - 1), min_size=1, max_size=brokers, unique=True)):
        before = {name: cluster.partitions(name) for name in "ab"}
        records = cluster.contact(broker_id, wants_fence=True)
        fenced.add(broker_id)
        assert records[-1] == BrokerRegistrationChange(
            broker_id, cluster.image.brokers[broker_id].broker_epoch, fenced=True
        )
        cluster.check_laws()
        for name, olds in before.items():
            for old, new in zip(olds, cluster.partitions(name), strict=True):
                assert new.partition_epoch - old.partition_epoch == (new != old)
                assert new.leader_epoch - old.leader_epoch == (new.leader != old.leader)
                online = [replica for replica in new.replicas if replica in new.isr and replica not in fenced]
                assert new.leader in (online or [NO_LEADER])
                if old.leader == broker_id and online:
                    assert new.leader == online[0], "the first in the order of the assignment"


def test_a_large_fencing_moves_first_and_fences_last() -> None:
    """Over many batches: every one of them leaves a valid state, and meanwhile the broker is given nothing."""
    cluster = Cluster(3, config=ControllerConfig(slice_changes_max=10, slice_partitions_max=10))
    for name in ("a", "b", "c"):
        cluster.create(name, 100, 2)
    following: Command | None = cluster.said_by(0, wants_fence=True)
    steps = 0
    while following is not None:
        decision = cluster.controller.decide(cluster.image, following, cluster.now_ms)
        assert len(decision.records) <= 10 + 64
        cluster.fold(decision)
        following = decision.then
        steps += 1
        if following is not None:
            assert not cluster.image.brokers[0].fenced
            assert cluster.contact(0) == cluster.contact(0, wants_shut_down=True) == []
            cluster.create(f"meanwhile-{steps}", 3, 3)
            assert all(0 not in partition.isr for partition in cluster.partitions(f"meanwhile-{steps}"))
    assert steps >= 5
    assert cluster.image.brokers[0].fenced
    cluster.check_laws()


def test_a_fencing_that_was_cut_short_is_taken_up_again() -> None:
    """If a batch never came to be, the controller finds by itself that the broker is half way out."""
    cluster = Cluster(3, config=ControllerConfig(slice_changes_max=1, slice_partitions_max=1))
    cluster.create("a", 100, 2)
    cluster.fold(cluster.controller.decide(cluster.image, cluster.said_by(0, wants_fence=True), cluster.now_ms))
    deadline_ms = cluster.controller.next_deadline_ms()
    assert deadline_ms is not None
    assert cluster.controller.due(cluster.image, cluster.now_ms) is None
    again = cluster.controller.due(cluster.image, deadline_ms)
    assert again == ContinueFencing(0)
    cluster.now_ms = deadline_ms
    cluster.run(again)

    assert cluster.image.brokers[0].fenced
    cluster.check_laws()


def test_sessions_end_one_broker_per_decision() -> None:
    """The one that was silent longest first."""
    cluster = Cluster(3)
    for broker_id in (2, 0, 1):
        cluster.now_ms += 100
        cluster.contact(broker_id)
    cluster.now_ms += SESSION_MS
    fenced = []
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        fenced += [
            record.broker_id for record in cluster.run(due).records if isinstance(record, BrokerRegistrationChange)
        ]

    assert fenced == [2, 0, 1]
    assert cluster.run(FenceExpiredBrokers()).records == []


def test_contact_keeps_a_broker_unfenced_and_silence_does_not() -> None:
    """Fenced exactly when the session is over, not before; `touch` alone suffices to live (KAFKA-17793)."""
    cluster = Cluster(2)
    for _ in range(20):
        cluster.now_ms += SESSION_MS // 2
        cluster.controller.touch(0, cluster.image.brokers[0].broker_epoch, cluster.now_ms)
        while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
            cluster.run(due)

    assert not cluster.image.brokers[0].fenced
    assert cluster.image.brokers[1].fenced


def test_only_a_fetch_keeps_a_session() -> None:
    """1. Broker 0 fetches no more. It still proposes ISRs, asks for producer ids, and registers its process once more: each of
    these is answered.  2. When its session is over, broker 0 is fenced all the same. Only the fetch is the heartbeat."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1))
    epoch = cluster.image.brokers[0].broker_epoch
    begun_ms = cluster.now_ms
    while cluster.now_ms < begun_ms + SESSION_MS - 1_000:
        cluster.now_ms += 1_000
        for other in (1, 2):
            cluster.contact(other)
        cluster.ask(AllocateProducerIds(0, epoch), AllocateProducerIdsReply)
        state = cluster.partitions("t")[0]
        members = (IsrMember(0, epoch), IsrMember(1, cluster.image.brokers[1].broker_epoch))
        alteration = PartitionAlteration(state.topic_id, 0, state.leader_epoch, state.partition_epoch, members)
        cluster.run(AlterPartition(0, epoch, (alteration,)))
        cluster.run(registration(0))
        assert cluster.controller.due(cluster.image, cluster.now_ms) is None
    cluster.now_ms = begun_ms + SESSION_MS
    due = cluster.controller.due(cluster.image, cluster.now_ms)
    assert due == FenceExpiredBrokers()
    cluster.run(due)
    assert cluster.image.brokers[0].fenced
    assert cluster.leaders("t") == [1]


def test_a_stall_is_credited() -> None:
    """What this process slept through is nobody's silence (KAFKA-15019)."""
    cluster = Cluster(1)
    cluster.now_ms += SESSION_MS + 5_000
    cluster.controller.credit(5_000)
    cluster.now_ms -= 1
    assert refusal(cluster, registration(0, life=2)).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.controller.due(cluster.image, cluster.now_ms - 1) is None
    assert cluster.controller.due(cluster.image, cluster.now_ms) == FenceExpiredBrokers()


def test_a_new_controller_grants_full_sessions() -> None:
    """M8: to every unfenced broker, from the moment it became active; to fenced ones none, and yet they are known."""
    cluster = Cluster(3)
    cluster.contact(2, wants_fence=True)
    cluster.controller = Controller(ControllerConfig(), random.Random(2))
    cluster.now_ms = 1_000_000
    cluster.controller.activate(cluster.image, cluster.now_ms)

    assert cluster.controller.due(cluster.image, cluster.now_ms + SESSION_MS - 1) is None
    assert cluster.controller.due(cluster.image, cluster.now_ms + SESSION_MS) == FenceExpiredBrokers()
    assert cluster.controller.standing(cluster.image, 2).state is BrokerState.FENCED
    assert cluster.controller.standing(cluster.image, 0).last_contact_ms is None
    assert refusal(cluster, registration(0, life=2)).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.register(2, life=2)


def test_unclean_elections_only_where_the_topic_allows_them() -> None:
    """The new leader is the whole ISR, and recovering; elsewhere the partition waits for its last ISR member."""
    cluster = Cluster(2)
    cluster.assign("clean", (0, 1))
    cluster.assign("unclean", (0, 1))
    operations = (ConfigOperation(ConfigOperationKind.SET, "unclean.leader.election.enable", "true"),)
    cluster.run(AlterConfigs((ConfigAlteration(2, "unclean", operations),)))
    cluster.contact(1, wants_fence=True)
    cluster.contact(0, wants_fence=True)
    assert cluster.leaders("clean") == cluster.leaders("unclean") == [NO_LEADER]
    cluster.contact(1)

    assert cluster.leaders("clean") == [NO_LEADER]
    partition = cluster.partitions("unclean")[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 1)


def test_many_leaderless_partitions_elect_over_many_batches() -> None:
    """The unfence record comes first, then the elections, in slices."""
    cluster = Cluster(2, config=ControllerConfig(slice_changes_max=5, slice_partitions_max=5))
    for name in ("a", "b", "c", "d"):
        cluster.assign(name, *[(0,)] * 3)
    cluster.contact(0, wants_fence=True)
    records = cluster.contact(0)

    assert isinstance(records[0], BrokerRegistrationChange)
    assert len(records) == 1 + 12
    assert all(cluster.leaders(name) == [0, 0, 0] for name in "abcd")


# --- the rest ------------------------------------------------------------------------------------------------------


OLD = ControllerConfig(bootstrap_metadata_version=1)
"""A cluster of which some nodes cannot read modes of brokers: an operator's fence ends with the broker's next fetch."""


def silent(cluster: Cluster, broker_id: int) -> None:
    """The broker's session ends, and nobody else's."""
    cluster.now_ms += SESSION_MS
    for other in cluster.image.brokers:
        if other != broker_id:
            cluster.contact(other)
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        cluster.run(due)


@pytest.mark.parametrize("command", [FenceBroker(0), UnregisterBroker(0)])
@pytest.mark.parametrize("heard", ["a moment ago", "by an earlier controller", "fenced, and fetching"])
def test_a_broker_that_is_heard_is_neither_fenced_nor_forgotten_by_hand(command: Command, heard: str) -> None:
    """It would be back with its next fetch, and what it led would be gone for good. The text says what helps.

    From metadata.version 2 on a fence lasts (`test_broker_modes`)."""
    cluster = Cluster(2, config=OLD)
    if heard == "a moment ago":
        for broker_id in (0, 1):
            cluster.contact(broker_id)
        cluster.now_ms += 120
    elif heard == "by an earlier controller":
        cluster.controller.activate(cluster.image, cluster.now_ms)
    else:
        cluster.contact(0, wants_fence=True)
    before = cluster.image.digest_bytes

    refused = refusal(cluster, command)

    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "nothing was done. Stop its process" in refused.message
    assert {"a moment ago": "it was heard 120 ms ago"}.get(heard, "broker 0") in refused.message
    assert cluster.image.digest_bytes == before
    assert cluster.controller.due(cluster.image, cluster.now_ms + 1_000) is None, "no way out was begun"


def test_a_silent_broker_is_fenced_by_hand_or_by_time() -> None:
    """Its session has ended, and nobody has looked yet."""
    cluster = Cluster(2, config=OLD)
    cluster.assign("t", (0, 1))
    cluster.now_ms += SESSION_MS
    cluster.contact(1)
    run = cluster.run(FenceBroker(0))
    assert run.records[-1] == BrokerRegistrationChange(0, cluster.image.brokers[0].broker_epoch, fenced=True)
    assert cluster.leaders("t") == [1]
    assert cluster.run(FenceBroker(0)).records == [], "that is what was wanted"


def test_a_fencing_goes_on_whoever_is_heard_meanwhile() -> None:
    """The rule is for what an operator asks. Half a fencing would leave the broker out of some ISRs, and barred from all."""
    cluster = Cluster(3, config=OLD._replace(slice_changes_max=1, slice_partitions_max=1))
    cluster.create("a", 200, 2)
    cluster.now_ms += SESSION_MS
    for broker_id in (1, 2):
        cluster.contact(broker_id)
    decision = cluster.controller.decide(cluster.image, FenceBroker(0), cluster.now_ms)
    cluster.fold(decision)
    assert decision.then == ContinueFencing(0)

    assert cluster.contact(0) == []
    assert refusal(cluster, FenceBroker(0)).code is ErrorCode.POLICY_VIOLATION, "what an operator asks is judged anew"
    cluster.run(ContinueFencing(0))

    assert cluster.image.brokers[0].fenced
    cluster.check_laws()


def test_a_broker_that_registers_anew_is_not_fenced_by_hand_meanwhile() -> None:
    """The broker is heard, and the fence would not last.

    1. Broker 0 dies, and its next process registers: the way out of the dead one takes several slices. 2. In the middle an
    operator asks to fence broker 0, and is refused.
    """
    cluster = Cluster(3, config=OLD._replace(slice_changes_max=1, slice_partitions_max=1))
    cluster.create("a", 200, 2)
    command = replace(registration(0, life=2), previous_incarnation_id=incarnation(0))
    decision = cluster.controller.decide(cluster.image, command, cluster.now_ms)
    cluster.fold(decision)
    assert decision.then == command

    assert refusal(cluster, FenceBroker(0)).code is ErrorCode.POLICY_VIOLATION

    cluster.run(command)
    assert cluster.image.brokers[0].incarnation_id == incarnation(0, 2)
    cluster.check_laws()


def test_what_is_left_of_a_fencing_does_nothing_to_the_next_process() -> None:
    """A step of the fencing still waits its turn when the broker comes back as another process, and is unfenced."""
    cluster = Cluster(2)
    cluster.run(replace(registration(0, life=2), previous_incarnation_id=incarnation(0)))
    cluster.lives[0] = 2
    cluster.contact(0)
    assert cluster.run(ContinueFencing(0)).records == []
    assert cluster.run(ContinueFencing(7)).records == []
    assert not cluster.image.brokers[0].fenced


def test_a_broker_that_holds_replicas_is_not_forgotten() -> None:
    """Partitions would go on naming a broker that does not exist."""
    cluster = Cluster(2)
    for name in ("d", "b", "a", "c"):
        cluster.assign(name, (0, 1))
    silent(cluster, 0)
    refused = refusal(cluster, UnregisterBroker(0))
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "has replicas of 4 topics ('a', 'b', 'c' and 1 more)" in refused.message


def test_a_broker_on_its_way_out_is_not_forgotten_yet() -> None:
    cluster = Cluster(2)
    cluster.now_ms += SESSION_MS
    cluster.contact(1)
    assert "is being fenced" in refusal(cluster, UnregisterBroker(0)).message


def test_an_unregistered_broker_is_gone() -> None:
    """It was fenced, and held nothing; its id may register anew."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    silent(cluster, 0)
    cluster.run(DeleteTopics(("t",)))
    run = cluster.run(UnregisterBroker(0))

    assert isinstance(run.records[-1], UnregisterBrokerRecord)
    assert cluster.controller.standing(cluster.image, 0).state is BrokerState.OFFLINE
    refused = refusal(cluster, UnregisterBroker(0))
    assert (refused.code, refused.message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 0 is not registered")
    assert refusal(cluster, FenceBroker(0)).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.register(0, life=2)


def two_directories() -> tuple[Cluster, tuple[Uuid, ...]]:
    """Broker 0 is online with two log directories."""
    cluster = Cluster()
    two = (b"1" * 16, b"2" * 16)
    cluster.run(replace(registration(0), log_dirs=two))
    cluster.lives[0] = 1
    cluster.contact(0)
    return cluster, two


def test_lost_log_directories_leave_the_registration() -> None:
    """A broker that has none left is fenced."""
    cluster, two = two_directories()
    cluster.contact(0, offline_log_dirs=two[:1])
    assert (cluster.image.brokers[0].log_dirs, cluster.image.brokers[0].fenced) == (two[1:], False)
    assert cluster.contact(0, offline_log_dirs=two[:1]) == []
    cluster.contact(0, offline_log_dirs=two)

    assert (cluster.image.brokers[0].log_dirs, cluster.image.brokers[0].fenced) == ((), True)


def test_a_broker_without_log_directories_stays_fenced() -> None:
    """It goes on fetching, caught up, and may only shut down. The next process registers with the mended disk."""
    cluster = Cluster(1)
    lost = cluster.image.brokers[0].log_dirs
    cluster.contact(0, offline_log_dirs=lost)
    for _ in range(3):
        assert cluster.contact(0, offline_log_dirs=lost) == []
    assert cluster.contact(0) == [], "nor does it come back by saying nothing of its directories"
    assert cluster.image.brokers[0].fenced

    cluster.now_ms += SESSION_MS
    cluster.register(0, life=2)
    cluster.contact(0)
    assert not cluster.image.brokers[0].fenced


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_broker_without_log_directories_is_fenced_by_the_next_controller(stops: bool, is_old: bool) -> None:
    """A fencing that a failover cut short begins again.

    1. Broker 0 leads 200 partitions, and loses its only log directory. Controller 1 writes the first slice: the broker is not
       fenced yet. A controller of release 0.1.0 has taken the directory out of the registration already.
    2. Controller 1 loses its leadership. Controller 2 knows nothing of the fencing.
    3. Broker 0 is heard: controller 2 fences broker 0, for the same reason. A broker that is shutting down, and waits for broker
       1 to catch up, is fenced, too.
    """
    cluster = Cluster(2, config=ControllerConfig(slice_changes_max=10, slice_partitions_max=64))
    cluster.contact(1, wants_fence=True)
    cluster.assign("t", *[(0, 1)] * 200)
    cluster.contact(1)
    lost = cluster.image.brokers[0].log_dirs
    if stops:
        cluster.contact(0, wants_shut_down=True)
    said = cluster.said_by(0, wants_shut_down=stops, offline_log_dirs=lost)
    cluster.fold(cluster.controller.decide(cluster.image, said, cluster.now_ms))
    assert (cluster.image.brokers[0].log_dirs, cluster.image.brokers[0].fenced) == (lost, False)
    if is_old:
        cluster.append(BrokerRegistrationChange(0, cluster.image.brokers[0].broker_epoch, log_dirs=()))

    cluster.controller.activate(cluster.image, cluster.now_ms)
    told = cluster.run(cluster.said_by(0, wants_shut_down=stops, offline_log_dirs=lost)).happenings
    assert (cluster.image.brokers[0].log_dirs, cluster.image.brokers[0].fenced) == ((), True)
    assert cluster.leaders("t") == [NO_LEADER] * 200
    assert [each.why for each in told if isinstance(each, BrokerFenced)] == [StateReason.LOG_DIRECTORIES_LOST]


def test_a_lost_log_directory_does_not_come_back_with_a_repeated_registration() -> None:
    """The same process sends its first registration once more, perhaps with another endpoint: what was lost stays lost."""
    cluster, two = two_directories()
    cluster.contact(0, offline_log_dirs=two[:1])
    command = replace(registration(0), log_dirs=two)
    assert cluster.run(command).records == []
    cluster.run(replace(command, rack="b"))
    assert (cluster.image.brokers[0].log_dirs, cluster.image.brokers[0].rack) == (two[1:], "b")


def test_a_return_that_a_failover_cut_short_is_finished_by_the_next_controller() -> None:
    """A partition with an active member of its ISR does not stay without a leader.

    1. Broker 0 alone holds 200 partitions. It is fenced, and returns: the first slice elects it for some of them.
    2. The controller loses its leadership. The next one finds broker 0 online, as it was for long.
    3. The next controller looks through all partitions, slice by slice, and elects broker 0 for the others.
    """
    cluster = Cluster(2, config=ControllerConfig(slice_changes_max=10, slice_partitions_max=64))
    cluster.assign("t", *[(0,)] * 200)
    cluster.contact(0, wants_fence=True)
    assert all(partition.leader == NO_LEADER for partition in cluster.partitions("t"))
    decision = cluster.controller.decide(cluster.image, cluster.said_by(0), cluster.now_ms)
    cluster.fold(decision)
    assert decision.then is not None
    leaderless = sum(partition.leader == NO_LEADER for partition in cluster.partitions("t"))
    assert 0 < leaderless < 200

    cluster.controller.activate(cluster.image, cluster.now_ms)
    told: list[Happening] = []
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        told += cluster.run(due).happenings
    assert all(partition.leader == 0 for partition in cluster.partitions("t"))
    assert sum(each.partitions for each in told if isinstance(each, LeadersElected)) == leaderless


@pytest.mark.parametrize(("resource_type", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_an_operator_who_allows_unclean_elections_gets_one(resource_type: int, name: str) -> None:
    """A partition without a leader is elected one at once, and the story says that records may be lost.

    1. Partition t-0 has the replicas 0 and 1. Only 0 is in the ISR when broker 0 is fenced: t-0 has no leader.
    2. An operator sets unclean.leader.election.enable, for the topic or for all.
    3. Broker 1 leads t-0, alone in the ISR.
    """
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    (partition,) = cluster.partitions("t")
    alteration = PartitionAlteration(partition.topic_id, 0, 0, 0, (IsrMember(0),))
    cluster.run(AlterPartition(0, cluster.image.brokers[0].broker_epoch, (alteration,)))
    cluster.contact(0, wants_fence=True)
    assert cluster.partitions("t")[0].leader == NO_LEADER
    operation = ConfigOperation(ConfigOperationKind.SET, "unclean.leader.election.enable", "true")
    cluster.run(AlterConfigs((ConfigAlteration(resource_type, name, (operation,)),)))

    told: list[Happening] = []
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        told += cluster.run(due).happenings
    (partition,) = cluster.partitions("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), RECOVERING)
    assert told == [LeadersElected(1, ("t-0: 1",), unclean=1)]
