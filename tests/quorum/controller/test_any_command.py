"""Any command at all, of any size and with anything in it, asked of clusters in any state: an answer or a typed refusal.

Any other exception is a mistake of ours. In production it costs a request, and where it is about a broker's life the
leader's term (`runtime.active.decisions`); here it is to be found before. Values are mostly such as exist, so that commands
come past the first check; and numbers are of any size that the wire can carry.
"""

from collections.abc import Callable
from functools import cache, partial
from operator import add
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metadata_log.format.batch import encode
from metadata_log.format.codec import decode_batch, encode_records
from metadata_log.format.errors import BatchTooLarge
from metadata_log.format.ids import LOST_DIRECTORY, NODE_ID_MAX
from metadata_log.format.records import (
    BROKER_RESOURCE,
    FEATURES,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    ConfigDefinition,
    Endpoint,
    FeatureRange,
    MetadataRecord,
    ProducerIds,
    QuotaEntity,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
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
)
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.directory_commands import (
    AssignReplicasToDirs,
    ContinueDirectoryLoss,
    DirectoryAssignment,
)
from quorum.controller.protocol.election_commands import BalanceLeaders, ElectLeaders, TopicPartition
from quorum.controller.protocol.entity_commands import AlterKinds, CloseSession, OpenSession, Transact
from quorum.controller.protocol.feature_commands import BootstrapFeatures, FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.label_commands import AlterLabels, LabelAlteration
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode, Mode
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.request_outcomes import RequestIdentity, outcome_of
from quorum.controller.protocol.rights.acl_commands import AclBinding, AclFilter, CreateAcls, DeleteAcls
from quorum.controller.protocol.rights.quota_commands import AlterClientQuotas, QuotaAlteration, QuotaOperation
from quorum.controller.protocol.rights.scram_commands import AlterUserScramCredentials, ScramAlteration, ScramSecrets
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from quorum.controller.rights.quotas import CLIENT_KEYS, ENTITY_TYPES, IP_KEYS
from quorum.controller.topics.config_keys import KEYS
from tests.quorum.controller.cluster import Cluster, incarnation
from tests.quorum.controller.entities.any_entity_command import entity_commands, settle

NAMES: Final = ("orders", "moved.a", "alone")
BROKERS: Final = 5


# --- clusters --------------------------------------------------------------------------------------------------------


def new() -> Cluster:
    """Nobody has registered."""
    return Cluster(0)


def busy() -> Cluster:
    """Brokers 0 and 1 are online, 2 was fenced, 3 is shutting down, 4 never came; one partition has no leader."""
    cluster = Cluster(4, racks=2, config=ControllerConfig(slice_changes_max=2, slice_partitions_max=4))
    cluster.register(4)
    cluster.create("orders", 70, 2)
    cluster.assign("moved.a", (0, 1, 2, 3), (1, 0, 3, 2))
    cluster.assign("alone", (2,))
    cluster.run(AlterConfigs((_set(TOPIC_RESOURCE, "orders"), _set(BROKER_RESOURCE, ""), _set(BROKER_RESOURCE, "1"))))
    cluster.contact(2, wants_fence=True)
    cluster.contact(3, wants_shut_down=True)
    settle(cluster)
    return cluster


def leaving() -> Cluster:
    """As `busy`; broker 0 is half way out, and broker 1 was not heard for a whole session."""
    cluster = busy()
    cluster.fold(cluster.controller.decide(cluster.image, cluster.said_by(0, wants_fence=True), cluster.now_ms))
    cluster.now_ms += cluster.controller.config.session_timeout_ms
    return cluster


def succeeded() -> Cluster:
    """As `leaving`, under a controller that has just begun to lead; and hardly a producer id is left."""
    cluster = leaving()
    cluster.controller.activate(cluster.image, cluster.now_ms)
    cluster.fold(Decision((ProducerIds(1, cluster.image.brokers[1].broker_epoch, (1 << 63) - 1_500),), _no_reply()))
    return cluster


def _set(resource_type: int, name: str) -> ConfigAlteration:
    key = next(iter(sorted(KEYS[resource_type].keys() & {"retention.ms", "log.retention.ms"})))
    return ConfigAlteration(resource_type, name, (ConfigOperation(ConfigOperationKind.SET, key, "60000"),))


def _no_reply() -> Any:
    return None


