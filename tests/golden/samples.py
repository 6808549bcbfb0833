"""One sample of every record type, and of a batch: what the golden files are made of. Values never change once committed."""

from metadata_log.format.batch import Batch, encode, genesis_chain
from metadata_log.format.codec import encode_records
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, encode_data, pack_records
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import (
    EXTERNAL_DATA_PLANE,
    FENCED_MODE,
    MAINTENANCE_MODE,
    NO_DATA_PLANE,
    NO_MODE,
    AbortTransaction,
    AccessControlEntry,
    BeginTransaction,
    BrokerMode,
    BrokerRegistrationChange,
    ClearElr,
    ClientQuota,
    ClientSession,
    Config,
    ConfigDefinition,
    DelegationToken,
    EndClientSession,
    Endpoint,
    EndTransaction,
    Entity,
    EntityKind,
    EpochFloor,
    EpochsRaised,
    FeatureLevel,
    FeatureRange,
    KRaftVersion,
    Label,
    LeaderChange,
    ListColumn,
    NoOp,
    Owner,
    Partition,
    PartitionChange,
    PartitionColumns,
    ProducerIds,
    QuotaEntity,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveConfigDefinition,
    RemoveDelegationToken,
    RemoveEntity,
    RemoveEntityKind,
    RemoveTopic,
    RemoveUserScramCredential,
    RequestOutcome,
    SkippedBatch,
    SnapshotFooter,
    SnapshotHeader,
    SnapshotMark,
    Topic,
    UnregisterBroker,
    UserScramCredential,
    Voter,
    Voters,
)

ID_A = bytes(range(16))
ID_B = bytes(range(16, 32))
ID_C = bytes(range(32, 48))
HASH = bytes(range(100, 132))
PLAIN = Endpoint("PLAINTEXT", "broker-1.example", 9092)
CONTROLLER = Endpoint("CONTROLLER", "10.0.0.1", 9093)

RECORDS: tuple[Record, ...] = (
    RegisterBroker(1, ID_A, (PLAIN,), (FeatureRange("metadata.version", 1, 3),), "rack-a", True, False, (ID_B, ID_C)),
    RegisterBroker(2, ID_B, (), (), None, False, True, (), broker_epoch=77),
    UnregisterBroker(1, 42),
    BrokerRegistrationChange(1, 42, fenced=False),
    BrokerRegistrationChange(1, 42, log_dirs=(ID_A,)),
    RegisterController(3, ID_A, (CONTROLLER, PLAIN), (FeatureRange("kraft.version", 0, 1),)),
    Topic("orders", ID_A),
    RemoveTopic("orders", ID_A),
    Partition(ID_A, 0, (1, 2, 3), (1, 2), (), (), 1, 0, 5, 9, (ID_A, ID_B, ID_C)),
    Partition(ID_A, 1, (1,), (1,), (1,), (2,), NO_LEADER, 1, 300, 70_000, (ID_A,), (1,), (3,)),
    PartitionChange(ID_A, 1, leader=NO_LEADER),
    PartitionChange(ID_A, 1, (1,), 1, (1, 2), (1,), (2,), 0, (ID_A, ID_B), (1,), ()),
    ClearElr("orders", ID_A),
    ClearElr(None, None),
    Config(2, "orders", "retention.ms", "604800000"),
    Config(4, "", "min.insync.replicas", None),
    FeatureLevel("metadata.version", 2),
    ClientQuota((QuotaEntity("client-id", None), QuotaEntity("user", "zoë")), "producer_byte_rate", 1024.5),
    ClientQuota((QuotaEntity("ip", "10.0.0.1"),), "connection_creation_rate", None),
    ProducerIds(1, 42, 5000),
    AccessControlEntry(ID_A, 2, "orders", 3, "User:alice", "*", 4, 3),
    RemoveAccessControlEntry(ID_A),
    UserScramCredential("alice", 1, b"salt", HASH, HASH[::-1], 4096),
    RemoveUserScramCredential("alice", 1),
    DelegationToken("token-1", "User:alice", "User:bob", ("User:carol",), 1, 2, 3),
    RemoveDelegationToken("token-1"),
    NoOp(),
    BeginTransaction("bootstrap"),
    EndTransaction(),
    AbortTransaction("leader changed"),
    LeaderChange(1, (1, 2, 3), (1, 3)),
    SnapshotHeader(1, 1234, 5, 1_700_000_000_000),
    SnapshotFooter(HASH, HASH[::-1], 99),
    KRaftVersion(1),
    Voters((Voter(1, ID_A, (CONTROLLER,)), Voter(2, ID_B, (), 0, 2))),
    SnapshotMark("bytes"),
    RequestOutcome(7, ID_A, HASH, "anonymous", 41, b"\x90"),
    RequestOutcome(8, ID_B, HASH, "CN=alice", 41, None, 1234),
    RegisterBroker(3, ID_C, (PLAIN,), (), None, False, False, (ID_A,), 78, NO_DATA_PLANE),
    BrokerRegistrationChange(1, 42, fenced=True, reason="session_ended", since_ms=1_700_000_000_000),
    RegisterBroker(
        4, ID_A, (PLAIN,), (), None, True, False, (ID_B,), 79, EXTERNAL_DATA_PLANE, "operator", 1_700_000_000_000
    ),
    BrokerMode(7, FENCED_MODE, "its disk is slow", 1_700_000_000_000),
    BrokerMode(8, MAINTENANCE_MODE),
    BrokerMode(7, NO_MODE),
    PartitionColumns(
        ID_A,
        5,
        2,
        HASH,
        (
            ListColumn(b"\x01\x03", b"\x02\x00\x65\x00\x66\x00\x67\x00\x66\x00\x67\x00\x65"),
            ListColumn(b"", b""),
            ListColumn(b"", b""),
            ListColumn(b"", b""),
            ListColumn(b"", b""),
            ListColumn(b"\x01\x01\x00", b"\x01\x65"),
            ListColumn(b"\x01\x03", b"\x01\x00\x01\x00\x00\x00\x01"),
        ),
        (b"\x01\x65\x66", b"", b"\x01\x07", b"\x02\x01\x00\x00\x09"),
        (ID_B, ID_C),
    ),
    SkippedBatch(40, 3, HASH, 38, 43),
    BrokerRegistrationChange(1, 42, fenced=True, reason="process_dead", since_ms=1_700_000_000_000, dead=True),
    RegisterBroker(5, ID_A, (PLAIN,), (), None, True, False, (ID_B,), 80, EXTERNAL_DATA_PLANE, "shut_down", 7, True),
    EpochFloor(524_289, 524_288_000_000_000),
    EpochsRaised(ID_A, 64, 250, 524_288_000_000_000),
    EntityKind("shard", '{"type": "object"}', 100_000, 64 << 20, 64 << 10),
    EntityKind("lock", "", 0, 0, 0),
    RemoveEntityKind("shard"),
    Entity("shard", "7/zoë", b"\x00value", None),
    Entity("lock", "backup", b"", Owner(ID_A, None, 40), 41),
    Entity("lock", "backup", b"", Owner(None, 7, 30), 41, 1234),
    RemoveEntity("lock", "backup"),
    ClientSession(ID_A, "worker-1", "CN=alice", 9_000),
    ClientSession(ID_B, "", "anonymous", 86_400_000, 40),
    EndClientSession(ID_A, 40, "expired"),
    ConfigDefinition(2, "acme.share", False, "decimal", "1", 0, None, (), "The share of a topic."),
    ConfigDefinition(4, "acme.colours.", True, "list", "", None, 3, ("red", "green")),
    RemoveConfigDefinition(2, "acme.share"),
    Label(2, "orders", -1, "team", "payments"),
    Label(2, "orders", 3, "acme.io/hot", ""),
    Label(4, "7", -1, "zone", None),
)


