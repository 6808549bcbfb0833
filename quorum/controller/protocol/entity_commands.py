"""The commands about entities, kinds and sessions of clients, and their replies.

A version is the offset of a record. The controller does not know this offset when it decides, so a reply has *places*: the
place of a record in its batch. `TransactReply.placed` makes versions of them. Example: a transaction of three puts is
appended at 500. The places are 0, 1 and 2, so the versions are 500, 501 and 502.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self, TypeAlias, cast

import msgpack

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import ZERO_UUID, Offset, Uuid
from metadata_log.format.records import FROM_OFFSET, Entity, EntityKind, Owner
from quorum.controller.protocol.config_commands import ConfigAlteration
from quorum.controller.protocol.replies import NOT_APPENDED
from quorum.controller.protocol.topic_commands import NewTopic

ENTITIES_LEVEL: Final = 3
"""The level of metadata.version from which on there are entities and sessions of clients."""
OPERATIONS_MAX: Final = 128
"""Maximum number of operations, and of conditions, of one transaction."""
CREATED_TOPICS_MAX: Final = 100
"""Maximum number of topics that one transaction creates: the remembered outcome has 2 KiB, and each topic id 16 bytes."""
KIND_CHANGES_MAX: Final = 100
"""Maximum number of kinds that one request declares or removes."""
NO_VERSION: Final[Offset] = -1
"""The version of an entity that does not exist."""


# --- transactions --------------------------------------------------------------------------------------------------


def operation_place(index: int, count: int) -> str:
    """The begin of an error text about the operation at `index` of `count`. One operation alone needs no place."""
    return "" if count == 1 else f"operation {index}: "


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for an entity before a transaction; exactly one of the four is set."""

    entity: EntityName
    exists: bool | None = None
    version: Offset | None = None
    version_at_most: Offset | None = None
    value: bytes | None = None

    def holds(self, found: Entity | None) -> bool:
        """True if the condition holds for the entity as it is; None: there is no such entity."""
        if self.exists is not None:
            return self.exists is (found is not None)
        if found is None:
            return False
        if self.version is not None:
            return found.version == self.version
        if self.version_at_most is not None:
            return found.version <= self.version_at_most
        return found.value == self.value


@dataclass(frozen=True, slots=True)
class PutEntity:
    """Write an entity. At most one of `owner`, `ttl_ms` and `keep_owner` is set; none: the entity has no owner."""

    entity: EntityName
    value: bytes
    owner: Owner | None = None
    ttl_ms: int = 0
    keep_owner: bool = False


@dataclass(frozen=True, slots=True)
class DeleteEntity:
    """Delete an entity; nothing if there is none."""

    entity: EntityName


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete the topic of this name."""

    name: str


Operation: TypeAlias = PutEntity | DeleteEntity | NewTopic | DeleteTopic | ConfigAlteration


@dataclass(frozen=True, slots=True)
class Transact:
    """Do all operations in one batch if all conditions hold, and nothing otherwise."""

    conditions: tuple[Condition, ...]
    operations: tuple[Operation, ...]


class FailedCondition(NamedTuple):
    """The first condition that did not hold, by its place in the request, and the entity as it is."""

    number: int
    entity: Entity | None


class OperationResult(NamedTuple):
    """What one operation has done. `place`: the place of the record of a put in the batch, while the version is not known."""

    version: Offset = NO_VERSION
    topic_id: Uuid = ZERO_UUID
    place: int = -1

    def placed(self, base_offset: Offset) -> Self:
        """The result, given that the batch begins at `base_offset`."""
        return self if self.place < 0 else self._replace(version=base_offset + self.place, place=-1)


@dataclass(frozen=True, slots=True)
class TransactReply:
    """The answer: `failed`, or the results of all operations. `record_count` is the number of records before the outcome."""

    offset: Offset = NOT_APPENDED
    failed: FailedCondition | None = None
    operations: tuple[OperationResult, ...] = ()
    record_count: int = 0

    def placed(self, base_offset: Offset) -> Self:
        """The reply with the versions of the puts, given that the batch begins at `base_offset`."""
        return replace(self, operations=tuple([each.placed(base_offset) for each in self.operations]))


# --- kinds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlterKinds:
    """Declare kinds, or declare them anew, and remove declarations: all of it, or nothing."""

    declare: tuple[EntityKind, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterKindsReply:
    offset: Offset = NOT_APPENDED


# --- sessions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a session; an open session of this id stays as it is. `principal` is the client."""

    session_id: Uuid
    name: str
    principal: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class OpenSessionReply:
    """`epoch` is the offset of the session's record; FROM_OFFSET until the batch has its place in the log."""

    offset: Offset = NOT_APPENDED
    epoch: Offset = FROM_OFFSET
    timeout_ms: int = 0

    def placed(self, base_offset: Offset) -> Self:
        """The reply with the epoch, given that the batch begins at `base_offset`: the session is its first record."""
        return replace(self, epoch=base_offset) if self.epoch == FROM_OFFSET else self


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End a session, with its entities; nothing if it has ended."""

    session_id: Uuid
    epoch: Offset


@dataclass(frozen=True, slots=True)
class CloseSessionReply:
    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class EndExpiredSessions:
    """End some of the sessions of clients that have expired, with their entities; nothing if none has."""


# --- remembered replies --------------------------------------------------------------------------------------------


def packed_transaction(reply: TransactReply) -> bytes:
    """The results of a transaction for its remembered outcome: at most 2 KiB for 128 operations.

    The first element has the ids of all created topics, the others have one number for each operation: how far in front of the
    outcome the record of a put stands, or the version that a deleted entity had.
    """
    numbers = [
        reply.record_count - each.place if each.place >= 0 else each.version
        for each in reply.operations
        if each.topic_id == ZERO_UUID
    ]
    ids = b"".join([each.topic_id for each in reply.operations if each.topic_id != ZERO_UUID])
    return cast(bytes, msgpack.packb([ids, *numbers]))


def unpacked_transaction(command: Transact, packed: bytes, outcome_offset: Offset) -> tuple[OperationResult, ...]:
    """The results of a transaction whose outcome stands at `outcome_offset`."""
    ids, *numbers = msgpack.unpackb(packed)
    next_id, number = _ids(ids), iter(numbers)
    found: list[OperationResult] = []
    for operation in command.operations:
        if isinstance(operation, NewTopic):
            found.append(OperationResult(topic_id=next(next_id)))
        elif isinstance(operation, PutEntity):
            found.append(OperationResult(outcome_offset - next(number)))
        else:
            found.append(OperationResult(next(number)))
    return tuple(found)


def _ids(joined: bytes) -> Iterator[Uuid]:
    size = len(ZERO_UUID)
    return (joined[begin : begin + size] for begin in range(0, len(joined), size))


def packed_session(reply: OpenSessionReply) -> bytes:
    """The epoch and the timeout of a session for the remembered outcome of its opening. The outcome stands behind the session."""
    return cast(bytes, msgpack.packb([reply.epoch, reply.timeout_ms]))


def unpacked_session(packed: bytes, outcome_offset: Offset) -> OpenSessionReply:
    """The reply to the opening of a session whose outcome stands at `outcome_offset`."""
    epoch, timeout_ms = msgpack.unpackb(packed)
    return OpenSessionReply(outcome_offset + 1, outcome_offset - 1 if epoch == FROM_OFFSET else epoch, timeout_ms)