CLUSTERS: Final[tuple[Callable[[], Cluster], ...]] = (new, busy, leaving, succeeded)


@cache
def image_of(make: Callable[[], Cluster]) -> MetadataImage:
    """For drawing what exists."""
    return make().image


# --- anything --------------------------------------------------------------------------------------------------------

ANY_NUMBER: Final = st.one_of(
    st.sampled_from([-(2**63), -(2**31), -2, -1, 0, 1, 2**31 - 1, NODE_ID_MAX + 1, 2**31, 2**53, 2**63 - 1, 2**64 - 1]),
    st.integers(-3, 200),
)
ANY_TEXT: Final = st.one_of(
    st.sampled_from(
        ["", ".", "..", "@metadata", "a_b", "moved_a", "x" * 249, "x" * 250, "_" * 240, "é", "\0", "10", "007"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
ANY_BYTES: Final = st.one_of(st.sampled_from([b"", bytes(16), b"\xff" * 16, bytes(17)]), st.binary(max_size=20))
ANY_ID: Final = st.one_of(ANY_BYTES, st.builds(incarnation, st.integers(0, BROKERS), st.integers(1, 2)))
ANY_BROKER: Final = st.one_of(st.integers(0, BROKERS), ANY_NUMBER)
ANY_NAME: Final = st.one_of(st.sampled_from(NAMES), ANY_TEXT)
COUNT: Final = st.one_of(st.integers(-1, 5), ANY_NUMBER)


DEFINED: Final = st.tuples(st.sampled_from((2, 4, 7)), st.sampled_from(("acme.", "acme.x", "retention.ms", "é")))
DEFINITION: Final = st.builds(
    lambda name, value_type, default, maximum: ConfigDefinition(
        name[0], name[1], name[1].endswith("."), value_type, default, maximum=maximum
    ),
    DEFINED,
    st.sampled_from(("int", "text", "list", "?")),
    st.sampled_from(("", "5")),
    st.sampled_from((None, -1, 1, 1 << 70)),
)
"""Definitions, good and bad, of which some stand in each other's way."""


LABELLED: Final = st.one_of(
    st.tuples(st.just(2), st.sampled_from(NAMES), st.integers(-1, 3)),
    st.tuples(st.just(4), st.sampled_from(("0", "4", "77", "x")), st.just(-1)),
    st.tuples(ANY_NUMBER, ANY_NAME, ANY_NUMBER),
)
LABEL: Final = st.tuples(
    st.one_of(st.sampled_from(("team", "a/b", "hot")), ANY_TEXT), st.one_of(st.sampled_from((None, "", "x")), ANY_TEXT)
)
LABELS: Final = st.builds(
    lambda thing, labels: LabelAlteration(thing[0], thing[1], thing[2], labels),
    LABELLED,
    st.lists(LABEL, max_size=3).map(tuple),
)


def some(of: st.SearchStrategy[Any], at_most: int = 4) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=at_most).map(tuple)


ASSIGNMENT: Final = some(some(ANY_BROKER))
REASSIGNMENT: Final = st.builds(
    Reassignment, ANY_NAME, st.one_of(st.integers(0, 2), ANY_NUMBER), st.one_of(st.none(), some(ANY_BROKER))
)
KEY: Final = st.one_of(st.sampled_from(sorted({key for keys in KEYS.values() for key in keys})), ANY_TEXT)
VALUE: Final = st.one_of(
    st.sampled_from(
        ["1", "-1", "true", "delete", "delete,compact", ",", "1e400", "9" * 400, "NaN", "٣", "0x1", "x" * 70_000]
    ),
    ANY_NUMBER.map(str),
    ANY_TEXT,
)
ENDPOINT: Final = st.builds(Endpoint, ANY_TEXT, ANY_TEXT, st.one_of(st.just(9_092), ANY_NUMBER))
GOOD_ENDPOINTS: Final = st.just((Endpoint("PLAINTEXT", "b", 9_092),))
FEATURE: Final = st.builds(FeatureRange, ANY_TEXT, ANY_NUMBER, ANY_NUMBER)
UPDATE: Final = st.builds(
    FeatureUpdate,
    st.one_of(st.sampled_from(sorted(FEATURES)), ANY_TEXT),
    st.one_of(st.integers(0, 3), ANY_NUMBER),
    st.sampled_from(UpgradeType),
)
GOOD_FEATURES: Final = st.just((FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),))
LOG_DIRS: Final = st.one_of(
    st.integers(0, BROKERS).map(lambda broker_id: (bytes([200, *broker_id.to_bytes(4, "big"), *bytes(11)]),)),
    some(ANY_ID),
)
OPERATION: Final = st.builds(ConfigOperation, st.sampled_from(ConfigOperationKind), KEY, VALUE)
ALTERATION: Final = st.builds(
    ConfigAlteration,
    st.one_of(st.sampled_from([TOPIC_RESOURCE, BROKER_RESOURCE]), ANY_NUMBER),
    ANY_NAME,
    some(OPERATION),
)

QUOTA_NUMBER: Final = st.one_of(st.none(), st.sampled_from([1.0, 0.5, 2.0**63]), st.floats())
QUOTA_OPERATION: Final = st.builds(
    QuotaOperation, st.one_of(st.sampled_from([*CLIENT_KEYS, *IP_KEYS]), ANY_TEXT), QUOTA_NUMBER
)
QUOTA_PART: Final = st.builds(
    QuotaEntity, st.one_of(st.sampled_from(ENTITY_TYPES), ANY_TEXT), st.one_of(st.none(), st.just("::1"), ANY_TEXT)
)
QUOTA_ALTERATION: Final = st.builds(QuotaAlteration, some(QUOTA_PART, 3), some(QUOTA_OPERATION))

ACL_NUMBER: Final = st.one_of(st.integers(0, 15), ANY_NUMBER)
ACL_NAME: Final = st.one_of(st.sampled_from(["*", "orders", "User:alice", "kafka-cluster", "::1"]), ANY_TEXT)
ACL: Final = st.one_of(
    st.builds(
        AclBinding, st.just(2), ACL_NAME, st.integers(3, 4), st.just("User:alice"), st.just("*"), st.integers(2, 8),
        st.integers(2, 3),
    ),
    st.builds(AclBinding, ACL_NUMBER, ACL_NAME, ACL_NUMBER, ACL_NAME, ACL_NAME, ACL_NUMBER, ACL_NUMBER),
)  # fmt: skip
ACL_NAMED: Final = st.one_of(st.none(), ACL_NAME)
ACL_FILTER: Final = st.one_of(
    st.just(AclFilter()),
    st.builds(AclFilter, ACL_NUMBER, ACL_NAMED, ACL_NUMBER, ACL_NAMED, ACL_NAMED, ACL_NUMBER, ACL_NUMBER),
)

SCRAM_KEY: Final = st.one_of(st.just(bytes(32)), st.just(bytes(64)), ANY_BYTES)
SCRAM: Final = st.builds(
    ScramAlteration,
    st.one_of(st.just("alice"), ANY_TEXT),
    st.one_of(st.integers(1, 2), ANY_NUMBER),
    st.one_of(
        st.none(),
        st.just(ScramSecrets(4_096, b"salt", bytes(32), bytes(32))),
        st.builds(ScramSecrets, st.one_of(st.just(16_384), ANY_NUMBER), ANY_BYTES, SCRAM_KEY, SCRAM_KEY),
    ),
)


def epoch_of(image: MetadataImage) -> st.SearchStrategy[int]:
    """A broker's epoch, or any number."""
    known = [broker.broker_epoch for broker in image.brokers.values()]
    return st.one_of(st.sampled_from(known), ANY_NUMBER) if known else ANY_NUMBER


@st.composite
def identified(draw: st.DrawFn, image: MetadataImage) -> tuple[int, int, bytes]:
    """A broker's id, epoch and incarnation; mostly such as belong together."""
    known = list(image.brokers.values())
    if known and draw(st.integers(0, 3)) > 0:
        broker = draw(st.sampled_from(known))
        return broker.broker_id, broker.broker_epoch, broker.incarnation_id
    return draw(ANY_BROKER), draw(epoch_of(image)), draw(ANY_ID)


@st.composite
def contacts(draw: st.DrawFn, image: MetadataImage) -> Command:
    offset = draw(st.one_of(st.just(image.offset), ANY_NUMBER))
    return BrokerContact(
        *draw(identified(image)),
        offset,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.one_of(st.just(()), LOG_DIRS)),
    )


