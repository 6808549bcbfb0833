"""Transactions: conditions, then operations, done as a whole or not at all.

    result = await client.transact(
        [version_is("shard", "7", 1_244), exists("lock", "a")],
        [PutEntity("shard", "7", b"broker 2"), CreateTopic("orders", partitions=12)],
    )

All conditions see the state before the transaction. A version only grows and no two writes share one, so `version_is` compares
the whole history of an entity. Example:

    1. Client 1 reads shard 7 at version 1,244. Client 2 writes shard 7, and writes the old value back; the version is 1,251.
    2. The transaction of client 1 with `version_is(..., 1_244)` does nothing. A compare of the value would have held.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, assert_never

from clients.entities.core.values import Entity, EntityOwner, Token, Version, offset_of


@dataclass(frozen=True, slots=True)
class Exists:
    """Holds if the entity exists; with `wanted` False: if it does not exist."""

    kind: str
    name: str
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class VersionIs:
    """Holds if the entity exists with this version."""

    kind: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class VersionAtMost:
    """Holds if the entity exists with this version or a lower one."""

    kind: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class ValueIs:
    """Holds if the entity exists with exactly this value."""

    kind: str
    name: str
    value: bytes


Condition: TypeAlias = Exists | VersionIs | VersionAtMost | ValueIs


def why_failed(condition: Condition, entity: Entity | None) -> str:
    """Says in words why a condition does not hold. `entity`: what is there."""
    name = f"{condition.kind} {condition.name}"
    if entity is None:
        return f"{name} does not exist{_expected(condition)}"
    match condition:
        case Exists():
            return f"{name} exists already (version {entity.version})"
        case VersionIs():
            return f"{name} has version {entity.version}, and not {condition.version}: somebody has written it"
        case VersionAtMost():
            return f"{name} has version {entity.version}, which is above {condition.version}"
        case ValueIs():
            return f"{name} has another value (version {entity.version})"
        case _:
            assert_never(condition)


def _expected(condition: Condition) -> str:
    """Says what was expected of an entity that does not exist."""
    match condition:
        case Exists():
            return ""
        case VersionIs():
            return f", and version {condition.version} was expected"
        case VersionAtMost():
            return f", and a version up to {condition.version} was expected"
        case ValueIs():
            return ", and a value was expected"
        case _:
            assert_never(condition)


def exists(kind: str, name: str) -> Condition:
    """The entity exists."""
    return Exists(kind, name)


def absent(kind: str, name: str) -> Condition:
    """The entity does not exist."""
    return Exists(kind, name, wanted=False)


def version_is(kind: str, name: str, version: Version) -> Condition:
    """The entity exists with this version: nobody has written it since."""
    return VersionIs(kind, name, offset_of(version))


def version_at_most(kind: str, name: str, version: Version) -> Condition:
    """The entity exists with this version or a lower one."""
    return VersionAtMost(kind, name, offset_of(version))


def value_is(kind: str, name: str, value: bytes) -> Condition:
    """The entity exists with exactly this value."""
    return ValueIs(kind, name, value)


@dataclass(frozen=True, slots=True)
class PutEntity:
    """Writes an entity."""

    kind: str
    name: str
    value: bytes
    owner: EntityOwner | None = None
    """The session that the entity belongs to from now on, for example `session.owner`."""
    ttl_ms: int = 0
    """The entity vanishes when it is not written again for so long (1,000 to 86,400,000 ms). 0: no limit."""
    keep_owner: bool = False
    """True: the owner stays as it is; the entity must exist."""


@dataclass(frozen=True, slots=True)
class DeleteEntity:
    """Deletes an entity. An entity that does not exist is no error."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Creates a topic. -1 stands for the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Deletes a topic."""

    name: str


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Sets and removes configs of one resource."""

    resource_type: int
    """`TOPIC_RESOURCE` or `BROKER_RESOURCE`."""
    name: str
    values: Mapping[str, str | None]
    """By key. None removes the key."""


Operation: TypeAlias = PutEntity | DeleteEntity | CreateTopic | DeleteTopic | AlterConfigs


class OperationResult(NamedTuple):
    """The result of one operation."""

    version: int
    """Of a put: the new version. Of a delete: the version that the entity had, or -1 if there was none. Otherwise -1."""
    topic_id: bytes = b""
    """Of a created topic."""


class FailedCondition(NamedTuple):
    """The first condition that did not hold. The conditions behind it were not compared."""

    place: int
    """Its place in the transaction, from 0."""
    entity: Entity | None
    """The entity as it is, without its value. None: it does not exist."""


@dataclass(frozen=True, slots=True)
class Transacted:
    """The outcome of a transaction. Nothing was done if `succeeded` is False."""

    succeeded: bool
    generation: int
    offset: int = -1
    """The end (exclusive) of the batch; -1: nothing had to be written."""
    results: tuple[OperationResult, ...] = ()
    """One for each operation, if the transaction succeeded."""
    failed: FailedCondition | None = None
    """The condition because of which nothing was done, with the entity as it is. None: the transaction succeeded."""

    def token(self, operation: int = 0) -> Token:
        """Returns the token of the write that this operation has made.

        Raises:
            ValueError: the transaction did nothing.
        """
        if self.failed is not None:
            there = "there is no such entity" if self.failed.entity is None else f"{self.failed.entity} is there"
            raise ValueError(
                f"no token: nothing was done, because condition {self.failed.place} did not hold: {there}; "
                "look at `succeeded` first"
            )
        return Token(self.generation, self.results[operation].version)
