"""One record of Kafka as one record of ours.

The types of both systems have the same numbers and meanings, so most rows of `_FORMS` rename fields. The others:

    brokerEpoch             Kafka: the end of the log when the leader decided. Ours: the offset of the registration. Both differ
                            if the registration is not the first record of its batch, so `BrokerEpochs` translates.
    RemoveTopicRecord       has only the topic's id; ours has the name too, so the transcriber knows the names of all topics.
    metadata.version        Kafka's levels are others than ours: the feature is called `kafka.metadata.version` here.
    PartitionRecord v0      has no directories. Kafka reads MIGRATING for each replica, and so does the transcription.
    ProducerIdsRecord       a snapshot of Kafka forgets who asked for the block, so the transcription of a log forgets it too.

A record without a counterpart becomes a `NoOp`, and is listed in `left`. Example:
  1. Offset 6 has a ZkMigrationStateRecord: the transcription has NoOp at 6, and `left` has the type, the number 1, and offset 6.
  2. Offset 264 has a PartitionChangeRecord, and 265, in the same batch, a RegisterBrokerRecord of broker 2 with epoch 264.
  3. The transcription registers broker 2 with epoch 265. When Kafka unfences broker 2 of epoch 264, ours unfences 2 of epoch 265.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from metadata_log.format.ids import NO_LEADER, NodeId, Offset, Uuid
from metadata_log.format.records import (
    METADATA_VERSION,
    AbortTransaction,
    AccessControlEntry,
    BeginTransaction,
    BrokerRegistrationChange,
    ClearElr,
    ClientQuota,
    Config,
    DelegationToken,
    Endpoint,
    EndTransaction,
    FeatureLevel,
    FeatureRange,
    KRaftVersion,
    LeaderChange,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    QuotaEntity,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveDelegationToken,
    RemoveTopic,
    RemoveUserScramCredential,
    Topic,
    UnregisterBroker,
    UserScramCredential,
    Voter,
    Voters,
)
from snapshots.offline.kafka.messages import Fields, unknown_tags
from snapshots.offline.kafka.records import Placed, UnknownRecord
from snapshots.offline.kafka.records import Record as KafkaRecord
from snapshots.offline.kafka.transcribe.left_out import Tally

KAFKA_METADATA_VERSION: Final = "kafka.metadata.version"
"""The name of Kafka's feature metadata.version in a transcription."""
MIGRATING_DIRECTORY: Final[Uuid] = bytes(15) + b"\x02"
"""Kafka's id for the directory of a replica that was placed before directories had ids (DirectoryId.MIGRATING)."""
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1
UNKNOWN: Final = "a record of a later Kafka, whose meaning this release does not know"
UNKNOWN_FIELD: Final = "a field of a later Kafka, whose meaning this release does not know"
ZOOKEEPER: Final = "there is no ZooKeeper here"
PROTOCOL: Final = (
    "an endpoint here has a listener's name, a host and a port; the brokers' own settings name the protocol"
)
_NOBODY: Final = -1
REGISTERED: Final = "registered"
CAUGHT_UP: Final = "caught_up"
STOPPING: Final = "stopping"
SHUT_DOWN: Final = "shut_down"
SESSION_ENDED: Final = "session_ended"
"""Reasons of a broker's state, with the words of our own controllers."""


class BrokerEpochs:
    """Kafka's broker epochs, and those of the transcription."""

    def __init__(self) -> None:
        self._ours: dict[tuple[NodeId, int], Offset] = {}
        self._now: dict[NodeId, tuple[Uuid, int]] = {}
        """Broker -> incarnation and Kafka's epoch of its registration."""

    def registered(self, fields: Fields, base_offset: Offset, offset: Offset) -> int:
        """Return our epoch for a registration at `offset`, whose batch begins at `base_offset`.

        An epoch that Kafka could not have given stays as it is, so the strict replay reports it.
        """
        broker_id, incarnation, epoch = fields["brokerId"], fields["incarnationId"], fields["brokerEpoch"]
        is_again = self._now.get(broker_id) == (incarnation, epoch)
        if not is_again and base_offset <= epoch <= offset:
            self._ours[broker_id, epoch] = offset
        self._now[broker_id] = (incarnation, epoch)
        return self.of(broker_id, epoch)

    def of(self, broker_id: NodeId, epoch: int) -> int:
        """Return our epoch for Kafka's epoch."""
        return self._ours.get((broker_id, epoch), epoch)