@st.composite
def alterations(draw: st.DrawFn, image: MetadataImage) -> Command:
    """Of partitions that there are, in the state in which they are, or nearly so."""
    broker_id, broker_epoch, _ = draw(identified(image))
    topic_ids = st.sampled_from([topic.topic_id for topic in image.topics()] or [bytes(16)])
    near = st.sampled_from([-1, 0, 0, 0, 1])
    altered = []
    for _ in range(draw(st.integers(0, 3))):
        topic_id, number = draw(st.one_of(topic_ids, ANY_BYTES)), draw(st.one_of(st.integers(0, 2), ANY_NUMBER))
        topic = image.topic_by_id(topic_id)
        partition = None if topic is None else topic.partition(number)
        leader_epoch, partition_epoch = (
            (0, 0) if partition is None else (partition.leader_epoch, partition.partition_epoch)
        )
        members = some(st.builds(IsrMember, ANY_BROKER, st.one_of(st.just(-1), epoch_of(image))))
        altered.append(
            PartitionAlteration(
                topic_id, number,
                draw(st.one_of(near.map(partial(add, leader_epoch)), ANY_NUMBER)),
                draw(st.one_of(near.map(partial(add, partition_epoch)), ANY_NUMBER)),
                draw(members), draw(st.one_of(st.sampled_from([0, 1]), ANY_NUMBER)),
            )
        )  # fmt: skip
    return AlterPartition(broker_id, broker_epoch, tuple(altered))


