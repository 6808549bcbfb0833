"""Replies are bound too: over TLS a node asks only whoever shows the certificate of the node that it means."""

import asyncio
import logging
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2_grpc, voter_pb2_grpc

from broker_agent.client import ControllerClient
from broker_agent.session.lifecycle import FetchFailed, Input, LeaderHint, Registered, RegisterFailed
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Endpoint
from quorum.__main__ import _peers
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import ChainRequest, ChainResponse, PeerResponse
from quorum.runtime.protocol.requests import LeaderHint as Hint
from quorum.runtime.protocol.requests import Refused
from quorum.wire.server import serve
from service_kit.process.endpoints import HostPort
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer, WrongServer, is_wrong_server
from service_kit.security.node_identity import BROKER, CONTROLLER, NamedNode, Node, NodeNames
from service_kit.security.tls import TlsFiles
from service_kit.security.tls_config import Access
from tests.processes.certificates import Authority
from tests.quorum.runtime.lone_node import CLUSTER_ID, directory_id
from tests.quorum.test_config import LEAST, load
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.good_requests import good_requests
from tests.quorum.wire.refusing import code_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made"),
]

OURS = IDENTITY._replace(cluster_id=CLUSTER_ID)
NAMES = NodeNames(CLUSTER_ID)


class Files(NamedTuple):
    one: TlsFiles
    """Controller 1."""
    two: TlsFiles
    broker: TlsFiles
    """Broker 7."""
    host: TlsFiles
    """Of the authority, and for the right host; of no node."""
    foreign: TlsFiles
    """Calls itself controller 1; another authority has signed it."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")
    ours, foreign = Authority(directory / "ours"), Authority(directory / "foreign")
    return Files(
        ours.sign_node(CONTROLLER, 1, CLUSTER_ID),
        ours.sign_node(CONTROLLER, 2, CLUSTER_ID),
        ours.sign_node(BROKER, 7, CLUSTER_ID),
        ours.sign("host", "127.0.0.1", "DNS:host.example.org"),
        foreign.sign_node(CONTROLLER, 1, CLUSTER_ID),
    )


async def test_a_controller_asks_nobody_in_anothers_place(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has taken over the address of controller 1, with the certificate of another node of the same host, hears no
    question and can grant no vote; the log says once what is wrong."""
    node, me = FakeNode(), OURS._replace(node_id=2, directory_id=directory_id(2))
    asking = ChainRequest(ReplicaKey(2, directory_id(2)), 1, 1)
    settings = {
        "certificate.chain": files.two.certificate_chain,
        "private.key": files.two.private_key,
        "certificate.authority": files.two.certificate_authority,
    }
    given = [f"tls.{key}={path}" for key, path in settings.items()]
    config = load(tmp_path, LEAST.replace("node.id: 1", "node.id: 2"), *given)
    opened: Any = SimpleNamespace(identity=me)

    async def ask(at: Endpoint) -> PeerResponse | Failure:
        peers = _peers(config, opened, NAMES)
        peers.set_endpoints({1: at})
        answered: asyncio.Future[PeerResponse | Failure] = asyncio.get_running_loop().create_future()
        peers.send(1, asking, 2_000, answered.set_result, answered.set_result)
        try:
            return await answered
        finally:
            await peers.close()

    for shown in (files.two, files.broker, files.host, files.foreign):
        async with serve(node, OURS, ANY_PORT, grace_s=0, tls=shown) as port:
            with caplog.at_level(logging.WARNING, "quorum.wire.peers.peers"):
                assert await ask(Endpoint("CONTROLLER", "127.0.0.1", port)) is Failure.BROKEN
    assert not node.asked
    assert "does not show the certificate of controller 1; no request was sent to it" in caplog.text

    async with serve(node, OURS, ANY_PORT, grace_s=0, tls=files.one) as port:
        assert isinstance(await ask(Endpoint("CONTROLLER", "127.0.0.1", port)), ChainResponse)


