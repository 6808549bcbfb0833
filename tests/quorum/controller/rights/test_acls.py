"""ACLs: what is created once, what a filter finds and deletes, against a dumb twin, and what is refused."""

import random
from typing import Final

import pytest

from metadata_log.format.acl_words import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import AccessControlEntry, RemoveAccessControlEntry
from quorum.controller.protocol import happenings as told
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.rights.acl_commands import (
    AclBinding,
    AclFilter,
    CreateAcls,
    CreateAclsReply,
    DeleteAcls,
    DeleteAclsReply,
)
from quorum.controller.rights import acls
from tests.quorum.controller.cluster import Cluster

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
READ, ALLOW, DENY = AclOperation.READ, PermissionType.ALLOW, PermissionType.DENY
ALICE: Final = AclBinding(TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW)


def refused(command: CreateAcls | DeleteAcls, cluster: Cluster | None = None) -> str:
    with pytest.raises(ControllerError) as caught:
        (cluster or Cluster()).run(command)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    return caught.value.message


def test_an_acl_is_created_once_and_deleted_once() -> None:
    """Neither a repetition nor the same ACL twice in a request writes a record; the story names the ACL."""
    cluster = Cluster()
    bob = ALICE._replace(principal="User:bob", permission_type=DENY, host="10.0.0.1")
    assert cluster.run(CreateAcls((ALICE,), validate_only=True)).records == []
    ran = cluster.run(CreateAcls((ALICE, bob, ALICE)))
    assert [each[1:] for each in ran.records if isinstance(each, AccessControlEntry)] == [ALICE, bob]
    assert ran.happenings == [
        told.AclsCreated(
            2,
            (
                "allow User:alice read on literal topic orders",
                "deny User:bob read on literal topic orders from 10.0.0.1",
            ),
        )
    ]
    assert cluster.run(CreateAcls((bob,))).records == []

    of_bob = DeleteAcls((AclFilter(principal="User:bob"), AclFilter(host="10.0.0.1")))
    assert cluster.run(DeleteAcls(of_bob.filters, validate_only=True)).records == []
    ran = cluster.run(of_bob)
    assert ran.records == [RemoveAccessControlEntry(acls.acl_id(bob))]
    assert isinstance(ran.reply, DeleteAclsReply)
    assert [each.deleted for each in ran.reply.results] == [(bob,), ()], "the first filter names it"
    assert isinstance(ran.happenings[0], told.AclsDeleted)
    assert cluster.run(of_bob).records == [] and len(cluster.image.acls) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"resource_type": ResourceType.ANY}, "can't have resource type 1"),
        ({"resource_type": 99}, "can't have resource type 99"),
        ({"pattern_type": PatternType.MATCH}, "LITERAL (3), PREFIXED (4)"),
        ({"operation": AclOperation.ANY}, "can't have operation 1"),
        ({"permission_type": 0}, "DENY (2), ALLOW (3)"),
        ({"resource_name": ""}, "the resource name is empty"),
        ({"resource_name": "a\nb"}, "printable"),
        ({"principal": "alice"}, "write User:alice"),
        ({"principal": ":alice"}, "write User:alice"),
        ({"principal": "User:"}, "'User:' is not a type, a colon and a name"),
        ({"principal": "User:" + "x" * 252}, "at most 256 bytes"),
        ({"resource_type": ResourceType.CLUSTER}, "kafka-cluster"),
        ({"host": "example.org"}, "no IPv4 or IPv6 address"),
        ({"host": "0::1"}, "write '::1'"),
    ],
)
def test_an_impossible_acl_is_told_why_and_the_others_are_created(changed: dict[str, object], said: str) -> None:
    cluster = Cluster()
    wrong = AclBinding(**{**ALICE._asdict(), **changed})
    bad, good = cluster.ask(CreateAcls((wrong, ALICE)), CreateAclsReply).results
    assert (bad.error, good.error) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert said in bad.message and len(cluster.image.acls) == 1


def test_an_impossible_filter_is_told_why_and_the_others_delete() -> None:
    cluster = Cluster()
    cluster.run(CreateAcls((ALICE,)))
    filters = (AclFilter(resource_type=0), AclFilter(operation=99), AclFilter(host=""), AclFilter(TOPIC))
    results = cluster.ask(DeleteAcls(filters), DeleteAclsReply).results
    assert [each.error is ErrorCode.NONE for each in results] == [False, False, False, True]
    assert "a filter can't have resource type 0: there are ANY (1), TOPIC (2)" in results[0].message
    assert not cluster.image.acls


