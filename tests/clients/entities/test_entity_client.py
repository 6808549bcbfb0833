"""EntityClient against a cluster in memory: reads, writes, transactions, and answers that are lost."""

import asyncio
from typing import Any

import pytest

from metadata_log.format.errors import ErrorCode
from metaquorum import (
    TOPIC_RESOURCE,
    AdminError,
    AlterConfigs,
    ConditionFailed,
    CreateTopic,
    DeleteEntity,
    DeleteTopic,
    EntityClient,
    EntityOwner,
    KindLimits,
    MayHaveHappened,
    Operation,
    PutEntity,
    Token,
    absent,
    exists,
    value_is,
    version_at_most,
    version_is,
)
from tests.clients.fake_entities import FakeCluster, client_of, nodes, one_client


async def test_an_entity_is_put_read_and_deleted_under_its_versions() -> None:
    cluster = FakeCluster()
    async with one_client(cluster) as client:
        first = await client.put("shard", "7", b"broker 1", if_absent=True)
        second = await client.put("shard", "7", b"broker 2", if_version=first)
        entity = await client.get("shard", "7")
        assert entity is not None
        assert (entity.value, entity.token, entity.created, str(entity)) == (
            b"broker 2",
            second,
            first.offset,
            "shard/7@102",
        )
        assert await client.delete("shard", "7", if_version=second) == second
        assert await client.get("shard", "7") is None
        assert await client.delete("shard", "7") is None


@pytest.mark.parametrize("value", [None, "text", 7])
async def test_a_value_that_is_no_bytes_is_refused_and_nothing_is_done(value: Any) -> None:
    """None was written as an empty value, over the value that was there."""
    cluster = FakeCluster()
    version = cluster.put("shard", "7", b"theirs")
    async with one_client(cluster) as client:
        with pytest.raises(TypeError, match="bytes"):
            await client.put("shard", "7", value)
        entity = await client.get("shard", "7")
    assert entity is not None and entity.version == version


async def test_a_condition_that_does_not_hold_names_what_is_there() -> None:
    cluster = FakeCluster()
    version = cluster.put("shard", "7", b"theirs")
    async with one_client(cluster) as client:
        with pytest.raises(ConditionFailed, match=rf"shard 7 exists already \(version {version}\)") as caught:
            await client.put("shard", "7", b"mine", if_absent=True)
        assert caught.value.entity is not None
        assert caught.value.entity.version == version
        with pytest.raises(ConditionFailed, match="shard 8 does not exist"):
            await client.delete("shard", "8", if_version=Token(0, 5))
        with pytest.raises(ValueError, match="contradict"):
            await client.put("shard", "7", b"", if_absent=True, if_version=1)
        assert cluster.entities["shard", "7"].value == b"theirs"


async def test_a_transaction_is_done_as_a_whole_or_not_at_all() -> None:
    cluster = FakeCluster()
    lock = cluster.put("lock", "a", b"me")
    operations: list[Operation] = [
        PutEntity("shard", "7", b"x"),
        DeleteEntity("lock", "a"),
        DeleteEntity("lock", "b"),
        CreateTopic("orders", partitions=12, configs={"retention.ms": "1"}),
        DeleteTopic("payments"),
        AlterConfigs(TOPIC_RESOURCE, "orders", {"retention.ms": "1", "retention.bytes": None}),
    ]
    async with one_client(cluster) as client:
        refused = await client.transact([exists("lock", "a"), absent("lock", "a")], operations)
        assert not refused.succeeded
        assert refused.failed is not None
        assert refused.failed.place == 1
        assert cluster.names("shard") == []
        conditions = [
            version_is("lock", "a", lock),
            version_at_most("lock", "a", lock + 5),
            value_is("lock", "a", b"me"),
            absent("shard", "7"),
        ]
        done = await client.transact(conditions, operations)
        assert done.succeeded
        base = done.offset - 6  # the last record is the outcome of the request
        assert [result.version for result in done.results] == [base, lock, -1, -1, -1, -1]
        assert done.results[3].topic_id == bytes(16)
        assert done.token() == Token(0, base)
        assert cluster.names("lock") == []


async def test_entities_are_listed_in_pages_by_prefix_and_range() -> None:
    cluster = FakeCluster()
    for name in ("a/1", "a/2", "a/3", "b/1"):
        cluster.put("shard", name, name.encode())
    async with one_client(cluster) as client:
        assert [each.name async for each in client.list("shard", page_size=1)] == ["a/1", "a/2", "a/3", "b/1"]
        assert [each.value async for each in client.list("shard", "a/", from_name="a/2")] == [b"a/2", b"a/3"]
        assert [each.name async for each in client.list("shard", to_name="a/2")] == ["a/1"]
        assert await client.count("shard", "a/") == 3
        found = await client.get_many([("shard", "b/1"), ("shard", "z"), ("shard", "a/1"), ("shard", "b/1")])
        assert [None if each is None else each.name for each in found] == ["b/1", None, "a/1", "b/1"]
        many = await client.get_many([("shard", f"{number}") for number in range(300)])
        assert many == [None] * 300