class Transcriber:
    """Transcribes the records of one history, in order: of a snapshot first, if the log begins with one, then of the log.

    `with_reasons` fills in why a broker is in its state, as far as Kafka's log tells: a broker that is fenced during its
    controlled shutdown has shut down, and any other one was silent for a session. Kafka's snapshots do not know reasons, so a
    transcription with reasons cannot be compared with them.
    """

    def __init__(self, *, with_reasons: bool = False) -> None:
        self._with_reasons = with_reasons
        self._stopping: set[NodeId] = set()
        self.left = Tally()
        self.epochs = BrokerEpochs()
        self.topics: dict[Uuid, str] = {}
        """The names of all topics so far."""

    def beside(self) -> "Transcriber":
        """Return a transcriber for a snapshot that lies beside the log which this transcriber has read."""
        other = Transcriber()
        other.epochs = self.epochs
        return other

    def record(self, placed: Placed, base_offset: Offset | None = None) -> Record:
        """Return the record of ours that stands for a record of Kafka. `base_offset`: where its batch begins; None in a
        snapshot.
        """
        record, offset = placed.record, placed.offset
        if isinstance(record, UnknownRecord):
            self.left.add(record.name, offset, UNKNOWN)
            return NoOp()
        for tag in unknown_tags(record.fields):
            self.left.add(f"{record.name}, tag {tag}", offset, UNKNOWN_FIELD)
        if record.name == "RegisterBrokerRecord":
            return self._registration(record, offset, base_offset)
        form = _FORMS.get(record.name)
        if form is None:
            self.left.add(record.name, offset, ZOOKEEPER)
            return NoOp()
        return form(self, record.fields, offset)

    def _registration(self, record: KafkaRecord, offset: Offset, base_offset: Offset | None) -> RegisterBroker:
        fields = record.fields
        broker_id = fields["brokerId"]
        if fields["isMigratingZkBroker"]:
            self.left.add("RegisterBrokerRecord.isMigratingZkBroker", offset, ZOOKEEPER)
        if base_offset is None:
            epoch = self.epochs.of(broker_id, fields["brokerEpoch"])
        else:
            epoch = self.epochs.registered(fields, base_offset, offset)
        return RegisterBroker(
            broker_id,
            fields["incarnationId"],
            self._endpoints(record.name, fields, offset),
            _features(fields),
            fields["rack"],
            fields["fenced"],
            fields["inControlledShutdown"],
            tuple(sorted(fields["logDirs"])),
            epoch,
            reason=self._reason(broker_id, REGISTERED if fields["fenced"] and base_offset is not None else ""),
        )

    def _reason(self, broker_id: NodeId, reason: str) -> str:
        if reason == STOPPING:
            self._stopping.add(broker_id)
        elif reason:
            self._stopping.discard(broker_id)
        return reason if self._with_reasons else ""

    def _change(
        self, broker_id: NodeId, epoch: int, *, fenced: bool | None, stops: bool = False
    ) -> BrokerRegistrationChange:
        why = STOPPING if stops else ""
        if fenced is not None:
            is_in_order = stops or broker_id in self._stopping
            why = (SHUT_DOWN if is_in_order else SESSION_ENDED) if fenced else CAUGHT_UP
        return BrokerRegistrationChange(
            broker_id,
            self.epochs.of(broker_id, epoch),
            fenced=fenced,
            in_controlled_shutdown=True if stops else None,
            reason=self._reason(broker_id, why),
        )

    def _endpoints(self, name: str, fields: Fields, offset: Offset) -> tuple[Endpoint, ...]:
        """Return the endpoints by name: Kafka's snapshots do not keep their order."""
        if any(each["securityProtocol"] for each in fields["endPoints"]):
            self.left.add(f"{name}.endPoints.securityProtocol", offset, PROTOCOL)
        return tuple(sorted(Endpoint(each["name"], each["host"], each["port"]) for each in fields["endPoints"]))

    # --- the forms that are more than new names ---

    def _controller(self, fields: Fields, offset: Offset) -> Record:
        endpoints = self._endpoints("RegisterControllerRecord", fields, offset)
        return RegisterController(fields["controllerId"], fields["incarnationId"], endpoints, _features(fields))

    def _broker_change(self, fields: Fields, offset: Offset) -> Record:
        fenced = {1: True, -1: False}.get(fields["fenced"])
        stops = bool(fields["inControlledShutdown"])
        change = self._change(fields["brokerId"], fields["brokerEpoch"], fenced=fenced, stops=stops)
        return change._replace(log_dirs=tuple(sorted(fields["logDirs"])) or None)

    def _fence(self, fields: Fields, offset: Offset) -> Record:
        return self._change(fields["id"], fields["epoch"], fenced=True)

    def _unfence(self, fields: Fields, offset: Offset) -> Record:
        return self._change(fields["id"], fields["epoch"], fenced=False)

    def _unregistration(self, fields: Fields, offset: Offset) -> Record:
        return UnregisterBroker(fields["brokerId"], self.epochs.of(fields["brokerId"], fields["brokerEpoch"]))

    def _topic(self, fields: Fields, offset: Offset) -> Record:
        self.topics[fields["topicId"]] = fields["name"]
        return Topic(fields["name"], fields["topicId"])

    def _removed_topic(self, fields: Fields, offset: Offset) -> Record:
        return RemoveTopic(self.topics.get(fields["topicId"], ""), fields["topicId"])

    def _voters(self, fields: Fields, offset: Offset) -> Record:
        voters = (
            Voter(
                each["voterId"],
                each["voterDirectoryId"],
                tuple(Endpoint(end["name"], end["host"], end["port"]) for end in each["endpoints"]),
                each["kRaftVersionFeature"]["minSupportedVersion"],
                each["kRaftVersionFeature"]["maxSupportedVersion"],
            )
            for each in fields["voters"]
        )
        return Voters(tuple(sorted(voters)))


