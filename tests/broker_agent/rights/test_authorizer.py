"""The answers of ACLs: Kafka's rules as sentences, and any ACLs against a dumb twin."""

import random
from typing import Final

import pytest

from broker_agent.cache import MetadataCache
from broker_agent.rights.authorizer import Authorizer
from metadata_log.format.acl_words import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.format.records import AccessControlEntry, ClientQuota, MetadataRecord, QuotaEntity
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import Provenance

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
OP = AclOperation
HERE: Final = "10.0.0.1"
ID: Final = bytes(16)


def allow(
    operation: AclOperation, name: str = "orders", principal: str = "User:alice", host: str = "*",
    pattern: PatternType = LITERAL, permission: PermissionType = ALLOW,
) -> AccessControlEntry:  # fmt: skip
    return AccessControlEntry(ID, TOPIC, name, pattern, principal, host, operation, permission)


def deny(operation: AclOperation, **other: str) -> AccessControlEntry:
    return allow(operation, permission=DENY, **other)  # type: ignore[arg-type]


def may(*acls: AccessControlEntry, operation: AclOperation = OP.READ, name: str = "orders", host: str = HERE) -> bool:
    return Authorizer(acls).allows("User:alice", host, operation, TOPIC, name)


def test_nothing_is_allowed_without_an_acl() -> None:
    assert not may()
    assert not may(allow(OP.READ, principal="User:bob"), allow(OP.READ, name="sales"), allow(OP.READ, host="10.0.0.2"))
    assert not Authorizer([allow(OP.READ)]).allows("User:alice", HERE, OP.READ, GROUP, "orders")


def test_one_denial_decides() -> None:
    assert may(allow(OP.READ), allow(OP.ALL), deny(OP.WRITE))
    assert not may(deny(OP.READ, principal="User:*", name="*"), allow(OP.READ), allow(OP.ALL))
    assert not may(allow(OP.READ), deny(OP.ALL, host=HERE))
    assert may(allow(OP.READ), deny(OP.ALL, host="10.0.0.2"))


def test_patterns_that_fit_the_name() -> None:
    assert may(allow(OP.READ, name="*"))
    assert may(allow(OP.READ, name="ord", pattern=PREFIXED)) and may(allow(OP.READ, name="orders", pattern=PREFIXED))
    assert not may(allow(OP.READ, name="orders-2", pattern=PREFIXED))
    assert not may(allow(OP.READ, name="*", pattern=PREFIXED)), "a prefixed * is no wildcard"
    assert may(allow(OP.READ, principal="User:*"))


def test_operations_that_imply_others() -> None:
    """A denial implies nothing: who must not read may still describe."""
    for implying in (OP.READ, OP.WRITE, OP.DELETE, OP.ALTER, OP.ALL):
        assert may(allow(implying), operation=OP.DESCRIBE)
    assert may(allow(OP.ALTER_CONFIGS), operation=OP.DESCRIBE_CONFIGS)
    assert not may(allow(OP.DESCRIBE), operation=OP.READ)
    assert not may(allow(OP.READ), operation=OP.DESCRIBE_CONFIGS)
    assert may(allow(OP.DESCRIBE), deny(OP.READ), operation=OP.DESCRIBE)


def speaks(acl: AccessControlEntry, principal: str, host: str, name: str) -> bool:
    fits = name.startswith(acl.resource_name) if acl.pattern_type == PREFIXED else acl.resource_name in ("*", name)
    return fits and acl.principal in (principal, "User:*") and acl.host in (host, "*")


@pytest.mark.parametrize("seed", range(20))
def test_any_acls_answer_as_the_dumb_twin(seed: int) -> None:
    dice, answers = random.Random(seed), set()
    names, principals, hosts = ("*", "o", "or", "orders", "sales"), ("User:alice", "User:bob", "User:*"), ("*", HERE)
    operations = (OP.ALL, OP.READ, OP.WRITE, OP.DESCRIBE)
    for _ in range(60):
        acls = [
            allow(
                dice.choice(operations), dice.choice(names), dice.choice(principals), dice.choice(hosts),
                dice.choice((LITERAL, PREFIXED)), dice.choice((ALLOW, ALLOW, DENY)),
            )
            for _ in range(dice.randint(1, 4))
        ]  # fmt: skip
        for operation in operations[1:]:
            about = [each for each in acls if speaks(each, "User:alice", HERE, "orders")]
            said = {(each.permission_type, each.operation) for each in about}
            granting = {OP.ALL, operation} | ({OP.READ, OP.WRITE} if operation is OP.DESCRIBE else set())
            denied = any((DENY, each) in said for each in (OP.ALL, operation))
            expected = not denied and any((ALLOW, each) in said for each in granting)
            assert may(*acls, operation=operation) is expected, (acls, operation)
            answers.add(expected)
    assert answers == {True, False}


def test_a_view_makes_its_authorizer_once_for_the_same_acls() -> None:
    """Another change keeps it; a changed ACL makes a new one, and the old view answers as before."""
    cache = MetadataCache()

    def apply(record: MetadataRecord) -> None:
        delta = MetadataDelta(cache.current.image)
        delta.replay(record, cache.current.offset)
        cache.swap(delta.finish(Provenance(cache.current.offset + 1, 1, 1)), delta.changed)

    apply(allow(OP.READ))
    before = cache.current
    first = before.authorizer()
    apply(ClientQuota((QuotaEntity("user", "alice"),), "producer_byte_rate", 5.0))
    assert cache.current.authorizer() is first
    apply(deny(OP.READ)._replace(entry_id=b"1" * 16))
    asked = ("User:alice", HERE, OP.READ, TOPIC, "orders")
    assert before.authorizer().allows(*asked) and not cache.current.authorizer().allows(*asked)
