"""Modes of brokers over real gRPC."""

import pytest

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient, AdminError
from tests.quorum.controller.cluster import WALL_MS
from tests.quorum.wire.fake_node import FakeNode


async def test_an_operator_fences_and_drains_brokers_until_the_operator_ends_that(
    client: AdminClient, node: FakeNode
) -> None:
    """The list of brokers shows mode, reason and time; a dry run changes nothing."""
    cluster = node.cluster
    cluster.assign("orders", (0, 1), (1, 0), (2, 0))
    for validate_only in (True, False):
        await client.drain_broker(0, "new disk", validate_only=validate_only)
        assert cluster.leaders("orders") == [0 if validate_only else 1, 1, 2]
        await client.fence_broker(2, validate_only=validate_only)
        assert cluster.image.brokers[2].fenced is not validate_only
    listed = {broker.broker_id: broker async for broker in client.brokers()}
    assert [listed[each].mode for each in range(3)] == ["maintenance", "", "fenced"]
    assert (listed[0].mode_reason, listed[0].mode_since_ms) == ("new disk", WALL_MS + cluster.now_ms)
    assert not listed[1].HasField("mode_since_ms")

    with pytest.raises(AdminError) as refused:
        await client.unfence_broker(0)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    for validate_only in (True, False):
        await client.undrain_broker(0, validate_only=validate_only)
        await client.unfence_broker(2, validate_only=validate_only)
        assert len(cluster.image.broker_modes) == (2 if validate_only else 0)
