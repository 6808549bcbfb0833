"""Client quotas (KIP-546): which entities and values there are, what is written, and which filter finds what."""

import math
import random

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import ClientQuota, QuotaEntity
from quorum.controller.protocol import happenings as told
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.rights.quota_commands import (
    AlterClientQuotas,
    AlterClientQuotasReply,
    QuotaAlteration,
    QuotaOperation,
)
from quorum.controller.rights import quotas
from quorum.controller.rights.described_quotas import DescribedQuotas, Match, QuotaComponent, describe_quotas, page_of
from tests.quorum.controller.cluster import Cluster

RATE, PERCENT, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"
ALICE, WEB, ANYONE = QuotaEntity("user", "alice"), QuotaEntity("client-id", "web"), QuotaEntity("user", None)
Entity = tuple[QuotaEntity, ...]


def alter(*alterations: tuple[Entity, str, float | None], dry: bool = False) -> AlterClientQuotas:
    return AlterClientQuotas(
        tuple(QuotaAlteration(entity, (QuotaOperation(key, value),)) for entity, key, value in alterations), dry
    )


def refusal(entity: Entity, key: str = RATE, value: float | None = 1.0) -> str:
    """The text of the refusal; nothing is written."""
    cluster = Cluster()
    reply = cluster.ask(alter((entity, key, value)), AlterClientQuotasReply)
    (result,) = reply.results
    assert result.error is ErrorCode.INVALID_REQUEST and not cluster.image.quotas
    return result.message


def test_a_quota_is_set_changed_and_removed() -> None:
    """The parts of an entity may have any order; the record has them by type. A repetition writes nothing."""
    cluster = Cluster()
    entity = (WEB, ALICE)
    for given in (entity, entity[::-1]):
        ran = cluster.run(alter((given, RATE, 5.0)))
        assert ran.records == ([ClientQuota(entity, RATE, 5.0)] if given == entity else [])
    assert cluster.run(alter((entity, RATE, 6.0), dry=True)).records == []
    assert cluster.run(alter((entity, RATE, 6.0))).happenings == [
        told.ClientQuotasChanged(1, ("user alice, client-id web: producer_byte_rate",))
    ]
    assert cluster.run(alter((entity, RATE, None))).records == [ClientQuota(entity, RATE, None)]
    assert cluster.run(alter((entity, RATE, None))).records == [] and not cluster.image.quotas


