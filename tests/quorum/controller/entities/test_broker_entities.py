"""Entities that belong to a broker end with its session, in the same batch, however the session ends."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.records import MetadataRecord, Owner, RegisterBroker, RemoveEntity
from quorum.controller.protocol.commands import FenceBroker, ReportDeath, UnregisterBroker
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.entity_commands import PutEntity
from quorum.controller.sessions import ephemerals
from tests.quorum.controller.cluster import Cluster, Run, incarnation, registration
from tests.quorum.controller.entities.embedder import Embedder


def _owner(me: Embedder, broker_id: int) -> Owner:
    return Owner(None, broker_id, me.cluster.image.brokers[broker_id].broker_epoch)


def _with_shards(broker_id: int = 1, partitions: int = 4, config: ControllerConfig | None = None) -> Embedder:
    """Three brokers with a topic; one of them owns two shards, and nobody owns the third."""
    me = Embedder()
    me.cluster = Cluster(3, config=config)
    me.cluster.create("orders", partitions, 3)
    for name in ("a", "b"):
        me.put("shard", name, owner=_owner(me, broker_id))
    me.put("shard", "nobody's")
    return me


def _silent(me: Embedder) -> Run:
    """Broker 1 is not heard for a session; the others are."""
    cluster = me.cluster
    for _ in range(4):
        cluster.now_ms += 2_500
        cluster.contact(0)
        cluster.contact(2)
    due = cluster.controller.due(cluster.image, cluster.now_ms)
    assert due is not None
    return cluster.run(due)


def _ends(me: Embedder, how: str) -> list[MetadataRecord]:
    """Broker 1's session ends; returns the records."""
    cluster = me.cluster
    match how:
        case "silence":
            return _silent(me).records
        case "operator":
            return cluster.run(FenceBroker(1, "to look at it")).records
        case "death":
            return cluster.run(ReportDeath(1, (incarnation(1),))).records
        case "asked":
            return cluster.contact(1, wants_fence=True)
        case _:
            return cluster.run(replace(registration(1, life=2), previous_incarnation_id=incarnation(1))).records


@pytest.mark.parametrize("how", ["silence", "operator", "death", "asked", "superseded"])
def test_the_batch_that_ends_a_brokers_session_removes_its_entities(how: str) -> None:
    me = _with_shards()
    records = _ends(me, how)
    removed = [record for record in records if isinstance(record, RemoveEntity)]
    assert removed == [RemoveEntity("shard", "a"), RemoveEntity("shard", "b")]
    assert me.names("shard") == ["nobody's"]
    assert len(me.cluster.image.owned) == 0


def test_the_registration_is_the_last_record_of_the_batch_that_supersedes() -> None:
    """M1: the epoch is the offset of the registration."""
    me = _with_shards()
    assert isinstance(_ends(me, "superseded")[-1], RegisterBroker)
    assert me.cluster.image.brokers[1].broker_epoch == me.cluster.image.offset - 1


def test_a_fencing_of_many_batches_removes_the_entities_in_the_last_one() -> None:
    """Meanwhile the registration says unfenced, and the shards have their owner."""
    me = _with_shards(partitions=300, config=ControllerConfig(slice_changes_max=50, slice_partitions_max=100))
    cluster = me.cluster
    decisions = cluster.decisions(FenceBroker(1, "to look at it"))
    assert len(decisions) > 3
    for decision in decisions[:-1]:
        assert not any(isinstance(record, RemoveEntity) for record in decision.records)
    assert sum(isinstance(record, RemoveEntity) for record in decisions[-1].records) == 2


def test_the_last_batch_has_room_for_the_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice that is too large is a batch of its own, and the fence follows in the next one."""
    monkeypatch.setattr("quorum.controller.brokers.departures.CHANGES_BESIDE_MAX", 3)
    me = _with_shards(partitions=8)
    moves, last = me.cluster.decisions(FenceBroker(1, "to look at it"))
    assert len(moves.records) == 8
    assert not moves.happenings
    assert [type(record).__name__ for record in last.records][:2] == ["RemoveEntity", "RemoveEntity"]
    assert "BrokerFenced" in [type(happening).__name__ for happening in last.happenings]
    assert "ReplicasMoved" in [type(happening).__name__ for happening in last.happenings]
    assert me.cluster.image.brokers[1].fenced


def test_1_000_entities_with_the_longest_names_fit_the_last_batch() -> None:
    size = sum(len(record.kind) + len(record.name) + 16 for record in [RemoveEntity("k" * 64, "n" * 512)] * 1_000)
    assert size + ephemerals.CHANGES_BESIDE_MAX * 500 < 1 << 20


def test_a_fenced_broker_can_own_nothing() -> None:
    me = _with_shards()
    _ends(me, "operator")
    assert me.refused_put("shard", "a", owner=_owner(me, 1)) is E.UNKNOWN_SESSION
    assert me.refused_put("shard", "a", owner=Owner(None, 77, 1)) is E.UNKNOWN_SESSION
    assert me.refused_put("shard", "a", owner=_owner(me, 2)._replace(epoch=1)) is E.UNKNOWN_SESSION


def test_a_broker_that_is_fenced_meanwhile_loses_what_it_gets_meanwhile() -> None:
    """Its registration still says unfenced; the last batch removes the new shard, too."""
    me = _with_shards(partitions=300, config=ControllerConfig(slice_changes_max=50, slice_partitions_max=100))
    cluster = me.cluster
    first = cluster.controller.decide(cluster.image, FenceBroker(1, "x"), cluster.now_ms)
    cluster.fold(first)
    assert first.then is not None
    me.transact(PutEntity(("shard", "late"), b"", owner=_owner(me, 1)))
    cluster.run(first.then)
    assert me.names("shard") == ["nobody's"]


def test_an_unregistered_broker_owns_nothing() -> None:
    me = Embedder()
    me.cluster = Cluster(3)
    me.put("shard", "a", owner=_owner(me, 1))
    _ends(me, "operator")
    me.cluster.now_ms += 60_000
    me.cluster.run(UnregisterBroker(1))
    assert me.names("shard") == []


def test_the_same_process_may_register_again_and_keeps_its_entities() -> None:
    """The epoch stays, and so does the session."""
    me = _with_shards()
    me.cluster.run(registration(1, rack="r9"))
    assert me.names("shard") == ["a", "b", "nobody's"]
