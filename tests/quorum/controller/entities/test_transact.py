"""Transactions: all of it or nothing, in one batch."""

import pytest

from metadata_log.format.batch import BATCH_BYTES_MAX
from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClientSession,
    EndClientSession,
    Entity,
    EntityKind,
    Owner,
    RemoveEntity,
)
from quorum.controller.entities import limits
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import ConfigAlteration, ConfigOperation, ConfigOperationKind
from quorum.controller.protocol.entity_commands import (
    OPERATIONS_MAX,
    AlterKinds,
    Condition,
    DeleteEntity,
    DeleteTopic,
    PutEntity,
    Transact,
    TransactReply,
)
from quorum.controller.protocol.topic_commands import NewTopic
from tests.quorum.controller.cluster import Cluster
from tests.quorum.controller.entities.embedder import LOCK, Embedder


def _retention(topic: str, value: str = "1000") -> ConfigAlteration:
    return ConfigAlteration(TOPIC_RESOURCE, topic, (ConfigOperation(ConfigOperationKind.SET, "retention.ms", value),))


def test_the_version_is_the_offset_of_the_last_write() -> None:
    me = Embedder()
    base = me.cluster.image.offset
    first = me.transact(PutEntity(("a", "1"), b"x"), PutEntity(("a", "2"), b"y"))
    assert [each.version for each in first.operations] == [base, base + 1]
    second = me.put("a", "1", b"z")
    found = me.cluster.image.entity("a", "1")
    assert found is not None
    assert (found.version, found.created, found.value) == (second.version, base, b"z")
    assert second.version == base + 2


def test_a_compare_and_set_wins_only_with_the_current_version() -> None:
    """Two workers read version 500 of a task; the second one to write finds another version."""
    me = Embedder()
    read = me.put("task", "7").version
    mine = (Condition(("task", "7"), version=read),)
    won = me.transact(PutEntity(("task", "7"), b"worker 1"), conditions=mine)
    lost = me.transact(PutEntity(("task", "7"), b"worker 2"), conditions=mine)
    assert won.failed is None
    assert lost.failed is not None
    assert lost.failed.entity is not None
    assert (lost.failed.number, lost.failed.entity.version) == (0, won.operations[0].version)
    assert lost.operations == ()
    entity = me.cluster.image.entity("task", "7")
    assert entity is not None
    assert entity.value == b"worker 1"


@pytest.mark.parametrize(
    ("condition", "holds_for_1", "holds_for_none"),
    [
        (Condition(("k", "?"), exists=True), True, False),
        (Condition(("k", "?"), exists=False), False, True),
        (Condition(("k", "?"), value=b"v"), True, False),
        (Condition(("k", "?"), value=b""), False, False),
        (Condition(("k", "?"), version_at_most=1 << 40), True, False),
        (Condition(("k", "?"), version_at_most=0), False, False),
    ],
)
def test_a_condition(condition: Condition, holds_for_1: bool, holds_for_none: bool) -> None:
    me = Embedder()
    me.put("k", "1")
    assert condition.holds(me.cluster.image.entity("k", "1")) is holds_for_1
    assert condition.holds(me.cluster.image.entity("k", "no")) is holds_for_none


def test_all_conditions_see_the_state_before_the_transaction() -> None:
    me = Embedder()
    me.put("k", "old")
    swapped = me.transact(
        DeleteEntity(("k", "old")),
        PutEntity(("k", "new"), b"v"),
        conditions=(Condition(("k", "old"), exists=True), Condition(("k", "new"), exists=False)),
    )
    assert swapped.failed is None
    assert me.names("k") == ["new"]


def test_a_delete_tells_the_version_that_was_deleted() -> None:
    me = Embedder()
    put = me.put("k", "1")
    assert me.delete("k", "1").version == put.version
    offset = me.cluster.image.offset
    assert me.delete("k", "1").version == -1
    assert me.cluster.image.offset == offset, "nothing had to be written"


