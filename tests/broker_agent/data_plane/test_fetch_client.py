"""Fetches between brokers over real connections: at the address of the metadata, from the right broker, in the own name only."""

import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_agent.client import CallFailed
from broker_agent.data_plane import fetch_client
from broker_agent.data_plane.fetch_client import FetchClient
from broker_agent.data_plane.fetch_messages import FetchLimits
from broker_agent.replica.fetch_sessions import SessionRequest
from broker_agent.replica.follower import PartitionFetch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from service_kit.rpc.dial import Dialer
from service_kit.rpc.doors import Doors
from service_kit.security.node_identity import BROKER, NodeNames
from service_kit.security.tls import TlsFiles
from service_kit.security.tls_config import Access
from tests.broker_agent.data_plane.hosted import ME, ORDERS, OTHER, Hosted, append_of, hosted, orders
from tests.processes.certificates import Authority

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
LIMITS = FetchLimits(100, 1, 1 << 20)
FULL = SessionRequest(0, 0, (((ORDERS, 0), PartitionFetch(0, 0, 0)),))
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no certificates can be made")


@asynccontextmanager
async def client_of(
    source: Hosted, tls: TlsFiles | None = None, listener: str = "PLAINTEXT"
) -> AsyncIterator[FetchClient]:
    """Broker 2 with the files `tls`, whose metadata know broker 1: at the present port of `source`."""

    def image() -> SimpleNamespace:
        endpoints = (Endpoint("OTHER", "127.0.0.1", 1), Endpoint("PLAINTEXT", "127.0.0.1", source.port))
        return SimpleNamespace(brokers={ME: SimpleNamespace(endpoints=endpoints)})

    names = None if tls is None else NodeNames(CLUSTER)
    async with Dialer(tls) as dialer:
        yield FetchClient(OTHER, dialer, names, image, listener)  # type: ignore[arg-type]


async def test_a_follower_gets_what_its_leader_has(tmp_path: Path) -> None:
    """A full request begins a session; the next request of it names nothing, and gets the news."""
    async with hosted(tmp_path) as leader:
        await leader.write(*orders(1))
        await leader.leads(0)
        await leader.stub.Append(append_of(0, acks=1))
        async with client_of(leader) as follower:
            full = await follower.fetch(ME, FULL, 0, LIMITS, 10)
            await leader.stub.Append(append_of(0, acks=1))
            more = await follower.fetch(ME, SessionRequest(full.session_id, 1, ()), 0, LIMITS, 10)

    assert full.session_id > 0
    assert [batch.base_offset for batch in full.answers[0][1].batches] == [0]
    assert [batch.end_offset for batch in more.answers[0][1].batches] == [1, 2]


