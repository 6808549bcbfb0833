"""The checks of an ACL and of a filter: their numbers are words of this release, and their names could be names.

Example: `AclFilter(operation=ANY)` is a filter for every operation. The same number in an ACL is refused: `ANY` and `MATCH` are
words of filters only: "an ACL can't have operation 1: there are ALL (2), READ (3), ...".
"""

from itertools import chain
from typing import Final

from metadata_log.format.acl_words import (
    CLUSTER_NAME,
    EVERY,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from quorum.controller.protocol.rights.acl_commands import AclBinding, AclFilter
from quorum.controller.rights.names import SHOWN_MAX, bad, check_address, check_name

_OF_FILTERS_ONLY: Final = frozenset({"ANY", "MATCH"})


def check_acl(acl: AclBinding) -> None:
    """Raises Rejected(INVALID_REQUEST) for an ACL that cannot be."""
    _check_words(acl, "an ACL", _OF_FILTERS_ONLY)
    check_name("the resource name", acl.resource_name)
    check_name("the principal", acl.principal)
    if not all(acl.principal.partition(":")):
        raise bad(f"principal {acl.principal[:SHOWN_MAX]!r} is not a type, a colon and a name: write User:alice")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise bad(f"the resource name of the cluster is {CLUSTER_NAME}")
    if acl.host != EVERY:
        check_address(acl.host)


def check_filter(wanted: AclFilter) -> None:
    """Raises Rejected(INVALID_REQUEST) for a number without a meaning, or a name that no ACL has."""
    _check_words(wanted, "a filter")
    for what, name in (
        ("the resource name", wanted.resource_name),
        ("the principal", wanted.principal),
        ("the host", wanted.host),
    ):
        if name is not None:
            check_name(what, name, "; leave it out for all")


def _check_words(of: AclBinding | AclFilter, owner: str, without: frozenset[str] = frozenset()) -> None:
    for what, number, words in (
        ("resource type", of.resource_type, ResourceType),
        ("pattern type", of.pattern_type, PatternType),
        ("operation", of.operation, AclOperation),
        ("permission type", of.permission_type, PermissionType),
    ):
        known = {each.value: each.name for each in chain(words) if each.name not in without}
        if number not in known:
            named = ", ".join(f"{name} ({value})" for value, name in known.items())
            raise bad(f"{owner} can't have {what} {number}: there are {named}")