def test_a_topic_its_task_and_a_config_are_one_batch() -> None:
    me = Embedder(brokers=3)
    me.cluster.create("old", 1, 3)
    me.cluster.create("kept", 1, 3)
    (decision,) = me.cluster.decisions(
        Transact(
            (),
            (
                PutEntity(("task", "7"), b"orders"),
                NewTopic("orders", 2, 3),
                _retention("kept"),
                DeleteTopic("old"),
            ),
        )
    )
    image = me.cluster.image
    topic = image.topic("orders")
    assert topic is not None
    assert image.topic("old") is None
    assert image.config(TOPIC_RESOURCE, "kept") == {"retention.ms": "1000"}
    reply = decision.answer(image.offset)
    assert isinstance(reply, TransactReply)
    assert reply.operations[0].version == me.version("task", "7")
    assert [each.topic_id for each in reply.operations][1] == topic.topic_id
    assert [type(happening).__name__ for happening in decision.happenings] == [
        "ConfigsChanged", "TopicsDeleted", "TopicsCreated",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (NewTopic("kept", 1, 3), E.TOPIC_ALREADY_EXISTS),
        (NewTopic("wide", 1, 9), E.INVALID_REPLICATION_FACTOR),
        (DeleteTopic("nothing"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (_retention("nothing"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (_retention("kept", "soon"), E.INVALID_CONFIG),
        (PutEntity(("task", "8"), b"", owner=Owner(None, 9, 1)), E.UNKNOWN_SESSION),
        (PutEntity(("task", "8"), b"", keep_owner=True), E.INVALID_REQUEST),
        (PutEntity(("task", "8"), b"", ttl_ms=999), E.INVALID_REQUEST),
        (PutEntity(("task", "8"), b"", ttl_ms=1_000, keep_owner=True), E.INVALID_REQUEST),
        (PutEntity(("Task", "8"), b""), E.INVALID_REQUEST),
        (PutEntity(("task", ""), b""), E.INVALID_REQUEST),
        (PutEntity(("task", "8"), bytes(limits.VALUE_BYTES_DEFAULT + 1)), E.POLICY_VIOLATION),
        (NewTopic("huge", 20_000, 3), E.POLICY_VIOLATION),
    ],
)
def test_one_impossible_operation_refuses_all_and_is_named(operation: object, code: E) -> None:
    me = Embedder(brokers=3)
    me.cluster.create("kept", 1, 3)
    first = PutEntity(("task", "7"), b"v")
    found, text = me.refused(Transact((), (first, operation)))  # type: ignore[arg-type]
    assert found is code
    assert "operation 1" in text
    assert me.version("task", "7") is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PutEntity(LOCK, b""), DeleteEntity(LOCK)),
        (NewTopic("orders", 1, 1), DeleteTopic("orders")),
        (DeleteTopic("orders"), _retention("orders")),
        (ConfigAlteration(BROKER_RESOURCE, "", ()), ConfigAlteration(BROKER_RESOURCE, "", ())),
    ],
)
def test_nothing_is_named_twice(first: object, second: object) -> None:
    """Else the effect would depend on the order of the operations."""
    me = Embedder(brokers=1)
    me.cluster.create("orders", 1, 1)
    code, text = me.refused(Transact((), (first, second)))  # type: ignore[arg-type]
    assert code is E.INVALID_REQUEST
    assert "operations 0 and 1" in text


def test_a_transaction_has_1_to_128_operations() -> None:
    me = Embedder()
    many = tuple(PutEntity(("k", str(number)), b"v") for number in range(OPERATIONS_MAX + 1))
    assert me.refused(Transact((), ()))[0] is E.INVALID_REQUEST
    assert me.refused(Transact((), many))[0] is E.INVALID_REQUEST
    assert len(me.transact(*many[1:]).operations) == OPERATIONS_MAX


def test_values_beyond_one_batch_are_refused_before_they_are_encoded() -> None:
    me = Embedder()
    size = BATCH_BYTES_MAX // 20
    many = tuple(PutEntity(("k", str(number)), bytes(size)) for number in range(21))
    assert me.refused(Transact((), many))[0] is E.RECORD_BATCH_TOO_LARGE


def test_below_the_level_of_entities_every_command_is_refused() -> None:
    cluster = Cluster(config=ControllerConfig(bootstrap_metadata_version=2))
    me = Embedder()
    me.cluster = cluster
    assert me.refused_put("k", "1") is E.UNSUPPORTED_VERSION
    assert me.refused(AlterKinds((EntityKind("k", "", 0, 0, 0),)))[0] is E.UNSUPPORTED_VERSION


# --- limits --------------------------------------------------------------------------------------------------------


def test_a_full_kind_takes_no_new_entity_but_an_exchange() -> None:
    me = Embedder()
    me.cluster.run(AlterKinds((EntityKind("job", "", 2, 0, 0),)))
    me.put("job", "1")
    me.put("job", "2")
    assert me.refused_put("job", "3") is E.POLICY_VIOLATION
    me.put("job", "2", b"again")
    me.transact(DeleteEntity(("job", "1")), PutEntity(("job", "3"), b"v"))
    assert me.names("job") == ["2", "3"]


def test_a_kind_that_is_too_large_may_only_shrink() -> None:
    """An operator lowers the limit below the use: nothing is deleted, and nothing may grow."""
    me = Embedder()
    me.put("job", "1", bytes(100))
    me.put("job", "2", bytes(100))
    me.cluster.run(AlterKinds((EntityKind("job", "", 1, 50, 0),)))
    assert me.refused_put("job", "1", bytes(101)) is E.POLICY_VIOLATION
    me.put("job", "1", bytes(99))
    me.delete("job", "2")