def test_a_request_and_a_cluster_have_only_so_many_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    """More ACLs than one batch holds are deleted by several requests; several open filters look at few ACLs."""
    cluster, count = Cluster(), acls.ACLS_PER_REQUEST_MAX
    many = tuple(ALICE._replace(resource_name=f"t{n}") for n in range(count + 1))
    assert "1,001 ACLs" in refused(CreateAcls(many))
    assert "1,001 filters" in refused(DeleteAcls((AclFilter(),) * (count + 1)))
    cluster.run(CreateAcls(many[1:]))
    monkeypatch.setattr(acls, "ACLS_MAX", count)
    assert "may have 1,000" in refused(CreateAcls(many[:1]), cluster)
    monkeypatch.undo()
    cluster.run(CreateAcls(many[:1]))
    assert "to delete" in refused(DeleteAcls((AclFilter(),)), cluster)
    monkeypatch.setattr(acls, "LOOKS_MAX", count)
    assert "one filter in each request" in refused(DeleteAcls((AclFilter(host="::1"), AclFilter(host="::2"))), cluster)
    exact = DeleteAcls(tuple(AclFilter(*each) for each in many[:count]))
    assert len(cluster.run(exact).records) == count


# --- a dumb twin ------------------------------------------------------------------------------------------------------


def fits(acl: AclBinding, wanted: AclFilter) -> bool:
    """The sentences of Kafka's documentation, one after the other."""
    for have, want, anything in (
        (acl.resource_type, wanted.resource_type, ResourceType.ANY),
        (acl.operation, wanted.operation, AclOperation.ANY),
        (acl.permission_type, wanted.permission_type, PermissionType.ANY),
        (acl.principal, wanted.principal, None),
        (acl.host, wanted.host, None),
    ):
        if want not in (have, anything):
            return False
    name = wanted.resource_name
    if wanted.pattern_type == PatternType.MATCH:
        if name is None:
            return True
        is_prefix = acl.pattern_type == PREFIXED and name[: len(acl.resource_name)] == acl.resource_name
        return is_prefix or (acl.pattern_type == LITERAL and acl.resource_name in ("*", name))
    return wanted.pattern_type in (acl.pattern_type, PatternType.ANY) and name in (None, acl.resource_name)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_found_and_deleted_is_what_the_dumb_twin_says(seed: int) -> None:
    dice, cluster, twin = random.Random(seed), Cluster(), set[AclBinding]()
    names, principals, hosts = ("*", "o", "orders", "orders-2"), ("User:alice", "User:*", "Team:a"), ("*", "::1")
    kinds, operations = (TOPIC, ResourceType.GROUP), (READ, AclOperation.ALL, AclOperation.DESCRIBE)

    def binding() -> AclBinding:
        return AclBinding(
            dice.choice(kinds), dice.choice(names), dice.choice((LITERAL, PREFIXED)), dice.choice(principals),
            dice.choice(hosts), dice.choice(operations), dice.choice((ALLOW, DENY)),
        )  # fmt: skip

    def wanted() -> AclFilter:
        if dice.random() < 0.2:
            return AclFilter(*binding())
        return AclFilter(
            dice.choice((*kinds, ResourceType.ANY)), dice.choice((None, *names)), dice.choice([*PatternType]),
            dice.choice((None, None, *principals)), dice.choice((None, *hosts)),
            dice.choice((AclOperation.ANY, *operations)), dice.choice((PermissionType.ANY, ALLOW, DENY)),
        )  # fmt: skip

    deleted = 0
    for _ in range(60):
        new = tuple(binding() for _ in range(4))
        assert len(cluster.run(CreateAcls(new)).records) == len({*new} - twin)
        twin |= {*new}
        asked = wanted()
        assert acls.describe_acls(cluster.image, asked) == sorted(each for each in twin if fits(each, asked))
        filters = (wanted(), wanted()) if dice.random() < 0.3 else ()
        gone = {each for each in twin if any(fits(each, one) for one in filters)}
        results = cluster.ask(DeleteAcls(filters), DeleteAclsReply).results
        assert sorted(acl for each in results for acl in each.deleted) == sorted(gone)
        twin, deleted = twin - gone, deleted + len(gone)
        assert {AclBinding(*each[1:]) for each in cluster.image.acls.values()} == twin
    assert twin and deleted
