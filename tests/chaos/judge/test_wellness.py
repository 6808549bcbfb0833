"""When a cluster counts as well: not before a write was acknowledged."""

from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metaquorum import AdminError, ErrorCode
from tests.chaos.clients import Clients
from tests.chaos.judge import wellness
from tests.chaos.judge.wellness import NotWell, until_well


class Leaderless:
    """Says that the topic is there, as whoever has applied its creation can; and takes no change."""

    async def create_topics(self, topics: Any) -> Any:
        there = admin_pb2.TopicResult()
        there.error.code = ErrorCode.TOPIC_ALREADY_EXISTS  # type: ignore[assignment]
        return admin_pb2.CreateTopicsResponse(results=[there], offset=7)

    async def alter_configs(self, alterations: Any) -> Any:
        raise AdminError(ErrorCode.NOT_CONTROLLER, "nobody leads")


class EmptyCluster:
    """No daemon that could be ill."""

    def __init__(self) -> None:
        self.daemons: dict[str, Any] = {}
        self.findings: list[Any] = []
        self.controllers: list[Any] = []


async def test_a_refusal_is_not_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that had the topic already was called well though it took no change from anybody."""
    monkeypatch.setattr(wellness, "WELL_WITHIN_S", 0.05)
    clients = Clients(lambda number, dice: pytest.fail("nobody else asks"), 1, 0, 0.0)
    cluster: Any = EmptyCluster()
    admin: Any = Leaderless()
    with pytest.raises(NotWell, match=r"set\(2\) alpha: failed .*nobody leads"):
        await until_well(cluster, clients, admin)
