"""The facts of every record in a metadata log of Kafka 3.7 to 4.2. `schema` says how to read them.

`tests/snapshots/kafka/make_facts.py` compares this file with the definitions in Kafka's own jars.
"""

from typing import Final

from snapshots.offline.kafka.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
    Struct,
)

_IDS: Final = Array(INT32)
_UUIDS: Final = Array(UUID)


def _broker_epoch() -> tuple[Field, Field]:
    return Field("brokerId", INT32), Field("brokerEpoch", INT64)


def _unset(name: str, array: Array, since: int, tag: int) -> Field:
    """Return a tagged field that is null if it was not written."""
    return Field(name, array, since=since, tag=tag, nullable=True, default=None)


_ENDPOINTS: Final = Array(
    Struct(
        (
            Field("name", STRING),
            Field("host", STRING),
            Field("port", UINT16),
            Field("securityProtocol", INT16),
        )
    )
)
_FEATURES: Final = Array(
    Struct(
        (
            Field("name", STRING),
            Field("minSupportedVersion", INT16),
            Field("maxSupportedVersion", INT16),
        )
    )
)
_SCRAM_USER: Final = (Field("name", STRING), Field("mechanism", INT8))
_OLD_FENCING: Final = (Field("id", INT32), Field("epoch", INT64))

_METADATA: Final[tuple[Message, ...]] = (
    Message(
        "RegisterBrokerRecord",
        0,
        3,
        (
            Field("brokerId", INT32),
            Field("isMigratingZkBroker", BOOL, since=2),
            Field("incarnationId", UUID),
            Field("brokerEpoch", INT64),
            Field("endPoints", _ENDPOINTS),
            Field("features", _FEATURES),
            Field("rack", STRING, nullable=True),
            Field("fenced", BOOL, default=True),
            Field("inControlledShutdown", BOOL, since=1),
            Field("logDirs", _UUIDS, since=3, tag=0),
        ),
    ),
    Message("UnregisterBrokerRecord", 1, 0, _broker_epoch()),
    Message("TopicRecord", 2, 0, (Field("name", STRING), Field("topicId", UUID))),
    Message(
        "PartitionRecord",
        3,
        2,
        (
            Field("partitionId", INT32, default=-1),
            Field("topicId", UUID),
            Field("replicas", _IDS),
            Field("isr", _IDS),
            Field("removingReplicas", _IDS),
            Field("addingReplicas", _IDS),
            Field("leader", INT32, default=-1),
            Field("leaderRecoveryState", INT8, tag=0),
            Field("leaderEpoch", INT32, default=-1),
            Field("partitionEpoch", INT32, default=-1),
            Field("directories", _UUIDS, since=1),
            _unset("eligibleLeaderReplicas", _IDS, 2, 1),
            _unset("lastKnownElr", _IDS, 2, 2),
        ),
    ),
    Message(
        "ConfigRecord",
        4,
        0,
        (
            Field("resourceType", INT8),
            Field("resourceName", STRING),
            Field("name", STRING),
            Field("value", STRING, nullable=True),
        ),
    ),
    Message(
        "PartitionChangeRecord",
        5,
        2,
        (
            Field("partitionId", INT32, default=-1),
            Field("topicId", UUID),
            _unset("isr", _IDS, 0, 0),
            Field("leader", INT32, tag=1, default=-2),
            _unset("replicas", _IDS, 0, 2),
            _unset("removingReplicas", _IDS, 0, 3),
            _unset("addingReplicas", _IDS, 0, 4),
            Field("leaderRecoveryState", INT8, tag=5, default=-1),
            _unset("directories", _UUIDS, 1, 8),
            _unset("eligibleLeaderReplicas", _IDS, 2, 6),
            _unset("lastKnownElr", _IDS, 2, 7),
        ),
    ),
    Message("FenceBrokerRecord", 7, 0, _OLD_FENCING),
    Message("UnfenceBrokerRecord", 8, 0, _OLD_FENCING),
    Message("RemoveTopicRecord", 9, 0, (Field("topicId", UUID),)),
    Message(
        "DelegationTokenRecord",
        10,
        0,
        (
            Field("owner", STRING),
            Field("requester", STRING),
            Field("renewers", Array(STRING)),
            Field("issueTimestamp", INT64),
            Field("maxTimestamp", INT64),
            Field("expirationTimestamp", INT64),
            Field("tokenId", STRING),
        ),
    ),
    Message(
        "UserScramCredentialRecord",
        11,
        0,
        (
            *_SCRAM_USER,
            Field("salt", BYTES),
            Field("storedKey", BYTES),
            Field("serverKey", BYTES),
            Field("iterations", INT32),
        ),
    ),
    Message("FeatureLevelRecord", 12, 0, (Field("name", STRING), Field("featureLevel", INT16))),
    Message(
        "ClientQuotaRecord",
        14,
        0,
        (
            Field("entity", Array(Struct((Field("entityType", STRING), Field("entityName", STRING, nullable=True))))),
            Field("key", STRING),
            Field("value", FLOAT64),
            Field("remove", BOOL),
        ),
    ),
    Message(
        "ProducerIdsRecord",
        15,
        0,
        (
            Field("brokerId", INT32),
            Field("brokerEpoch", INT64, default=-1),
            Field("nextProducerId", INT64),
        ),
    ),
    Message(
        "BrokerRegistrationChangeRecord",
        17,
        2,
        (
            *_broker_epoch(),
            Field("fenced", INT8, tag=0),
            Field("inControlledShutdown", INT8, since=1, tag=1),
            Field("logDirs", _UUIDS, since=2, tag=2),
        ),
    ),
    Message(
        "AccessControlEntryRecord",
        18,
        0,
        (
            Field("id", UUID),
            Field("resourceType", INT8),
            Field("resourceName", STRING),
            Field("patternType", INT8),
            Field("principal", STRING),
            Field("host", STRING),
            Field("operation", INT8),
            Field("permissionType", INT8),
        ),
    ),
    Message("RemoveAccessControlEntryRecord", 19, 0, (Field("id", UUID),)),
    Message("NoOpRecord", 20, 0, ()),
    Message("ZkMigrationStateRecord", 21, 0, (Field("zkMigrationState", INT8),)),
    Message("RemoveUserScramCredentialRecord", 22, 0, _SCRAM_USER),
    Message("BeginTransactionRecord", 23, 0, (Field("name", STRING, tag=0, nullable=True, default=None),)),
    Message("EndTransactionRecord", 24, 0, ()),
    Message("AbortTransactionRecord", 25, 0, (Field("reason", STRING, tag=0, nullable=True, default=None),)),
    Message("RemoveDelegationTokenRecord", 26, 0, (Field("tokenId", STRING),)),
    Message(
        "RegisterControllerRecord",
        27,
        0,
        (
            Field("controllerId", INT32),
            Field("incarnationId", UUID),
            Field("zkMigrationReady", BOOL),
            Field("endPoints", _ENDPOINTS),
            Field("features", _FEATURES),
        ),
    ),
    Message("ClearElrRecord", 28, 0, (Field("topicName", STRING),)),
)