def sample_batches() -> list[Batch]:
    """A batch of data and a control batch after it, on the genesis of a sample cluster."""
    genesis = genesis_chain("sample-cluster", b"voters")
    data = encode(
        encode_records(RECORDS[6:8]),
        base_offset=0,
        epoch=3,
        record_count=2,
        first_timestamp_ms=1_700_000_000_000,
        last_timestamp_ms=1_700_000_000_000,
        is_control=False,
        previous_chain=genesis,
    )
    control = encode(
        encode_records([KRaftVersion(1)]),
        base_offset=2,
        epoch=4,
        record_count=1,
        first_timestamp_ms=1_700_000_000_001,
        last_timestamp_ms=1_700_000_000_001,
        is_control=True,
        previous_chain=data.chain,
    )
    return [data, control]


def late_batch() -> Batch:
    """A batch of an epoch that 32 bits do not hold, on the same genesis."""
    return encode(
        encode_records(RECORDS[6:8]),
        base_offset=5,
        epoch=(3 << 32) + 7,
        record_count=2,
        first_timestamp_ms=1_700_000_000_000,
        last_timestamp_ms=1_700_000_000_000,
        is_control=False,
        previous_chain=genesis_chain("sample-cluster", b"voters"),
    )


def data_batches() -> list[Batch]:
    """Two batches of a replicated partition: of an idempotent producer, and of another one."""
    records = pack_records(
        [
            DataRecord(1_700_000_000_007, b"key", b"value", (("trace", b"\x01\x02"), ("empty", None))),
            DataRecord(1_700_000_000_003, None, b""),
        ]
    )
    first = encode_data(
        records, ProducerStamp(7, 2, 40), base_offset=0, epoch=3, previous_chain=genesis_chain("sample/0", b"")
    )
    second = encode_data(
        pack_records([DataRecord(0, b"", None)]),
        NO_STAMP,
        base_offset=2,
        epoch=4,
        previous_chain=first.chain,
        previous_timestamp_ms=first.last_timestamp_ms,
    )
    return [first, second]