async def test_a_request_is_handed_on_to_the_leader_itself_or_to_nobody(files: Files) -> None:
    """Who is in its place learns nothing of the request; nothing was done, and that is what its client hears."""
    leader, follower = FakeNode(), FakeNode()
    for shown in (files.one, files.two, files.broker):
        code = ErrorCode.NONE if shown is files.one else ErrorCode.NOT_CONTROLLER
        async with AsyncExitStack() as stack:
            at = await stack.enter_async_context(serve(leader, OURS, ANY_PORT, grace_s=0, tls=shown))
            hint = Hint(1, 1, Endpoint("CONTROLLER", "127.0.0.1", at))
            follower.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint)
            dialer = await stack.enter_async_context(Dialer(files.two))
            second = OURS._replace(node_id=2)
            port = await stack.enter_async_context(
                serve(follower, second, ANY_PORT, grace_s=0, tls=files.two, dial=dialer)
            )
            client = await stack.enter_async_context(Dialer(files.host))
            stub = admin_pb2_grpc.AdminServiceStub(client(f"127.0.0.1:{port}"))  # type: ignore[no-untyped-call]
            before = len(leader.identities)
            assert await code_of(stub.CreateTopics(good_requests()["AdminService.CreateTopics"])) is code
            assert len(leader.identities) == before + (code is ErrorCode.NONE)


class Broker:
    """The way of broker 7 to the controllers, and what it brought."""

    def __init__(self, files: Files, names: NodeNames, *bootstrap: int) -> None:
        self.dialer = Dialer(files.broker)
        self._reported: asyncio.Queue[Input] = asyncio.Queue()
        reach = ControllerChannels(self.dialer, names, files.broker)
        servers = [HostPort("127.0.0.1", port) for port in bootstrap]
        self.client = ControllerClient(servers, reach, self._reported.put_nowait)

    async def registers(self) -> Input:
        self.client.register(good_requests()["BrokerService.RegisterBroker"], 1, 3_000)
        return await asyncio.wait_for(self._reported.get(), 10)

    async def fetches(self) -> Input:
        self.client.fetch(good_requests()["BrokerService.MetadataFetchOnce"])
        return await asyncio.wait_for(self._reported.get(), 10)

    async def close(self) -> None:
        await self.client.close()
        await self.dialer.close()


async def test_a_broker_registers_with_whichever_controller_its_bootstrap_server_is(files: Files) -> None:
    """It knows an address and no id: it asks for the names in the certificate, and demands one that is a controller's of its
    cluster. Any other server of the same authority, on the right host, is told nothing."""
    node = FakeNode()
    for shown, is_right in ((files.two, True), (files.one, True), (files.broker, False), (files.host, False)):
        async with serve(node, OURS, ANY_PORT, grace_s=0, tls=shown) as port:
            broker, before = Broker(files, NAMES, port), node.cluster.image.offset
            reported = await broker.registers()
            if is_right:
                assert isinstance(reported, Registered), reported
            else:
                assert isinstance(reported, RegisterFailed)
                assert reported.code is ErrorCode.BROKER_NOT_AVAILABLE, "the session tries the next one"
                assert "no controller of this cluster answers at" in reported.message
                assert isinstance(await broker.fetches(), FetchFailed)
                assert node.cluster.image.offset == before
                assert not node.fetches
            await broker.close()
    async with serve(node, OURS, ANY_PORT, grace_s=0, tls=files.foreign) as port:
        broker = Broker(files, NAMES, port)
        reported = await broker.registers()
        assert isinstance(reported, RegisterFailed)
        assert "CERTIFICATE_VERIFY_FAILED" in reported.message
        await broker.close()


async def test_a_broker_follows_a_hint_to_the_named_controller_only(files: Files) -> None:
    """Controller 2 at the place of controller 1 is not the leader that was named; at its own it is."""
    node = FakeNode()
    async with serve(node, OURS, ANY_PORT, grace_s=0, tls=files.two) as port:
        broker = Broker(files, NAMES, port)
        broker.client.turn_to(LeaderHint(1, "127.0.0.1", port))
        reported = await broker.registers()
        assert isinstance(reported, RegisterFailed)
        assert "does not show the certificate of controller 1" in reported.message
        broker.client.turn_to(LeaderHint(2, "127.0.0.1", port))
        assert isinstance(await broker.registers(), Registered)
        await broker.close()


async def test_names_of_another_authority_do_when_they_are_listed(files: Files) -> None:
    """On both sides: the broker demands the name that is listed for the controller, which counts whoever shows it as that one."""
    listed = (
        NamedNode(Node(CONTROLLER, 1), "host.example.org"),
        NamedNode(Node(BROKER, 7), NAMES.demanded(Node(BROKER, 7))),
    )
    async with serve(FakeNode(), OURS, ANY_PORT, grace_s=0, tls=files.host, access=Access(node_names=listed)) as port:
        broker = Broker(files, NodeNames(CLUSTER_ID, listed), port)
        assert isinstance(await broker.registers(), Registered)
        await broker.close()


