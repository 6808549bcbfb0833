"""ACLs: creation, and deletion by filter (Kafka's AclControlManager, KIP-290).

metaquorum keeps ACLs for the system that embeds the agent. Its own services go by the roles of certificates, and ask no ACL.

*The id of an ACL is a hash of the ACL.* So an ACL exists if its id exists: a look-up, with no dice and no search. Example:
    1  A request creates "allow User:alice read on topic orders". The image has no such id: the decision has one record.
    2  A request has the same ACL twice, and a new one. The decision has one record.
    3  A request deletes by the filter "topic orders". The decision has two removals, and the answer names both ACLs.

A filter that names every field is a look-up too. Any other filter looks at all ACLs of the cluster, so a request has only so
many of these.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgpack

from metadata_log.format.acl_words import (
    EVERY,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Uuid
from metadata_log.format.records import AccessControlEntry, MetadataRecord, RemoveAccessControlEntry
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.happenings import AclsCreated, AclsDeleted, first_few
from quorum.controller.protocol.rights.acl_commands import (
    AclBinding,
    AclFilter,
    AclFilterResult,
    AclResult,
    CreateAcls,
    CreateAclsReply,
    DeleteAcls,
    DeleteAclsReply,
)
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.rights.acl_checks import check_acl, check_filter
from quorum.controller.rights.acl_filters import is_exact, passes
from quorum.controller.rights.limits import check_cluster, check_request

ACLS_PER_REQUEST_MAX: Final = 1_000
"""Maximum number of ACLs that one request creates or deletes, and of its filters. Their records fit into one batch."""
ACLS_MAX: Final = 10_000
"""Maximum number of ACLs in the cluster."""
LOOKS_MAX: Final = 10_000
"""Maximum number of ACLs at which one request looks, each counted once for every filter that is no look-up: about 10 ms."""


def acl_id(binding: AclBinding) -> Uuid:
    """Returns the id of an ACL: the same for the same seven fields."""
    return hashlib.sha256(msgpack.packb(tuple(binding))).digest()[:16]


def acl_text(acl: AccessControlEntry) -> str:
    """The ACL in words: `allow User:alice read on literal topic orders`."""
    permission, operation = PermissionType(acl.permission_type).name, AclOperation(acl.operation).name
    pattern, kind = PatternType(acl.pattern_type).name, ResourceType(acl.resource_type).name
    at = "" if acl.host == EVERY else f" from {acl.host}"
    on = f"{pattern.lower()} {kind.lower()} {acl.resource_name}"
    return f"{permission.lower()} {acl.principal} {operation.lower()} on {on}{at}"


def create_acls(image: MetadataImage, command: CreateAcls) -> Decision:
    """Writes the ACLs that do not exist; each has its own result.

    Raises:
        ControllerError: POLICY_VIOLATION if the request is too large, or the cluster would have too many ACLs.
    """
    check_request(len(command.acls), ACLS_PER_REQUEST_MAX, "ACLs")
    written: dict[Uuid, AccessControlEntry] = {}
    results = []
    for binding in command.acls:
        try:
            check_acl(binding)
        except Rejected as e:
            results.append(AclResult(e.code, f"{e.message}; this ACL was not created"))
            continue
        results.append(AclResult())
        entry_id = acl_id(binding)
        if entry_id not in image.acls:
            written[entry_id] = AccessControlEntry(entry_id, *binding)
    advice = "use prefixed patterns, or delete some first"
    check_cluster(len(image.acls), len(written), ACLS_MAX, "ACLs", advice)
    reply = CreateAclsReply(results=tuple(results))
    if command.validate_only or not written:
        return Decision((), reply)
    first = first_few(map(acl_text, written.values()))
    return Decision(tuple(written.values()), reply, happenings=(AclsCreated(len(written), first),))


def delete_acls(image: MetadataImage, command: DeleteAcls) -> Decision:
    """Removes the ACLs that pass a filter; each filter has its own result, and one without ACLs is no error.

    Raises:
        ControllerError: POLICY_VIOLATION if the request is too large, or would delete too many ACLs.
    """
    check_request(len(command.filters), ACLS_PER_REQUEST_MAX, "filters")
    problems = [_problem(each) for each in command.filters]
    wide = sum(
        [problem is None and not is_exact(each) for each, problem in zip(command.filters, problems, strict=True)]
    )
    if wide > 1 and wide * len(image.acls) > LOOKS_MAX:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request has {wide:,} filters that leave something open, and the cluster has {len(image.acls):,} ACLs: too "
            "many to look at; nothing was done; send one filter in each request",
        )
    gone: dict[Uuid, AccessControlEntry] = {}
    results: list[AclFilterResult] = []
    for wanted, problem in zip(command.filters, problems, strict=True):
        if problem is not None:
            results.append(AclFilterResult(ErrorCode.INVALID_REQUEST, f"{problem}; this filter deleted nothing"))
            continue
        found = [each for each in _found(image, wanted) if each.entry_id not in gone]
        gone |= {each.entry_id: each for each in found}
        check_request(len(gone), ACLS_PER_REQUEST_MAX, "ACLs to delete")
        results.append(AclFilterResult(deleted=tuple([each[1:] for each in found])))
    reply = DeleteAclsReply(results=tuple(results))
    if command.validate_only or not gone:
        return Decision((), reply)
    records: tuple[MetadataRecord, ...] = tuple([RemoveAccessControlEntry(entry_id) for entry_id in gone])
    first = first_few(map(acl_text, gone.values()))
    return Decision(records, reply, happenings=(AclsDeleted(len(gone), first),))


def describe_acls(image: MetadataImage, wanted: AclFilter) -> list[AclBinding]:
    """Returns the ACLs that pass, by resource, then by principal. Looks at all ACLs, unless the filter names every field."""
    return sorted([AclBinding(*each[1:]) for each in _found(image, wanted)])


def _found(image: MetadataImage, wanted: AclFilter) -> Iterable[AccessControlEntry]:
    if is_exact(wanted):
        found = image.acls.get(acl_id(AclBinding(*wanted)))  # type: ignore[arg-type]  # an exact filter has no None
        return () if found is None else (found,)
    return sorted([each for each in image.acls.unordered_values() if passes(each, wanted)])  # by id


def _problem(wanted: AclFilter) -> str | None:
    try:
        check_filter(wanted)
    except Rejected as e:
        return e.message
    return None
