"""Requests for watches that are refused: impossible ones, and those of callers without the right."""

from typing import Any

import pytest
from quorum_rpc.v1 import watch_pb2

from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from tests.watches.client import Client
from tests.watches.fake_log import FakeLog
from tests.watches.test_watch_service import log, service
from watches.service.watch_service import WatchService

__all__ = ["log", "service"]


@pytest.mark.parametrize(
    "fields",
    [
        {"bookmark_interval_ms": 99},
        {"bookmark_interval_ms": 600_001},
        {"bookmark_interval_ms": -1},
        {"position": {"offset": 4, "chain": b"short"}},
        {"position": {"offset": -1, "chain": bytes(32)}},
        {"position": {"offset": 4, "chain": bytes(32)}, "from_now": True},
        {"filter": {"entities": [{"kind": "a"}] * 17}},
        {"filter": {"entities": [{"kind": "Lock"}]}},
        {"filter": {"entities": [{"kind": "lock/"}]}},
        {"filter": {"topics": ["a"] * 101}},
        {"filter": {"topics": [""]}},
        {"filter": {"topics": ["a" * 2_000]}},
        {"filter": {"brokers": [1] * 101}},
    ],
)
async def test_an_impossible_request_is_refused(service: WatchService, fields: dict[str, Any]) -> None:
    assert (await Client(service, **fields).ended()).reason == "INVALID_REQUEST"


class EmbeddersDoor(Doors):
    """Lets every caller in as an embedder, and nobody as an operator."""

    def caller(self, context: Any) -> Caller:
        return OnlyAnEmbedder(self, None, frozenset(), "CN=app")


class OnlyAnEmbedder(Caller):
    def check_operator(self) -> None:
        raise NotAuthorized("CN=app is no operator")

    def check_embedder(self) -> None:
        return None


async def test_an_embedder_watches_everything_but_the_rights_of_clients(log: FakeLog) -> None:
    """A filter that names nothing shows everything, so it is for operators, too."""
    service = WatchService(log, doors=EmbeddersDoor())
    client = Client(service, filter={"entities": [{}], "all_topics": True, "all_brokers": True, "sessions": True})
    await client.until(4)
    await client.stop()
    for shown in (watch_pb2.WatchFilter(others=True), watch_pb2.WatchFilter()):
        assert (await Client(service, filter=shown).ended()).reason == "CLUSTER_AUTHORIZATION_FAILED"
    await service.close()


async def test_a_request_for_another_cluster_is_refused(service: WatchService) -> None:
    assert (await Client(service, cluster_id="other").ended()).reason == "INCONSISTENT_CLUSTER_ID"
