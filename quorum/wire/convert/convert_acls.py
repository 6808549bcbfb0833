"""Translates between protobuf and the requests about ACLs. Decides nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.acl_words import AclOperation, PatternType, PermissionType, ResourceType
from quorum.controller.protocol.rights.acl_commands import (
    AclBinding,
    AclFilter,
    CreateAcls,
    CreateAclsReply,
    DeleteAcls,
    DeleteAclsReply,
)
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.rights.acl_checks import check_filter
from quorum.controller.rights.acls import ACLS_PER_REQUEST_MAX, describe_acls
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert import pages
from quorum.wire.convert.convert_admin import at_most
from quorum.wire.convert.errors import BadMessage, item_error

PAGE_MAX = 1_000
"""Maximum number of ACLs in one page, also if a client wants more."""


def from_create_acls(message: admin_pb2.CreateAclsRequest) -> CreateAcls:
    at_most(len(message.acls), "ACLs", ACLS_PER_REQUEST_MAX)
    return CreateAcls(tuple(_from_binding(each) for each in message.acls), message.validate_only)


def to_create_acls_response(reply: CreateAclsReply) -> admin_pb2.CreateAclsResponse:
    count = len(reply.results)
    results = [admin_pb2.CreateAclResult(error=item_error(each.error, each.message, count)) for each in reply.results]
    return admin_pb2.CreateAclsResponse(offset=reply.offset, results=results)


def from_delete_acls(message: admin_pb2.DeleteAclsRequest) -> DeleteAcls:
    at_most(len(message.filters), "filters", ACLS_PER_REQUEST_MAX)
    return DeleteAcls(tuple(_from_filter(each) for each in message.filters), message.validate_only)


def to_delete_acls_response(reply: DeleteAclsReply) -> admin_pb2.DeleteAclsResponse:
    return admin_pb2.DeleteAclsResponse(
        offset=reply.offset,
        results=[
            admin_pb2.DeleteAclsResult(
                error=item_error(each.error, each.message, len(reply.results)),
                deleted=[_to_binding(acl) for acl in each.deleted],
            )
            for each in reply.results
        ],
    )


def find_acls(request: admin_pb2.DescribeAclsRequest, view: ReadView) -> list[AclBinding]:
    """Looks at all ACLs, on a thread. A bad request is refused before."""
    pages.page_size(request.page_size)
    after = _after(request.page_token)
    wanted = _from_filter(request.filter)
    try:
        check_filter(wanted)
    except Rejected as e:
        raise BadMessage(e.message) from None
    return [each for each in describe_acls(view.image, wanted) if after is None or each > after]


def describe_acls_page(
    request: admin_pb2.DescribeAclsRequest, view: ReadView, found: Sequence[AclBinding]
) -> admin_pb2.DescribeAclsResponse:
    asked = pages.page_size(request.page_size)
    room = asked if 0 < asked <= PAGE_MAX else PAGE_MAX
    acls = [_to_binding(each) for each in found[:room]]
    token = acls[-1].SerializeToString(deterministic=True) if len(found) > room else b""
    return admin_pb2.DescribeAclsResponse(as_of_offset=view.as_of_offset, acls=acls, next_page_token=token)


def _after(token: bytes) -> AclBinding | None:
    if not token:
        return None
    try:
        return _from_binding(admin_pb2.AclBinding.FromString(token))
    except DecodeError as e:
        raise BadMessage("page_token is not from an answer to this request: send `next_page_token` unchanged") from e


def _from_binding(message: admin_pb2.AclBinding) -> AclBinding:
    return AclBinding(
        message.resource_type,
        message.resource_name,
        message.pattern_type,
        message.principal,
        message.host,
        message.operation,
        message.permission_type,
    )


def _to_binding(binding: Iterable[Any]) -> admin_pb2.AclBinding:
    names = AclBinding._fields
    return admin_pb2.AclBinding(**dict(zip(names, binding, strict=True)))


def _from_filter(message: admin_pb2.AclFilter) -> AclFilter:
    """A filter of the wire has 0 for any."""
    return AclFilter(
        message.resource_type or ResourceType.ANY,
        message.resource_name if message.HasField("resource_name") else None,
        message.pattern_type or PatternType.ANY,
        message.principal if message.HasField("principal") else None,
        message.host if message.HasField("host") else None,
        message.operation or AclOperation.ANY,
        message.permission_type or PermissionType.ANY,
    )
