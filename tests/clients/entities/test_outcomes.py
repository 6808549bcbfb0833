"""What a client says about a transaction that did nothing, and what it takes as a schema."""

import dataclasses
import json

import pytest

from metaquorum import (
    Condition,
    ConditionFailed,
    FailedCondition,
    KindLimits,
    PutEntity,
    absent,
    exists,
    value_is,
    version_at_most,
    version_is,
)
from tests.clients.fake_entities import FakeCluster, one_client


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (absent("member", "flags/i3"), "member flags/i3 exists already (version 101)"),
        (exists("member", "flags/i4"), "member flags/i4 does not exist"),
        (version_is("member", "flags/i3", 7), "member flags/i3 has version 101, and not 7: somebody has written it"),
        (version_is("member", "flags/i4", 7), "member flags/i4 does not exist, and version 7 was expected"),
        (version_at_most("member", "flags/i3", 7), "member flags/i3 has version 101, which is above 7"),
        (
            version_at_most("member", "flags/i4", 7),
            "member flags/i4 does not exist, and a version up to 7 was expected",
        ),
        (value_is("member", "flags/i3", b"x"), "member flags/i3 has another value (version 101)"),
        (value_is("member", "flags/i4", b"x"), "member flags/i4 does not exist, and a value was expected"),
    ],
)
async def test_a_condition_that_does_not_hold_is_told_in_plain_words(condition: Condition, said: str) -> None:
    cluster = FakeCluster()
    cluster.put("shard", "1", b"")
    assert cluster.put("member", "flags/i3", b"") == 101
    async with one_client(cluster) as client:
        with pytest.raises(ConditionFailed) as refused:
            await client.must_transact([condition], [PutEntity("job", "7", b"")])
        assert refused.value.message == f"nothing was done: {said}; read it again, then decide"
        assert (refused.value.condition, cluster.names("job")) == (condition, [])


async def test_a_transaction_that_did_nothing_has_no_token() -> None:
    cluster = FakeCluster()
    version = cluster.put("shard", "7", b"")
    async with one_client(cluster) as client:
        put = [PutEntity("job", "7", b"")]
        done = await client.transact([exists("shard", "7"), absent("shard", "7")], put)
        assert isinstance(done.failed, FailedCondition) and done.failed.place == 1
        with pytest.raises(ValueError, match="no token: nothing was done, because condition 1") as wrong:
            done.token()
        assert f"shard/7@{version}" in str(wrong.value)
        none = await client.transact([exists("shard", "8")], put)
        with pytest.raises(ValueError, match="condition 0 did not hold: there is no such entity; look at `succeeded`"):
            none.token()
        assert (await client.transact([], put)).token().offset == version + 1


def test_a_schema_is_a_text_or_an_object() -> None:
    schema = {"type": "number", "minimum": 0}
    limits = KindLimits("shard", schema)
    assert json.loads(limits.schema) == schema
    assert limits == KindLimits("shard", json.dumps(schema))
    assert dataclasses.replace(limits, entities_max=7) == KindLimits("shard", schema, 7)
    assert hash(limits) == hash(KindLimits("shard", schema))
    for wrong in (b"{}", True, ["type"]):
        with pytest.raises(TypeError, match="a schema is a JSON text or an object, not"):
            KindLimits("shard", wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a JSON text or an object of JSON values"):
        KindLimits("shard", {"enum": {1}})
