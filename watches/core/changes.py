"""Changes: what each record of the log says, and about which subject.

A record of the log leaves some fields to replay: the epoch of a broker or of a session, and the version of an entity, are the
offset of the record. A change has these fields filled in, so that a change and the state that a RESET shows later are equal
values. Example: at offset 40 the log has Entity("lock", "a", b"x", created -1, version -1).
    1. the change at 40 is Entity("lock", "a", b"x", created 40, version 40), about the entity ("lock", "a");
    2. the image at 41 has the same record, so a RESET at 41 shows the same record.

*Not shown* are the records of the quorum itself (voters, leaders, marks), the markers of transactions, and the answers to
requests that the log remembers. *Never shown* are credentials of users and delegation tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from metadata_log.format.codec import UnknownRecord
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import (
    BROKER_RESOURCE,
    FROM_OFFSET,
    TOPIC_RESOURCE,
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
    EndTransaction,
    Entity,
    EntityKind,
    EpochFloor,
    EpochsRaised,
    FeatureLevel,
    Label,
    NoOp,
    Partition,
    PartitionChange,
    PartitionColumns,
    ProducerIds,
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
    Topic,
    UnregisterBroker,
    UserScramCredential,
)
from watches.core.filters import OTHER, SESSION, Area, Subject

TopicName = Callable[[Uuid], str]
"""Returns the name of a topic that exists, or existed in the stretch of the log that is read."""


class Change(NamedTuple):
    """One record that a watch may show."""

    offset: Offset
    """The offset of the record; in a state FROM_OFFSET."""
    subject: Subject
    record: Record


def _broker(record: Any, _: TopicName) -> Subject:
    return Subject(Area.BROKER, str(record.broker_id))


def _topic(record: Any, _: TopicName) -> Subject:
    return Subject(Area.TOPIC, record.name)


def _by_topic_id(record: Any, name_of: TopicName) -> Subject:
    return Subject(Area.TOPIC, name_of(record.topic_id))


def _elr(record: ClearElr, name_of: TopicName) -> Subject:
    if record.topic_name is not None or record.topic_id is None:
        return Subject(Area.TOPIC, record.topic_name or "")
    return Subject(Area.TOPIC, name_of(record.topic_id))


def _resource(record: Config | Label, _: TopicName) -> Subject:
    if record.resource_type == TOPIC_RESOURCE:
        return Subject(Area.TOPIC, record.resource_name)
    return Subject(Area.BROKER, record.resource_name) if record.resource_type == BROKER_RESOURCE else OTHER


def _entity(record: Any, _: TopicName) -> Subject:
    return Subject(Area.ENTITY, record.name, record.kind)


def _session(_: Any, __: TopicName) -> Subject:
    return SESSION


def _other(_: Any, __: TopicName) -> Subject:
    return OTHER


SUBJECTS: Final[dict[type, Callable[[Any, TopicName], Subject]]] = {
    Topic: _topic,
    RemoveTopic: _topic,
    Partition: _by_topic_id,
    PartitionChange: _by_topic_id,
    EpochsRaised: _by_topic_id,
    ClearElr: _elr,
    Config: _resource,
    Label: _resource,
    RegisterBroker: _broker,
    UnregisterBroker: _broker,
    BrokerRegistrationChange: _broker,
    BrokerMode: _broker,
    Entity: _entity,
    RemoveEntity: _entity,
    ClientSession: _session,
    EndClientSession: _session,
    EntityKind: _other,
    RemoveEntityKind: _other,
    RegisterController: _other,
    FeatureLevel: _other,
    ClientQuota: _other,
    ProducerIds: _other,
    AccessControlEntry: _other,
    RemoveAccessControlEntry: _other,
    EpochFloor: _other,
    ConfigDefinition: _other,
    RemoveConfigDefinition: _other,
}
"""The records that a watch may show, and the function that returns the subject."""

HIDDEN: Final = frozenset(
    (
        UserScramCredential,
        RemoveUserScramCredential,
        DelegationToken,
        RemoveDelegationToken,
        RequestOutcome,
        PartitionColumns,
        BeginTransaction,
        EndTransaction,
        AbortTransaction,
        NoOp,
    )
)
"""The records of the image that no watch shows."""


def changes_of(
    records: Iterable[Record | UnknownRecord],
    base_offset: Offset,
    name_of: TopicName,
    hides: Callable[[Offset], bool],
) -> Iterator[Change]:
    """Return the changes of the records of one batch, in order, without records that `hides` names: they had no effect, and a
    topic that they create has no name."""
    for offset, record in enumerate(records, base_offset):
        about = SUBJECTS.get(type(record))
        if about is not None and not hides(offset):
            assert not isinstance(record, UnknownRecord)
            yield Change(offset, about(record, name_of), filled_in(record, offset))


def state_change(record: Record, name_of: TopicName) -> Change | None:
    """Return a canonical record as a piece of a state; None if no watch shows it."""
    about = SUBJECTS.get(type(record))
    return None if about is None else Change(FROM_OFFSET, about(record, name_of), record)


def filled_in(record: Record, offset: Offset) -> Record:
    """Return the record at `offset` with the fields that replay fills in."""
    match record:
        case Entity():
            created = offset if record.created == FROM_OFFSET else record.created
            return record._replace(created=created, version=offset)
        case RegisterBroker() if record.broker_epoch == FROM_OFFSET:
            return record._replace(broker_epoch=offset)
        case ClientSession() if record.epoch == FROM_OFFSET:
            return record._replace(epoch=offset)
    return record