@st.composite
def assignments(draw: st.DrawFn, image: MetadataImage) -> Command:
    """Of replicas that there are, or not, to directories that there are, or not."""
    broker_id, broker_epoch, _ = draw(identified(image))
    topic_ids = st.sampled_from([topic.topic_id for topic in image.topics()] or [bytes(16)])
    known = [each for broker in image.brokers.values() for each in broker.log_dirs]
    directory = st.one_of(st.sampled_from([*known, LOST_DIRECTORY]), ANY_BYTES)
    number = st.one_of(st.integers(0, 2), ANY_NUMBER)
    wanted = st.builds(DirectoryAssignment, st.one_of(topic_ids, ANY_BYTES), number, directory)
    return AssignReplicasToDirs(broker_id, broker_epoch, draw(some(wanted)))


@st.composite
def deaths(draw: st.DrawFn, image: MetadataImage) -> Command:
    """Of processes that are registered, or not."""
    broker_id, _, incarnation_id = draw(identified(image))
    return ReportDeath(broker_id, (incarnation_id, *draw(some(ANY_ID))))


def commands(image: MetadataImage) -> st.SearchStrategy[Command]:
    """Each of the closed union: whoever adds one adds it here."""
    topic = st.builds(NewTopic, ANY_NAME, COUNT, COUNT, st.one_of(st.just(()), ASSIGNMENT), some(st.tuples(KEY, VALUE)))
    grown = st.builds(NewPartitions, ANY_NAME, st.one_of(st.integers(-1, 80), ANY_NUMBER), ASSIGNMENT)
    endpoints, features = st.one_of(GOOD_ENDPOINTS, some(ENDPOINT)), st.one_of(GOOD_FEATURES, some(FEATURE))
    return st.one_of(
        st.builds(CreateTopics, some(topic), st.booleans()),
        st.builds(CreatePartitions, some(grown), st.booleans()),
        st.builds(DeleteTopics, some(ANY_NAME)),
        st.builds(AlterConfigs, some(ALTERATION), st.booleans()),
        st.builds(ElectLeaders, some(st.builds(TopicPartition, ANY_NAME, COUNT))),
        st.builds(AlterPartitionReassignments, some(REASSIGNMENT), st.booleans(), st.booleans()),
        alterations(image),
        contacts(image),
        identified(image).map(lambda known: AllocateProducerIds(known[0], known[1])),
        st.builds(
            RegisterBrokerCommand, ANY_BROKER, ANY_ID, endpoints, features, st.one_of(st.none(), ANY_TEXT), LOG_DIRS,
            st.one_of(st.none(), ANY_ID),
        ),
        deaths(image),
        st.builds(RegisterControllerCommand, ANY_BROKER, ANY_ID, endpoints, features),
        st.builds(FenceBroker, ANY_BROKER, ANY_TEXT, st.booleans()),
        st.builds(DrainBroker, ANY_BROKER, ANY_TEXT, st.booleans()),
        st.builds(EndBrokerMode, ANY_BROKER, st.sampled_from(Mode), st.booleans()),
        st.builds(UnregisterBroker, ANY_BROKER),
        st.builds(ContinueFencing, ANY_BROKER),
        assignments(image),
        st.builds(ContinueDirectoryLoss, ANY_BROKER),
        st.builds(ContinueShutdown, ANY_BROKER),
        st.builds(ElectLeaderless, st.one_of(st.none(), ANY_BROKER)),
        st.builds(FenceExpiredBrokers),
        st.builds(BalanceLeaders),
        st.builds(BootstrapFeatures, COUNT),
        st.builds(UpdateFeatures, some(UPDATE), st.booleans()),
        st.builds(AlterLabels, some(LABELS), st.booleans()),
        st.builds(AlterConfigKeys, some(DEFINITION), some(DEFINED), st.booleans()),
        st.builds(AlterUserScramCredentials, some(SCRAM), st.booleans()),
        st.builds(CreateAcls, some(ACL), st.booleans()),
        st.builds(DeleteAcls, some(ACL_FILTER), st.booleans()),
        st.builds(AlterClientQuotas, some(QUOTA_ALTERATION), st.booleans()),
        entity_commands(image, topic, ALTERATION),
    )  # fmt: skip


