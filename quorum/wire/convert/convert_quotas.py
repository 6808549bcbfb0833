"""Translates between protobuf and the requests about client quotas. Decides nothing."""

from collections.abc import Iterable, Sequence
from typing import Final

from google.protobuf.message import DecodeError
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.records import QuotaEntity
from quorum.controller.protocol.rights.quota_commands import (
    AlterClientQuotas,
    AlterClientQuotasReply,
    QuotaAlteration,
    QuotaOperation,
)
from quorum.controller.rights.described_quotas import (
    DescribedQuotas,
    Match,
    QuotaComponent,
    describe_quotas,
    page_of,
)
from quorum.controller.rights.names import NAME_BYTES_MAX
from quorum.controller.rights.quotas import ENTITY_TYPES, OPERATIONS_MAX
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert import pages
from quorum.wire.convert.convert_admin import at_most
from quorum.wire.convert.errors import BadMessage, item_error
from service_kit.rpc.refusals import shortened

_UNKNOWN_TOKEN: Final = "page_token is not from an answer to this request: send `next_page_token` unchanged"


def from_alter_quotas(message: admin_pb2.AlterClientQuotasRequest) -> AlterClientQuotas:
    at_most(len(message.alterations), "entities", OPERATIONS_MAX)
    at_most(sum(len(each.operations) for each in message.alterations), "operations", OPERATIONS_MAX)
    for each in message.alterations:
        if len(each.entity.parts) > len(ENTITY_TYPES):
            raise BadMessage(
                f"an entity has {len(each.entity.parts)} parts, and each type counts once; nothing was done"
            )
    return AlterClientQuotas(tuple(_alteration(each) for each in message.alterations), message.validate_only)


def _alteration(message: admin_pb2.ClientQuotaAlteration) -> QuotaAlteration:
    return QuotaAlteration(
        _from_entity(message.entity),
        tuple(QuotaOperation(each.key, each.value if each.HasField("value") else None) for each in message.operations),
    )


def _from_entity(message: admin_pb2.ClientQuotaEntity) -> tuple[QuotaEntity, ...]:
    return tuple(QuotaEntity(each.entity_type, each.name if each.HasField("name") else None) for each in message.parts)


def _to_entity(entity: Iterable[tuple[str, str | None]]) -> admin_pb2.ClientQuotaEntity:
    """An entity as an answer repeats it, with short names: the request may have named anything."""
    return admin_pb2.ClientQuotaEntity(
        parts=[
            admin_pb2.ClientQuotaEntityPart(
                entity_type=shortened(kind, NAME_BYTES_MAX),
                name=None if name is None else shortened(name, NAME_BYTES_MAX),
            )
            for kind, name in entity
        ]
    )


def to_alter_quotas_response(reply: AlterClientQuotasReply) -> admin_pb2.AlterClientQuotasResponse:
    return admin_pb2.AlterClientQuotasResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ClientQuotaResult(
                entity=_to_entity(each.entity), error=item_error(each.error, each.message, len(reply.results))
            )
            for each in reply.results
        ],
    )


def find_quotas(request: admin_pb2.DescribeClientQuotasRequest, view: ReadView) -> Sequence[DescribedQuotas]:
    """Looks at all quotas, on a thread. A bad request is refused before."""
    pages.page_size(request.page_size)
    _after(request.page_token)
    return describe_quotas(view.image, _components(request), strict=request.strict)


def describe_quotas_page(
    request: admin_pb2.DescribeClientQuotasRequest, view: ReadView, found: Sequence[DescribedQuotas]
) -> admin_pb2.DescribeClientQuotasResponse:
    page = page_of(found, _after(request.page_token), pages.page_size(request.page_size))
    entries = [
        admin_pb2.DescribedClientQuotas(
            entity=_to_entity(each.entity),
            values=[admin_pb2.ClientQuotaValue(key=key, value=value) for key, value in each.values],
        )
        for each in page.entities
    ]
    token = b"" if page.is_last else entries[-1].entity.SerializeToString(deterministic=True)
    return admin_pb2.DescribeClientQuotasResponse(
        as_of_offset=view.as_of_offset, entries=entries, next_page_token=token
    )


def _after(token: bytes) -> tuple[QuotaEntity, ...] | None:
    if not token:
        return None
    try:
        entity = _from_entity(admin_pb2.ClientQuotaEntity.FromString(token))
    except DecodeError as e:
        raise BadMessage(_UNKNOWN_TOKEN) from e
    if not 1 <= len(entity) <= len(ENTITY_TYPES):
        raise BadMessage(_UNKNOWN_TOKEN)
    return entity


def _components(request: admin_pb2.DescribeClientQuotasRequest) -> tuple[QuotaComponent, ...]:
    types = [each.entity_type for each in request.components]
    if len(types) > len(ENTITY_TYPES) or len(set(types)) < len(types):
        raise BadMessage("the filter names an entity type twice")
    for kind in types:
        if kind not in ENTITY_TYPES:
            raise BadMessage(f"there is no entity type {kind[:60]!r}: the types are {', '.join(ENTITY_TYPES)}")
    if "ip" in types and len(types) > 1:
        raise BadMessage("an address (ip) goes with no other part, so no entity can pass this filter")
    return tuple(_component(each) for each in request.components)


def _component(message: admin_pb2.DescribeClientQuotasRequest.Component) -> QuotaComponent:
    try:
        match = Match(message.match)
    except ValueError:
        raise BadMessage(f"match {message.match}: this release knows EXACT (0), DEFAULT (1) and ANY (2)") from None
    if bool(message.name) is not (match is Match.EXACT):
        raise BadMessage(f"{message.entity_type}: EXACT needs a name, and DEFAULT and ANY take none")
    return QuotaComponent(message.entity_type, match, message.name)