async def test_a_name_is_asked_for_again_when_the_channel_is_not_connected(files: Files) -> None:
    """Another controller has taken the place of the first: the broker finds out by itself. Nobody there is an OSError."""
    async with Dialer(files.broker) as dialer:
        reach = ControllerChannels(dialer, NAMES, files.broker)
        async with serve(FakeNode(), OURS, ANY_PORT, grace_s=0, tls=files.one) as port:
            target = f"127.0.0.1:{port}"
            first = await reach(target)
            await first.channel_ready()
            assert await reach(target) is first
        while (state := first.get_state()) is grpc.ChannelConnectivity.READY:  # gRPC notices the end in its own time
            await asyncio.wait_for(first.wait_for_state_change(state), 10)
        with pytest.raises(OSError):  # refused, at once
            await reach(target)
        async with serve(FakeNode(), OURS, HostPort("127.0.0.1", port), grace_s=0, tls=files.two):
            second = await reach(target)
            await asyncio.wait_for(second.channel_ready(), 10)
            assert second is not first
        async with serve(FakeNode(), OURS, HostPort("127.0.0.1", port), grace_s=0, tls=files.host):
            with pytest.raises(WrongServer, match=r"host\.example\.org, but neither controller-ID\."):
                await reach(target)


async def test_many_who_ask_at_once_share_one_handshake(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused controller takes connections and answers none. A hundred requests that a broker is to hand on wait for one
    handshake, which costs one file and a moment of the event loop, and hear why nothing came of it."""
    monkeypatch.setattr("service_kit.rpc.controller_channels.HANDSHAKE_TIMEOUT_S", 0.1)
    connections = 0

    async def paused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_server(paused, "127.0.0.1", 0)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Dialer(files.broker) as dialer:
        reach = ControllerChannels(dialer, NAMES, files.broker)
        given_up = asyncio.ensure_future(reach(target))
        others = [asyncio.ensure_future(reach(target)) for _ in range(99)]
        await asyncio.sleep(0)
        given_up.cancel()  # who waits no more takes the handshake away from nobody
        for found in await asyncio.gather(*others, return_exceptions=True):
            assert isinstance(found, OSError)
            assert "no TLS handshake within 0.1 s" in str(found)
        assert given_up.cancelled()
        assert connections == 1


@pytest.mark.parametrize("host", ["ctl1..example.org", "c" * 64 + ".example.org"])
async def test_a_bootstrap_server_whose_name_is_none_is_nobody(files: Files, host: str) -> None:
    """A slip that the resolver refuses with an error of its own: the broker goes on to its next bootstrap server, as it does
    where a name is not known."""
    async with Dialer(files.broker) as dialer:
        with pytest.raises(OSError, match="label"):
            await ControllerChannels(dialer, NAMES, files.broker)(f"{host}:9001")


async def test_a_client_takes_more_names_than_a_server(tmp_path: Path) -> None:
    """gRPC's client verifies names as those of hosts: a wildcard spells every node, and a common name counts where no DNS name
    is. Neither opens a door, but the authority has to sign neither (`node_identity`)."""
    authority, name = Authority(tmp_path / "ca"), NAMES.demanded(Node(CONTROLLER, 1))
    me = authority.sign_node(CONTROLLER, 2, CLUSTER_ID)
    shown: dict[str, tuple[str, tuple[str, ...], bool]] = {
        "common name": (name, (), True),
        "common name beside a DNS name": (name, ("DNS:host.example.org",), False),
        "wildcard": ("wild", (f"DNS:*.{name.partition('.')[2]}",), True),
        "URI and e-mail": ("mail", (f"URI:{name}", f"email:{name}"), False),
    }
    vote = good_requests()["VoterService.Vote"]
    for what, (common_name, names, is_taken) in shown.items():
        tls = authority.sign(common_name, "127.0.0.1", *names)
        async with serve(FakeNode(), OURS, ANY_PORT, grace_s=0, tls=tls) as port, Dialer(me) as dialer:
            stub = voter_pb2_grpc.VoterServiceStub(dialer(f"127.0.0.1:{port}", name))  # type: ignore[no-untyped-call]
            try:
                await stub.Vote(vote, timeout=5)
                assert is_taken, what
            except grpc.aio.AioRpcError as e:
                assert is_wrong_server(e), what
                assert not is_taken, what
