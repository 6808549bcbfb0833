"""The words of ACLs, with Kafka's numbers (org.apache.kafka.common.acl and .resource). An ACL of the log has the number.

`ANY` and `MATCH` are for filters only. Example: the ACL "allow User:alice read on topics that begin with app-" is
`AccessControlEntry(id, TOPIC, "app-", PREFIXED, "User:alice", "*", READ, ALLOW)`. On disk: `[18, 0, id, 2, "app-", 4, ...]`.
"""

from enum import IntEnum, unique
from typing import Final

EVERY: Final = "*"
"""As a literal resource name: all resources of the type. As a host: all hosts."""
EVERY_USER: Final = "User:*"
"""The principal of an ACL for all principals."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of the resource type CLUSTER."""


@unique
class ResourceType(IntEnum):
    """The kinds of resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


@unique
class PatternType(IntEnum):
    """The meaning of a resource name. A filter with MATCH finds all patterns that fit its name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@unique
class AclOperation(IntEnum):
    """The kinds of access."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


@unique
class PermissionType(IntEnum):
    """The effect of an ACL."""

    ANY = 1
    DENY = 2
    ALLOW = 3
