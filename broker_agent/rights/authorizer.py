"""May a principal do this? The answer of the ACLs, by Kafka's rules (StandardAuthorizer).

    deny      one ACL that denies decides, however many allow
    allow     at least one ACL allows, and none denies
    refused   no ACL says anything

An ACL speaks about a request if its pattern fits the resource (the same name, the literal `*`, or a prefix), its principal is the
caller or `User:*`, its host is the caller's address or `*`, and its operation is the asked one or ALL. An ACL that allows READ,
WRITE, DELETE or ALTER allows DESCRIBE, too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS. An ACL that denies one denies no other.

Example. The ACLs are "allow User:alice read on prefixed topic app-" and "deny User:* all on topic app-secret from 10.0.0.9".
    1. Alice reads app-1 from 10.0.0.9: allowed. She describes app-1: allowed, as a reader. She writes to app-1: refused.
    2. Alice reads app-secret from 10.0.0.9: denied. From 10.0.0.8: allowed.

An `Authorizer` is made from all ACLs of one image, about 1 us each. An answer then costs a look-up for each character of the
resource name. Super users are for the caller: an `Authorizer` knows none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.format.acl_words import (
    EVERY,
    EVERY_USER,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from metadata_log.format.records import AccessControlEntry

_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class Authorizer:
    """The ACLs of one image, by resource. Immutable."""

    __slots__ = ("_by_place", "_longest")

    def __init__(self, acls: Iterable[AccessControlEntry]) -> None:
        by_place: defaultdict[tuple[int, int, str], list[AccessControlEntry]] = defaultdict(list)
        for acl in acls:
            by_place[acl.resource_type, acl.pattern_type, acl.resource_name].append(acl)
        self._by_place = dict(by_place)
        prefixes = (len(name) for _, pattern, name in by_place if pattern == PatternType.PREFIXED)
        self._longest = max(prefixes, default=0)
        """How many characters the longest prefix has."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """True if the principal, for example `User:alice`, may do this from the address `host`. No ACL: False."""
        is_allowed = False
        granting = (operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ()))
        for acl in self._about(resource_type, name):
            if acl.principal not in (principal, EVERY_USER) or acl.host not in (host, EVERY):
                continue
            if acl.permission_type == PermissionType.DENY:
                if acl.operation in (operation, AclOperation.ALL):
                    return False
            elif acl.operation in granting:
                is_allowed = True
        return is_allowed

    def _about(self, resource_type: int, name: str) -> Iterator[AccessControlEntry]:
        """Yields the ACLs whose pattern fits the resource."""
        places = self._by_place
        yield from places.get((resource_type, PatternType.LITERAL, name), ())
        if name != EVERY:
            yield from places.get((resource_type, PatternType.LITERAL, EVERY), ())
        for length in range(1, min(len(name), self._longest) + 1):
            yield from places.get((resource_type, PatternType.PREFIXED, name[:length]), ())