_ONE_VOTER: Final = Struct((Field("voterId", INT32), Field("voterDirectoryId", UUID, since=1)))
_VERSION: Final = Field("version", INT16)

_CONTROL: Final[tuple[Message, ...]] = (
    Message(
        "LeaderChangeMessage",
        2,
        1,
        (
            _VERSION,
            Field("leaderId", INT32),
            Field("voters", Array(_ONE_VOTER)),
            Field("grantingVoters", Array(_ONE_VOTER)),
        ),
        is_control=True,
    ),
    Message("SnapshotHeaderRecord", 3, 0, (_VERSION, Field("lastContainedLogTimestamp", INT64)), is_control=True),
    Message("SnapshotFooterRecord", 4, 0, (_VERSION,), is_control=True),
    Message("KRaftVersionRecord", 5, 0, (_VERSION, Field("kRaftVersion", INT16)), is_control=True),
    Message(
        "VotersRecord",
        6,
        0,
        (
            _VERSION,
            Field(
                "voters",
                Array(
                    Struct(
                        (
                            Field("voterId", INT32),
                            Field("voterDirectoryId", UUID),
                            Field(
                                "endpoints",
                                Array(Struct((Field("name", STRING), Field("host", STRING), Field("port", UINT16)))),
                            ),
                            Field(
                                "kRaftVersionFeature",
                                Struct((Field("minSupportedVersion", INT16), Field("maxSupportedVersion", INT16))),
                            ),
                        )
                    )
                ),
            ),
        ),
        is_control=True,
    ),
)

METADATA: Final[dict[int, Message]] = {message.key: message for message in _METADATA}
"""The records of the metadata, by the number of their type (Kafka's "api key")."""
CONTROL: Final[dict[int, Message]] = {message.key: message for message in _CONTROL}
"""The records of the quorum itself, by the number of their type."""
