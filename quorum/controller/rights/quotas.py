"""Client quotas: which entities and keys there are, and alterations (Kafka's ClientQuotaControlManager, KIP-546).

An *entity* is a user, a client id, a user with a client id, or an address. The name None is the default: of all users, of all
client ids, of all addresses. metaquorum keeps the quotas; the system that embeds the agent holds its clients to them.

The operations on one entity take effect together or not at all. The entities of one request are independent of each other. An
operation that changes nothing writes nothing.

Example. A request sets `producer_byte_rate` of user alice to 1,000,000, and of address 10.0.0.1 to 5.
    1  The image has no quota of alice: the decision has the record ClientQuota((user alice), producer_byte_rate, 1,000,000).
    2  An address has no such key: this entity gets INVALID_REQUEST in its own result, and alice's record is written.
    3  The client sends the request again. Alice has this value already: the decision has no record.
"""

import math
from collections import Counter
from typing import Final, NamedTuple

from metadata_log.format.records import ClientQuota, MetadataRecord, QuotaEntity
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.happenings import ClientQuotasChanged, first_few
from quorum.controller.protocol.rights.quota_commands import (
    AlterClientQuotas,
    AlterClientQuotasReply,
    QuotaAlteration,
    QuotaResult,
)
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.rights.limits import check_cluster, check_request
from quorum.controller.rights.names import SHOWN_MAX, bad, check_address, check_name

OPERATIONS_MAX: Final = 1_000
"""Maximum number of operations in one request, over all entities. Their records fit into one batch."""
QUOTAS_MAX: Final = 50_000
"""Maximum number of quotas in the cluster."""
ENTITY_TYPES: Final = ("user", "client-id", "ip")


class QuotaKey(NamedTuple):
    """A key: its highest value, and whether the value must be a whole number. Every value is above 0."""

    highest: float
    is_whole: bool


_LONG, _INT = 2.0**63 - 1_024, 2.0**31 - 1  # the highest numbers that a double holds and a Java long, or int, too
CLIENT_KEYS: Final = {
    "producer_byte_rate": QuotaKey(_LONG, is_whole=True),
    "consumer_byte_rate": QuotaKey(_LONG, is_whole=True),
    "request_percentage": QuotaKey(math.inf, is_whole=False),
    "controller_mutation_rate": QuotaKey(math.inf, is_whole=False),
}
"""The keys of users and client ids, with Kafka's names: bytes, percent of a thread, and changed partitions, each per second."""
IP_KEYS: Final = {"connection_creation_rate": QuotaKey(_INT, is_whole=True)}
"""The key of addresses: new connections per second."""


def alter_client_quotas(image: MetadataImage, command: AlterClientQuotas) -> Decision:
    """Decides alterations of quotas; each entity has its own result.

    Raises:
        ControllerError: POLICY_VIOLATION if the request is too large, or the cluster would have too many quotas.
    """
    check_request(len(command.alterations), OPERATIONS_MAX, "entities")
    check_request(sum([len(each.operations) for each in command.alterations]), OPERATIONS_MAX, "operations")
    entities = [tuple(sorted(each.entity, key=_by_type)) for each in command.alterations]
    times = Counter(entities)
    records: list[ClientQuota] = []
    results: list[QuotaResult] = []
    for entity, alteration in zip(entities, command.alterations, strict=True):
        try:
            if times[entity] > 1:
                raise bad("the request names this entity more than once")
            records += _altered(image, entity, alteration)
        except Rejected as e:
            results.append(QuotaResult(alteration.entity, e.code, f"{e.message}; nothing was done for this entity"))
        else:
            results.append(QuotaResult(alteration.entity))
    _check_total(image, records)
    reply = AlterClientQuotasReply(results=tuple(results))
    if command.validate_only or not records:
        return Decision((), reply)
    written: tuple[MetadataRecord, ...] = tuple(records)
    return Decision(written, reply, happenings=(ClientQuotasChanged(len(records), first_few(map(_named, records))),))


def entity_text(entity: tuple[QuotaEntity, ...]) -> str:
    """The entity in words: `user alice, client-id (default)`."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in reversed(entity))


def _named(record: ClientQuota) -> str:
    return f"{entity_text(record.entity)}: {record.key}"


def _by_type(part: QuotaEntity) -> str:
    return part.entity_type


def _check_total(image: MetadataImage, records: list[ClientQuota]) -> None:
    grown = sum([1 if each.value is not None else -1 for each in records if _is_new_or_gone(image, each)])
    check_cluster(len(image.quotas), grown, QUOTAS_MAX, "quotas", "remove some first")


def _is_new_or_gone(image: MetadataImage, record: ClientQuota) -> bool:
    return record.value is None or (record.entity, record.key) not in image.quotas


def _altered(image: MetadataImage, entity: tuple[QuotaEntity, ...], alteration: QuotaAlteration) -> list[ClientQuota]:
    """Returns the records of one entity. Raises Rejected."""
    keys = _keys_of(entity)
    seen: set[str] = set()
    records = []
    for key, value in alteration.operations:
        if key in seen:
            raise bad(f"key {key[:SHOWN_MAX]!r} is altered twice")
        seen.add(key)
        before = image.quotas.get((entity, key))
        if value is None:
            if before is not None:
                records.append(ClientQuota(entity, key, None))
            elif key not in keys:
                raise _unknown(key, keys)
            continue
        _check_value(key, value, keys)
        if before is None or before.value != value:
            records.append(ClientQuota(entity, key, value))
    return records


def _keys_of(entity: tuple[QuotaEntity, ...]) -> dict[str, QuotaKey]:
    """Checks an entity, and returns the keys that it may have. Raises Rejected."""
    if not entity:
        raise bad("the entity is empty: name a user, a client id, or an address")
    types = [part.entity_type for part in entity]
    for part in entity:
        _check_part(part)
    if len(set(types)) < len(types):
        raise bad("the entity has a type twice")
    if "ip" in types and len(types) > 1:
        raise bad("an address (ip) goes with no other part")
    return IP_KEYS if types == ["ip"] else CLIENT_KEYS


def _check_part(part: QuotaEntity) -> None:
    kind, name = part
    if kind not in ENTITY_TYPES:
        raise bad(f"there is no entity type {kind[:SHOWN_MAX]!r}: the types are {', '.join(ENTITY_TYPES)}")
    if name is None:
        return
    check_name(f"the name of the {kind}", name, "; for the default leave the name out")
    if kind == "ip":
        check_address(name)


def _unknown(key: str, keys: dict[str, QuotaKey]) -> Rejected:
    return bad(f"there is no quota {key[:SHOWN_MAX]!r} of this entity: the keys are {', '.join(keys)}")


def _check_value(key: str, value: float, keys: dict[str, QuotaKey]) -> None:
    known = keys.get(key)
    if known is None:
        raise _unknown(key, keys)
    if value == math.inf:
        raise bad(f"{key} is {value}: it must be finite")
    if not value > 0:
        raise bad(f"{key} is {value}: it must be greater than 0")
    if known.is_whole and value != int(value):
        raise bad(f"{key} is {value}: it must be a whole number")
    if value > known.highest:
        raise bad(f"{key} is {value}: it must be at most {known.highest:.0f}")