SILENT: Final = (AllocateProducerIds, Transact, AlterKinds)
"""Commands that write and tell nothing: brokers and embedders send them all the time, and nobody asks afterwards."""
HAPPENINGS_MAX: Final = 4
"""A decision has no more: the first of `LogDirectoriesLost`, `BrokerFenced`, `ReplicasMoved`, `BrokerRegistered`."""
CLIENTS: Final = (
    CreateTopics, CreatePartitions, DeleteTopics, AlterConfigs, ElectLeaders, AlterPartitionReassignments, FenceBroker,
    UnregisterBroker, UpdateFeatures, DrainBroker, EndBrokerMode, AlterClientQuotas,
    AlterConfigKeys, AlterLabels,
    CreateAcls, DeleteAcls, AlterUserScramCredentials,
    Transact, AlterKinds, OpenSession, CloseSession,
)  # fmt: skip
"""Requests that may have an id."""


# --- the law ---------------------------------------------------------------------------------------------------------


def check(cluster: Cluster, command: Command) -> None:
    """Decided, with all that follows, or refused; what is decided fits image and batch, and reads back as it was written."""
    following: Command | None = command
    steps = written = told = 0
    while following is not None:
        try:
            decision = cluster.controller.decide(cluster.image, following, cluster.now_ms)
        except ControllerError as e:
            assert e.message and len(e.message) < 100_000
            return
        records = decision.records
        assert len(decision.happenings) <= HAPPENINGS_MAX, "few lines, however many records"
        written, told = written + len(records), told + len(decision.happenings)
        if isinstance(command, CLIENTS):
            identity = RequestIdentity(bytes(16), bytes(32), "anonymous", 0)
            records = (*records, outcome_of(cluster.image, identity, decision.reply, 8))
        if records:
            _check_written(cluster.image, records)
        cluster.fold(decision)
        following = decision.then
        steps += 1
        assert steps < 1_000, command
    assert bool(told) == bool(written) or isinstance(command, SILENT), "work is told with its last batch"
    cluster.check_laws()


def _check_written(image: MetadataImage, records: tuple[MetadataRecord, ...]) -> None:
    delta = MetadataDelta(image)
    for offset, record in enumerate(records, image.offset):
        delta.replay(record, offset)
    delta.finish(Provenance(image.offset + len(records), 1, 1)).check_invariants()
    try:
        batch = encode(
            encode_records(records), base_offset=image.offset, epoch=1, record_count=len(records), first_timestamp_ms=1,
            last_timestamp_ms=1, is_control=False, previous_chain=bytes(32),
        )  # fmt: skip
    except BatchTooLarge:
        return
    assert decode_batch(batch) == list(records)


@pytest.mark.slow
@pytest.mark.parametrize("make", CLUSTERS)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_commands_are_decided_or_refused(make: Callable[[], Cluster], data: st.DataObject) -> None:
    """One after the other, on one cluster: what the first has half done the second meets."""
    cluster = make()
    for _ in range(data.draw(st.integers(1, 3))):
        command = data.draw(commands(image_of(make)))
        check(cluster, command)
        cluster.now_ms += data.draw(st.sampled_from([0, 10, 2_000, 20_000]))
        due = cluster.controller.due(cluster.image, cluster.now_ms)
        if due is not None:
            check(cluster, due)