def test_entities_are_independent_and_the_keys_of_one_go_together() -> None:
    cluster = Cluster()
    both = QuotaAlteration((ALICE,), (QuotaOperation(RATE, 5.0), QuotaOperation(PERCENT, -1.0)))
    command = AlterClientQuotas((both, QuotaAlteration((WEB,), (QuotaOperation(PERCENT, 0.5),))))
    results = cluster.ask(command, AlterClientQuotasReply).results
    assert [each.error for each in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert [*cluster.image.quotas] == [((WEB,), PERCENT)]


@pytest.mark.parametrize(
    ("entity", "said"),
    [
        ((), "empty"),
        ((QuotaEntity("group", "g"),), "no entity type 'group'"),
        ((ALICE, ANYONE), "a type twice"),
        ((QuotaEntity("ip", "10.0.0.1"), ALICE), "goes with no other part"),
        ((QuotaEntity("ip", "example.org"),), "no IPv4 or IPv6 address"),
        ((QuotaEntity("ip", "0:0::1"),), "write '::1'"),
        ((QuotaEntity("user", ""),), "leave the name out"),
        ((QuotaEntity("user", "a\nb"),), "printable"),
        ((QuotaEntity("user", "é" * 129),), "at most 256 bytes"),
    ],
)
def test_an_impossible_entity_is_told_why(entity: Entity, said: str) -> None:
    assert said in refusal(entity)


@pytest.mark.parametrize(
    ("entity", "key", "value", "said"),
    [
        ((ALICE,), "produce_rate", 1.0, "the keys are producer_byte_rate"),
        ((ALICE,), "produce_rate", None, "there is no quota 'produce_rate'"),
        ((ALICE,), CONNECTIONS, 1.0, "there is no quota"),
        ((QuotaEntity("ip", None),), RATE, 1.0, "there is no quota"),
        ((ALICE,), RATE, 0.0, "greater than 0"),
        ((ALICE,), RATE, math.nan, "greater than 0"),
        ((ALICE,), RATE, -math.inf, "greater than 0"),
        ((ALICE,), PERCENT, math.inf, "must be finite"),
        ((ALICE,), RATE, 1.5, "whole number"),
        ((ALICE,), RATE, 2.0**63, "at most"),
        ((QuotaEntity("ip", "::1"),), CONNECTIONS, 2.0**31, "at most"),
    ],
)
def test_an_impossible_value_is_told_why(entity: Entity, key: str, value: float | None, said: str) -> None:
    assert said in refusal(entity, key, value)


def test_a_request_names_each_entity_and_key_once() -> None:
    twice = alter(((ALICE, WEB), RATE, 1.0), ((WEB, ALICE), PERCENT, 1.0))
    results = Cluster().ask(twice, AlterClientQuotasReply).results
    assert all("more than once" in each.message for each in results)
    operations = (QuotaOperation(RATE, 1.0), QuotaOperation(RATE, None))
    (result,) = (
        Cluster().ask(AlterClientQuotas((QuotaAlteration((ALICE,), operations),)), AlterClientQuotasReply).results
    )
    assert "altered twice" in result.message


def test_a_request_and_a_cluster_have_only_so_many_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full cluster still changes and removes quotas."""
    cluster = Cluster()
    many = tuple(((QuotaEntity("user", f"u{n}"),), RATE, 1.0) for n in range(quotas.OPERATIONS_MAX + 1))
    with pytest.raises(ControllerError) as refused:
        cluster.run(alter(*many))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    cluster.run(alter(*many[1:]))
    monkeypatch.setattr(quotas, "QUOTAS_MAX", quotas.OPERATIONS_MAX)
    with pytest.raises(ControllerError, match="remove some first"):
        cluster.run(alter(many[0]))
    cluster.run(alter((many[1][0], RATE, 2.0), (many[2][0], RATE, None), many[0]))
    assert len(cluster.image.quotas) == quotas.OPERATIONS_MAX


# --- filters, and a dumb twin -------------------------------------------------------------------------------------------

NAMES = {"user": ("alice", "bob", None), "client-id": ("web", None), "ip": ("10.0.0.1", "::1", None)}
ENTITIES: list[Entity] = [
    *[(QuotaEntity(kind, name),) for kind, names in NAMES.items() for name in names],
    *[
        (QuotaEntity("client-id", client), QuotaEntity("user", user))
        for client in ("web", None)
        for user in NAMES["user"]
    ],
]


def passes(entity: Entity, wanted: dict[str, str], strict: bool) -> bool:
    """`wanted`: type -> a name, "*" for any, "" for the default."""
    names = {kind: name or "" for kind, name in entity}
    return all(names.get(kind) == name or (name == "*" and kind in names) for kind, name in wanted.items()) and (
        not strict or set(names) == set(wanted)
    )


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_and_found_is_what_the_dumb_twin_says(seed: int) -> None:
    """Any alterations, good ones and bad ones; any filter, strict or not; pages of any size."""
    dice, cluster, twin = random.Random(seed), Cluster(), dict[tuple[Entity, str], float]()
    for _ in range(60):
        entity, key = dice.choice(ENTITIES), dice.choice((RATE, PERCENT, CONNECTIONS))
        value = dice.choice((None, 1.0, 2.0, 0.5, -1.0))
        fits = (key == CONNECTIONS) is (entity[0].entity_type == "ip")
        is_good = fits and (value is None or (value > 0 and (key == PERCENT or value != 0.5)))
        ran = cluster.run(alter((entity[:: dice.choice((1, -1))], key, value)))
        assert isinstance(ran.reply, AlterClientQuotasReply)
        assert (ran.reply.results[0].error is ErrorCode.NONE) is is_good
        assert bool(ran.records) is (is_good and twin.get((entity, key)) != value)
        if is_good:
            twin.pop((entity, key), None)
            twin |= {} if value is None else {(entity, key): value}
        assert {place: quota.value for place, quota in cluster.image.quotas.items()} == twin
    for _ in range(60):
        kinds = dice.choice(((), ("user",), ("client-id",), ("user", "client-id"), ("ip",)))
        wanted, strict = (
            {kind: dice.choice(("*", *[name or "" for name in NAMES[kind]])) for kind in kinds},
            dice.random() < 0.5,
        )
        matches = {"*": Match.ANY, "": Match.DEFAULT}
        components = [
            QuotaComponent(kind, matches.get(name, Match.EXACT), "" if name in matches else name)
            for kind, name in wanted.items()
        ]
        found = describe_quotas(cluster.image, components, strict=strict)
        assert {(each.entity, key): value for each in found for key, value in each.values} == {
            place: value for place, value in twin.items() if passes(place[0], wanted, strict)
        }
        limit, after, paged = dice.randint(1, 3), None, list[DescribedQuotas]()
        while True:
            page = page_of(found, after, limit)
            paged += page.entities
            if page.is_last:
                break
            after = page.entities[-1].entity
        assert paged == found
    assert twin