async def test_a_thread_converts_what_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 MiB in small batches, or 100,000 partitions, would hold up the event loop, and the lease with it, for a second."""
    on_loop: list[tuple[str, bool]] = []

    def noted(name: str) -> None:
        convert = getattr(fetch_client, name)

        def noting(*args: Any) -> Any:
            on_loop.append((name, threading.current_thread() is threading.main_thread()))
            return convert(*args)

        monkeypatch.setattr(fetch_client, name, noting)

    noted("fetch_request")
    noted("answer_of")
    places = tuple(((ORDERS, number), PartitionFetch(0, 0, 0)) for number in range(fetch_client.PARTITIONS_MAX + 1))
    async with hosted(tmp_path) as leader:
        await leader.write(*orders(1))
        await leader.leads(0)
        async with client_of(leader) as follower:
            await follower.fetch(ME, FULL, 0, LIMITS, 10)
            many = await follower.fetch(ME, SessionRequest(0, 0, places), 0, LIMITS, 10)
            monkeypatch.setattr(fetch_client, "BYTES_MAX", 10)
            await leader.stub.Append(append_of(0, acks=1))
            await follower.fetch(ME, FULL, 0, LIMITS, 10)

    assert len(many.answers) == len(places)
    assert on_loop == [
        *(("fetch_request", True), ("answer_of", True)),
        *(("fetch_request", False), ("answer_of", False)),
        *(("fetch_request", True), ("answer_of", False)),
    ]


async def test_the_errors_of_a_session_are_answers(tmp_path: Path) -> None:
    """The follower begins anew with a full request; all other failures let it pause."""
    async with hosted(tmp_path) as leader, client_of(leader) as follower:
        answer = await follower.fetch(ME, SessionRequest(77, 5, ()), 0, LIMITS, 10)

    assert answer.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_broker_without_an_address_cannot_be_asked(tmp_path: Path) -> None:
    """It is not registered, or its listeners have other names: the error says which."""
    async with hosted(tmp_path) as leader:
        async with client_of(leader) as follower:
            with pytest.raises(CallFailed, match="broker 9 is not registered"):
                await follower.fetch(9, FULL, 0, LIMITS, 10)
        async with client_of(leader, listener="INTERNAL") as follower:
            with pytest.raises(CallFailed, match="no listener 'INTERNAL'"):
                await follower.fetch(ME, FULL, 0, LIMITS, 10)


async def test_a_source_that_moved_is_asked_at_its_new_address(tmp_path: Path) -> None:
    """The address is looked up in the metadata for each request: no restart, and no wait for the old address to fail."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    async with hosted(tmp_path / "old") as old, hosted(tmp_path / "new") as new:
        for place in (old, new):
            await place.write(*orders(1))
            await place.leads(0)
        await new.stub.Append(append_of(0, acks=1))
        source = SimpleNamespace(port=old.port)
        async with client_of(source) as follower:  # type: ignore[arg-type]
            before = await follower.fetch(ME, FULL, 0, LIMITS, 10)
            source.port = new.port
            after = await follower.fetch(ME, FULL, 0, LIMITS, 10)

    assert [[len(each.batches) for _, each in answer.answers] for answer in (before, after)] == [[0], [1]]


async def test_a_source_that_is_gone_is_a_failed_call(tmp_path: Path) -> None:
    async with hosted(tmp_path) as leader:
        port = leader.port
    async with client_of(SimpleNamespace(port=port)) as follower:  # type: ignore[arg-type]
        with pytest.raises(CallFailed, match="broker 1 at 127"):
            await follower.fetch(ME, FULL, 0, LIMITS, 5)


@needs_openssl
async def test_over_tls_a_broker_fetches_in_its_own_name_only(tmp_path: Path) -> None:
    """A fetch acknowledges records: with the certificate of broker 3 nobody fetches as broker 2."""
    authority = Authority(tmp_path / "ca")
    mine, theirs, third = (authority.sign_node(BROKER, node_id, CLUSTER) for node_id in (ME, OTHER, 3))
    doors = Doors.over_tls(CLUSTER, Access())
    async with hosted(tmp_path / "log", mine, doors) as leader:
        await leader.write(*orders(1))
        await leader.leads(0)
        async with client_of(leader, theirs) as follower:
            answer = await follower.fetch(ME, FULL, 0, LIMITS, 10)
            assert answer.answers[0][1].error is ErrorCode.NONE
        async with client_of(leader, third) as impostor:
            with pytest.raises(CallFailed, match="CLUSTER_AUTHORIZATION_FAILED"):
                await impostor.fetch(ME, FULL, 0, LIMITS, 10)


@needs_openssl
async def test_over_tls_only_the_right_broker_is_believed(tmp_path: Path) -> None:
    """Broker 3 has taken over the address of broker 1: it gets no request."""
    authority = Authority(tmp_path / "ca")
    theirs, third = (authority.sign_node(BROKER, node_id, CLUSTER) for node_id in (OTHER, 3))
    async with hosted(tmp_path / "log", third) as wrong, client_of(wrong, theirs) as follower:
        with pytest.raises(CallFailed, match="does not show that broker's certificate"):
            await follower.fetch(ME, FULL, 0, LIMITS, 5)
