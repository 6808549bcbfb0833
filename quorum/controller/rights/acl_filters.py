"""Which ACLs pass a filter (Kafka's ResourcePatternFilter and AccessControlEntryFilter).

The pattern type of a filter decides about its resource name. Example: the ACLs are literal `orders`, prefixed `ord`, literal `*`.

    LITERAL orders   the first
    PREFIXED ord     the second
    ANY orders       the first; a prefixed `orders` would pass, too
    MATCH orders     all three: these are the ACLs that say something about the topic orders
"""

from metadata_log.format.acl_words import (
    EVERY,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.format.records import AccessControlEntry
from quorum.controller.protocol.rights.acl_commands import AclFilter


def is_exact(wanted: AclFilter) -> bool:
    """True if at most one ACL can pass: every field is named."""
    return (
        None not in (wanted.resource_name, wanted.principal, wanted.host)
        and wanted.resource_type != ResourceType.ANY
        and wanted.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        and wanted.operation != AclOperation.ANY
        and wanted.permission_type != PermissionType.ANY
    )


def passes(acl: AccessControlEntry, wanted: AclFilter) -> bool:
    """True if the ACL passes the filter."""
    _, resource_type, name, pattern, principal, host, operation, permission = acl
    return (
        wanted.resource_type in (resource_type, ResourceType.ANY)
        and wanted.principal in (principal, None)
        and wanted.host in (host, None)
        and wanted.operation in (operation, AclOperation.ANY)
        and wanted.permission_type in (permission, PermissionType.ANY)
        and _name_passes(name, pattern, wanted)
    )


def _name_passes(name: str, pattern: int, wanted: AclFilter) -> bool:
    if wanted.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern):
        return False
    if wanted.resource_name is None:
        return True
    if wanted.pattern_type != PatternType.MATCH:
        return wanted.resource_name == name
    if pattern == PatternType.PREFIXED:
        return wanted.resource_name.startswith(name)
    return name in (wanted.resource_name, EVERY)
