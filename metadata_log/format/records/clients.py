"""Records of clients: outcomes of their requests, quotas, and producer ids."""

from typing import NamedTuple

from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records.registry import FROM_OFFSET, record

REQUEST_SLOTS_MAX = 1 << 20
REMEMBERED_REPLY_BYTES_MAX = 2 << 10
PRINCIPAL_CHARS_MAX = 256
PAYLOAD_HASH_BYTES = 32
"""Limits of a `RequestOutcome`, which replay checks. The controller may have lower limits."""


@record(60)
class RequestOutcome(NamedTuple):
    """A client's request with an id was done, in the batch that ends with this record. Canonical.

    Outcomes are stored in a ring of slots, and a new outcome replaces the old one in its slot. So the number of
    remembered outcomes is bounded, and the history of each slot can be folded alone. Every outcome at or above offset
    `horizon` is still remembered. `reply` is the answer without its offset; None if the answer was too large. `offset`
    is the offset of this record (FROM_OFFSET in the log, filled in by replay), so the batch ended one above.
    """

    slot: int
    request_id: Uuid
    payload_hash: bytes
    principal: str
    horizon: Offset
    reply: bytes | None
    offset: Offset = FROM_OFFSET


class QuotaEntity(NamedTuple):
    """One part of a quota's subject: the type is `user`, `client-id` or `ip`; the name None is the default entity."""

    entity_type: str
    name: str | None


@record(14)
class ClientQuota(NamedTuple):
    """One quota of one client entity. Canonical. The value None removes the quota. `entity` is sorted by type."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float | None


@record(15)
class ProducerIds(NamedTuple):
    """A block of producer ids was allocated; `next_producer_id` is the first free id. Canonical; the image has at most
    one.
    """

    broker_id: NodeId
    broker_epoch: int
    next_producer_id: int