_Form: TypeAlias = Callable[[Transcriber, Fields, Offset], Record]


def _features(fields: Fields) -> tuple[FeatureRange, ...]:
    return tuple(
        sorted(
            FeatureRange(each["name"], each["minSupportedVersion"], each["maxSupportedVersion"])
            for each in fields["features"]
        )
    )


def _partition(fields: Fields) -> Partition:
    replicas = fields["replicas"]
    return Partition(
        fields["topicId"],
        fields["partitionId"],
        replicas,
        fields["isr"],
        fields["removingReplicas"],
        fields["addingReplicas"],
        fields["leader"],
        fields["leaderRecoveryState"],
        fields["leaderEpoch"],
        fields["partitionEpoch"],
        fields["directories"] or (MIGRATING_DIRECTORY,) * len(replicas),
        fields["eligibleLeaderReplicas"] or (),
        fields["lastKnownElr"] or (),
    )


def _partition_change(fields: Fields) -> PartitionChange:
    leader, recovery = fields["leader"], fields["leaderRecoveryState"]
    return PartitionChange(
        fields["topicId"],
        fields["partitionId"],
        fields["isr"],
        None if leader == NO_LEADER_CHANGE else leader,
        fields["replicas"],
        fields["removingReplicas"],
        fields["addingReplicas"],
        None if recovery == NO_RECOVERY_CHANGE else recovery,
        fields["directories"] or None,
        fields["eligibleLeaderReplicas"],
        fields["lastKnownElr"],
    )


def _feature_level(fields: Fields) -> FeatureLevel:
    name = fields["name"]
    return FeatureLevel(KAFKA_METADATA_VERSION if name == METADATA_VERSION else name, fields["featureLevel"])