def test_the_value_of_a_kind_has_the_declared_size(monkeypatch: pytest.MonkeyPatch) -> None:
    me = Embedder()
    me.cluster.run(AlterKinds((EntityKind("blob", "", 0, 0, 256 << 10), EntityKind("flag", "", 0, 0, 1))))
    me.put("blob", "1", bytes(256 << 10))
    assert me.refused_put("blob", "2", bytes((256 << 10) + 1)) is E.POLICY_VIOLATION
    assert me.refused_put("flag", "1", b"no") is E.POLICY_VIOLATION
    me.put("flag", "1", b"n")


def test_the_cluster_has_limits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    me = Embedder()
    me.put("a", "1", bytes(10))
    monkeypatch.setattr(limits, "ENTITIES_MAX", 1)
    assert me.refused_put("b", "1") is E.POLICY_VIOLATION
    monkeypatch.setattr(limits, "ENTITIES_MAX", 10)
    monkeypatch.setattr(limits, "ENTITY_BYTES_MAX", 12)
    assert me.refused_put("b", "1", bytes(2)) is E.POLICY_VIOLATION
    monkeypatch.setattr(limits, "ENTITY_BYTES_MAX", 100)
    monkeypatch.setattr(limits, "KINDS_MAX", 1)
    assert me.refused_put("b", "1") is E.POLICY_VIOLATION
    assert me.refused(AlterKinds((EntityKind("b", "", 0, 0, 0),)))[0] is E.POLICY_VIOLATION
    me.put("a", "2")


def test_an_owner_has_at_most_1_000_entities() -> None:
    """So that the batch that ends its session has room for them."""
    me = Embedder()
    owner = me.open()
    for begin in range(0, 1_000, 100):
        me.transact(*(PutEntity(("k", str(begin + n)), b"", owner=owner) for n in range(100)))
    assert me.refused_put("k", "one more", owner=owner) is E.POLICY_VIOLATION
    me.put("k", "7", b"again", owner=owner)
    (end,) = me.wait(9_100)
    assert len(end.records) == 1_001


# --- TTL -----------------------------------------------------------------------------------------------------------


def test_an_entity_with_a_ttl_has_a_session_of_its_own() -> None:
    me = Embedder()
    (decision,) = me.cluster.decisions(Transact((), (PutEntity(("cache", "a"), b"v", ttl_ms=5_000),)))
    session, entity = decision.records
    assert isinstance(session, ClientSession)
    assert isinstance(entity, Entity)
    assert (session.name, session.principal, session.timeout_ms) == ("ttl cache/a", "", 5_000)
    me.wait(4_900)
    assert me.names("cache") == ["a"]
    (end,) = me.wait(130)
    assert [type(record) for record in end.records] == [RemoveEntity, EndClientSession]
    assert me.names("cache") == []
    assert len(me.cluster.image.client_sessions) == 0


def test_a_new_write_with_a_ttl_counts_anew_in_the_same_batch() -> None:
    me = Embedder()
    me.put("cache", "a", ttl_ms=5_000)
    me.wait(4_000)
    (decision,) = me.cluster.decisions(Transact((), (PutEntity(("cache", "a"), b"w", ttl_ms=5_000),)))
    assert [type(record) for record in decision.records] == [ClientSession, Entity, EndClientSession]
    me.wait(4_000)
    assert me.names("cache") == ["a"]
    assert len(me.cluster.image.client_sessions) == 1


def test_a_write_without_a_ttl_ends_the_ttl() -> None:
    me = Embedder()
    me.put("cache", "a", ttl_ms=5_000)
    me.put("cache", "b", ttl_ms=5_000)
    me.put("cache", "c", ttl_ms=5_000)
    me.put("cache", "a")
    me.delete("cache", "b")
    me.put("cache", "c", b"new", keep_owner=True)
    assert len(me.cluster.image.client_sessions) == 1, "that of c, which keeps its owner"
    me.wait(60_000)
    assert me.names("cache") == ["a"]


def test_nobody_else_can_use_the_session_of_a_ttl() -> None:
    me = Embedder()
    me.put("cache", "a", ttl_ms=5_000)
    entity = me.cluster.image.entity("cache", "a")
    assert entity is not None
    assert entity.owner is not None
    assert me.refused_put("cache", "b", owner=entity.owner) is E.UNKNOWN_SESSION
    assert not me.keep(entity.owner), "a contact does not lengthen a TTL"


def test_a_put_says_whose_the_entity_is() -> None:
    """Without an owner the entity has none from now on, whoever had it."""
    me = Embedder()
    owner = me.open()
    me.put("k", "1", owner=owner)
    me.put("k", "1", b"w", keep_owner=True)
    kept = me.cluster.image.entity("k", "1")
    assert kept is not None
    assert kept.owner == owner
    me.put("k", "1")
    freed = me.cluster.image.entity("k", "1")
    assert freed is not None
    assert freed.owner is None
