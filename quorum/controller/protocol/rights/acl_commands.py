"""The commands that create and delete ACLs, and their replies (Kafka's CreateAcls and DeleteAcls)."""

from dataclasses import dataclass
from typing import NamedTuple

from metadata_log.format.acl_words import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller.protocol.replies import NOT_APPENDED


class AclBinding(NamedTuple):
    """An ACL without its id: the fields of `AccessControlEntry`, in their order, with the numbers of `acl_words`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """A set of ACLs. None stands for every name, principal or host."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = PermissionType.ANY


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Create ACLs. An ACL that exists is no error, and is not written again."""

    acls: tuple[AclBinding, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AclResult:
    """The result for one ACL."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class CreateAclsReply:
    """The results are in the order of the ACLs in the request."""

    offset: Offset = NOT_APPENDED
    results: tuple[AclResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Delete all ACLs that pass at least one of the filters."""

    filters: tuple[AclFilter, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AclFilterResult:
    """The result for one filter. An ACL that passes several filters is named by the first of them."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    deleted: tuple[tuple[int, str, int, str, str, int, int], ...] = ()
    """The fields of each `AclBinding`."""


@dataclass(frozen=True, slots=True)
class DeleteAclsReply:
    """The results are in the order of the filters in the request."""

    offset: Offset = NOT_APPENDED
    results: tuple[AclFilterResult, ...] = ()