def _quota(fields: Fields) -> ClientQuota:
    parts = sorted(fields["entity"], key=lambda each: str(each["entityType"]))
    entity = tuple(QuotaEntity(each["entityType"], each["entityName"]) for each in parts)
    return ClientQuota(entity, fields["key"], None if fields["remove"] else fields["value"])


def _token(fields: Fields) -> DelegationToken:
    return DelegationToken(
        fields["tokenId"],
        fields["owner"],
        fields["requester"],
        fields["renewers"],
        fields["issueTimestamp"],
        fields["expirationTimestamp"],
        fields["maxTimestamp"],
    )


def _credential(fields: Fields) -> UserScramCredential:
    return UserScramCredential(
        fields["name"],
        fields["mechanism"],
        fields["salt"],
        fields["storedKey"],
        fields["serverKey"],
        fields["iterations"],
    )


def _acl(fields: Fields) -> AccessControlEntry:
    return AccessControlEntry(
        fields["id"],
        fields["resourceType"],
        fields["resourceName"],
        fields["patternType"],
        fields["principal"],
        fields["host"],
        fields["operation"],
        fields["permissionType"],
    )


def _leader_change(fields: Fields) -> LeaderChange:
    return LeaderChange(
        fields["leaderId"],
        tuple(sorted(each["voterId"] for each in fields["voters"])),
        tuple(sorted(each["voterId"] for each in fields["grantingVoters"])),
    )


def _plain(form: Callable[[Fields], Record]) -> _Form:
    return lambda _transcriber, fields, _offset: form(fields)


_FORMS: Final[dict[str, _Form]] = {
    "UnregisterBrokerRecord": Transcriber._unregistration,
    "BrokerRegistrationChangeRecord": Transcriber._broker_change,
    "FenceBrokerRecord": Transcriber._fence,
    "UnfenceBrokerRecord": Transcriber._unfence,
    "RegisterControllerRecord": Transcriber._controller,
    "TopicRecord": Transcriber._topic,
    "RemoveTopicRecord": Transcriber._removed_topic,
    "VotersRecord": Transcriber._voters,
    "PartitionRecord": _plain(_partition),
    "PartitionChangeRecord": _plain(_partition_change),
    "ClearElrRecord": _plain(lambda f: ClearElr(f["topicName"] or None, None)),
    "ConfigRecord": _plain(lambda f: Config(f["resourceType"], f["resourceName"], f["name"], f["value"])),
    "FeatureLevelRecord": _plain(_feature_level),
    "ClientQuotaRecord": _plain(_quota),
    "ProducerIdsRecord": _plain(lambda f: ProducerIds(_NOBODY, _NOBODY, f["nextProducerId"])),
    "AccessControlEntryRecord": _plain(_acl),
    "RemoveAccessControlEntryRecord": _plain(lambda f: RemoveAccessControlEntry(f["id"])),
    "UserScramCredentialRecord": _plain(_credential),
    "RemoveUserScramCredentialRecord": _plain(lambda f: RemoveUserScramCredential(f["name"], f["mechanism"])),
    "DelegationTokenRecord": _plain(_token),
    "RemoveDelegationTokenRecord": _plain(lambda f: RemoveDelegationToken(f["tokenId"])),
    "NoOpRecord": _plain(lambda f: NoOp()),
    "BeginTransactionRecord": _plain(lambda f: BeginTransaction(f["name"] or "")),
    "EndTransactionRecord": _plain(lambda f: EndTransaction()),
    "AbortTransactionRecord": _plain(lambda f: AbortTransaction(f["reason"] or "")),
    "LeaderChangeMessage": _plain(_leader_change),
    "KRaftVersionRecord": _plain(lambda f: KRaftVersion(f["kRaftVersion"])),
}
"""The form of each type of record that has a counterpart, except registrations of brokers, which need their batch."""

assert NO_LEADER == -1, "as in Kafka"