async def test_kinds_are_declared_described_and_removed() -> None:
    async with one_client(FakeCluster()) as client:
        await client.declare_kinds(KindLimits("shard", schema='{"type": "object"}', entities_max=10))
        (shard,) = [kind async for kind in client.kinds()]
        assert shard.limits == KindLimits("shard", '{"type": "object"}', 10)
        assert shard.is_declared
        await client.remove_kinds("shard")
        assert [kind async for kind in client.kinds()] == []


async def test_a_lost_answer_is_asked_for_again_and_the_write_is_made_once() -> None:
    """Without the request id, the second attempt would find the client's own write in the way of its condition."""
    cluster = FakeCluster()
    cluster.lost_answers = 1
    async with one_client(cluster) as client:
        token = await client.put("shard", "7", b"x", if_absent=True)
        assert cluster.entities["shard", "7"].version == token.offset
        assert cluster.end == token.offset + 2


async def test_a_condition_that_fails_after_a_lost_attempt_leaves_the_outcome_open() -> None:
    """The lost attempt may still arrive, when the entity in its way was deleted."""
    cluster = FakeCluster()
    cluster.put("lock", "a", b"theirs")
    cluster.lost_requests = 1
    async with one_client(cluster) as client:
        with pytest.raises(MayHaveHappened, match="a condition did not hold at the next attempt"):
            await client.put("lock", "a", b"mine", if_absent=True)
        cluster.delete("lock", "a")
        cluster.arrive()
        assert cluster.entities["lock", "a"].value == b"mine"


async def test_a_version_that_is_past_fails_for_sure_even_after_a_lost_attempt() -> None:
    """Versions only grow: the lost attempt finds another version, too, whenever it arrives."""
    cluster = FakeCluster()
    old = cluster.put("shard", "7", b"old")
    async with one_client(cluster) as client:
        assert await client.get("shard", "7") is not None
        cluster.put("shard", "7", b"new")
        cluster.lost_requests = 1
        with pytest.raises(ConditionFailed):
            await client.put("shard", "7", b"mine", if_version=old)
        cluster.arrive()
        assert cluster.entities["shard", "7"].value == b"new"
        cluster.delete("shard", "7")
        cluster.lost_requests = 1
        with pytest.raises(ConditionFailed, match="does not exist"):
            await client.put("shard", "7", b"mine", if_version=old)


async def test_a_client_goes_on_at_the_next_node() -> None:
    async with nodes(cluster := FakeCluster(), 2) as running, client_of(running) as client:
        await client.put("shard", "1", b"")
        await running[0].stop()
        await client.put("shard", "2", b"")
        assert cluster.names("shard") == ["1", "2"]


async def test_two_calls_at_a_time_do_not_move_each_other_back_to_the_node_that_is_gone() -> None:
    """Both calls fail at node 1 in the same moment. The first one moves the client on to node 2, and the second one leaves it
    there."""
    async with nodes(FakeCluster(), 2) as running, client_of(running, timeout_s=2) as client:
        await running[0].stop()
        assert await asyncio.gather(*(client.get("shard", "1") for _ in range(2))) == [None, None]


async def test_a_put_for_a_session_that_has_ended_is_refused() -> None:
    async with one_client(FakeCluster()) as client:
        with pytest.raises(AdminError, match="the session has ended") as caught:
            await client.transact([], [PutEntity("worker", "a", b"", EntityOwner(bytes(16), None, 5))])
        assert caught.value.code is ErrorCode.UNKNOWN_SESSION


async def test_after_a_recovery_the_client_forgets_the_offsets_of_the_lost_history() -> None:
    """A change that carries an offset above the end of the log would be taken for one from the future."""
    cluster = FakeCluster()
    cluster.end = 1_000
    async with one_client(cluster) as client:
        await client.put("shard", "1", b"")
        cluster.generation, cluster.end = 1, 500
        token = await client.put("shard", "2", b"")
        assert token == Token(1, 500)
        assert token > Token(0, 1_000)
        assert client._high_watermark == 502


async def test_a_client_needs_an_endpoint_and_a_closed_port_is_named() -> None:
    async with EntityClient(["127.0.0.1:1"], timeout_s=0.2) as client:
        with pytest.raises(AdminError, match=r"127\.0\.0\.1:1 cannot be reached"):
            await asyncio.create_task(client.get("shard", "1"))
