"""The values that a program reads and compares: tokens, owners, entities.

A token orders the writes of a cluster, and stays ordered when `quorum recover` cuts the log. Example:

    1. The lock of a job is held under the token (0, 1,200). The majority is lost for good, and the log ends at 1,100 now.
    2. `quorum recover` begins generation 1. The next holder's write has offset 1,150, so its token is (1, 1,150).
    3. A disk that saw (1, 1,150) refuses the former holder's (0, 1,200), although 1,200 is the greater offset.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias


class Token(NamedTuple):
    """A fencing token: compared by generation, then by offset."""

    generation: int
    """The generation of the cluster. `quorum recover` raises it."""
    offset: int
    """The offset of a write in the log of the cluster."""

    def __str__(self) -> str:
        return f"{self.generation}:{self.offset}"


Version: TypeAlias = int | Token
"""The version of an entity: the offset of its last write, as a number or in a token."""


def offset_of(version: Version) -> int:
    """Returns the offset of a version."""
    return version.offset if isinstance(version, Token) else version


class EntityOwner(NamedTuple):
    """The session that an ephemeral entity belongs to: a client's (`session_id`) or a broker's (`broker_id`)."""

    session_id: bytes | None
    """16 bytes; None: the owner is a broker."""
    broker_id: int | None
    epoch: int
    """The epoch of the session: the offset at which the session was opened."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A named value."""

    kind: str
    name: str
    value: bytes
    """Empty in lists of names."""
    version: int
    """The offset of the last write."""
    created: int
    """The offset of the write that created the entity."""
    owner: EntityOwner | None = None
    """The session with which the entity vanishes. None: the entity stays until it is deleted."""
    generation: int = 0
    """The generation of the cluster when the entity was read."""

    @property
    def token(self) -> Token:
        """The last write."""
        return Token(self.generation, self.version)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, init=False)
class KindLimits:
    """The declaration of a kind. A limit of 0 stands for the cluster's default."""

    kind: str
    schema: str
    """A JSON Schema (draft 2020-12) that each value must meet. "": values are any bytes."""
    entities_max: int
    """Maximum number of entities."""
    bytes_max: int
    """Maximum size of all names and values together."""
    value_bytes_max: int
    """Maximum size of one value."""

    def __init__(
        self,
        kind: str,
        schema: str | Mapping[str, Any] = "",
        entities_max: int = 0,
        bytes_max: int = 0,
        value_bytes_max: int = 0,
    ) -> None:
        """`schema`: the text, or the object that `json.loads` makes of it.

        Raises:
            TypeError: the schema is neither.
        """
        fields = (kind, _text_of(schema), entities_max, bytes_max, value_bytes_max)
        for name, value in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, value)


def _text_of(schema: object) -> str:
    """Returns the text of a schema."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        raise TypeError(f"a schema is a JSON text or an object, not {schema!r:.80}; nothing was done")
    try:
        return json.dumps(dict(schema))
    except TypeError as e:
        raise TypeError(f"a schema is a JSON text or an object of JSON values: {e}; nothing was done") from e


@dataclass(frozen=True, slots=True)
class DescribedKind:
    """A kind with the limits that hold, and with its use."""

    limits: KindLimits
    is_declared: bool
    """False: the limits are the defaults."""
    entity_count: int
    byte_count: int
    """The size of all names and values."""


@dataclass(frozen=True, slots=True)
class SessionListing:
    """An open session of a client, as a list shows it."""

    session_id: bytes
    name: str
    principal: str
    """The principal that opened the session."""
    timeout_ms: int
    epoch: int
    entity_count: int
    """How many ephemeral entities the session owns."""
