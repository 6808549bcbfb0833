"""The limits of entities: of a kind, of an owner, and of the whole cluster.

A kind that is not declared has default limits, and so has a field of 0 in a declaration. A limit refuses growth alone. For
example an operator lowers `entities_max` of the kind "job" from 1,000 to 10 while 500 jobs exist. No job can be created then,
and every job can be overwritten, if it does not grow, and deleted.

A transaction is judged by its sum: a transaction that deletes ten jobs and creates ten others fits a full kind.
"""

from typing import Final, NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import ENTITY_VALUE_BYTES_MAX, OWNED_ENTITIES_MAX, Entity, EntityKind, Owner
from metadata_log.image.entity_index import UNUSED, KindUsage, size_of
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import ControllerError

KIND_ENTITIES_DEFAULT: Final = 100_000
KIND_BYTES_DEFAULT: Final = 64 << 20
VALUE_BYTES_DEFAULT: Final = 64 << 10
"""The limits of a kind whose declaration does not name others."""
ENTITIES_MAX: Final = 1_000_000
"""Maximum number of entities of the cluster."""
ENTITY_BYTES_MAX: Final = 256 << 20
"""Maximum size of all names and values of the cluster, in bytes."""
KINDS_MAX: Final = 1_000
"""Maximum number of kinds that are declared or have entities."""
SESSIONS_MAX: Final = 100_000
"""Maximum number of sessions of clients, with those of entities with a TTL."""


class KindLimits(NamedTuple):
    """The limits that hold for a kind."""

    entities: int
    bytes: int
    value_bytes: int


def limits_of(declared: EntityKind | None) -> KindLimits:
    """The limits of a kind; None: it is not declared."""
    if declared is None:
        return KindLimits(KIND_ENTITIES_DEFAULT, KIND_BYTES_DEFAULT, VALUE_BYTES_DEFAULT)
    return KindLimits(
        declared.entities_max or KIND_ENTITIES_DEFAULT,
        declared.bytes_max or KIND_BYTES_DEFAULT,
        min(declared.value_bytes_max or VALUE_BYTES_DEFAULT, ENTITY_VALUE_BYTES_MAX),
    )


class Growth:
    """How much a transaction adds to each kind, each owner and the cluster; negative where it takes away."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._of_kind: dict[str, list[int]] = {}
        self._of_owner: dict[Owner, int] = {}
        self.sessions = 0
        """How many sessions are opened, less those that are ended."""

    def exchange(self, old: Entity | None, new: Entity | None) -> None:
        """Counts that `new` takes the place of `old`; None: there is no entity before, or after."""
        for entity, sign in ((old, -1), (new, 1)):
            if entity is None:
                continue
            grown = self._of_kind.setdefault(entity.kind, [0, 0])
            grown[0] += sign
            grown[1] += sign * size_of(entity)
            if entity.owner is not None:
                self._of_owner[entity.owner] = self._of_owner.get(entity.owner, 0) + sign

    def check(self) -> None:
        """Raises ControllerError(POLICY_VIOLATION): something would grow beyond its limit; nothing was done."""
        image = self._image
        for kind, (count, size) in self._of_kind.items():
            used: KindUsage = image.kind_usage.get(kind, UNUSED)
            limits = limits_of(image.entity_kinds.get(kind))
            _check(f"entities of kind {kind}", used.entity_count, count, limits.entities)
            _check(f"bytes of kind {kind}", used.byte_count, size, limits.bytes)
        for owner, count in self._of_owner.items():
            _check("entities of this owner", len(image.owned.get(owner, ())), count, OWNED_ENTITIES_MAX)
        new_kinds = sum(kind not in image.kind_usage and kind not in image.entity_kinds for kind in self._of_kind)
        check_kinds(image, new_kinds)
        _check("entities", len(image.entities), sum(count for count, _ in self._of_kind.values()), ENTITIES_MAX)
        _check(
            "bytes of entities", image.entity_bytes, sum(size for _, size in self._of_kind.values()), ENTITY_BYTES_MAX
        )
        _check("sessions", len(image.client_sessions), self.sessions, SESSIONS_MAX)


def check_kinds(image: MetadataImage, new: int) -> None:
    """Raises ControllerError(POLICY_VIOLATION): too many kinds would be declared or have entities."""
    if new:
        undeclared = sum(kind not in image.entity_kinds for kind in image.kind_usage)
        _check("kinds", len(image.entity_kinds) + undeclared, new, KINDS_MAX)


def _check(what: str, now: int, growth: int, limit: int) -> None:
    if growth > 0 and now + growth > limit:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request adds {growth:,} {what} to {now:,}, and the limit is {limit:,}; nothing was done",
        )


def check_sessions(image: MetadataImage, opened: int) -> None:
    """Raises ControllerError(POLICY_VIOLATION): the cluster has too many sessions."""
    _check("sessions", len(image.client_sessions), opened, SESSIONS_MAX)
