"""TLS from end to end: every daemon shows its own certificate to every other; whoever has none of the same authority is nobody,
and whoever has one is who it says, and nobody else.

All nodes are on one host: it is not the host that tells them apart.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc, voter_pb2, voter_pb2_grpc
from quorum_rpc.v1.common_pb2 import Endpoint, ReplicaKey

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient, NoLeader, NotReached
from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import DevNode, free_ports
from quorum.devcluster.process import spawn
from quorum.wire.server import serve
from service_kit.rpc.dial import Dialer
from service_kit.security.tls import TlsFiles
from tests.processes.certificates import Authority
from tests.processes.conftest import BROKER_SETTINGS, CONTROLLER_SETTINGS, STATE_NAMES, quorumctl, run, until
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made"),
]


OPERATORS = {"admin.principals": ["CN=operator"]}
CLOSED = "it closed the connection: it requires TLS and a client certificate of its own authority, or it has as many connections"


class Secured(NamedTuple):
    """A cluster that speaks TLS; the files that an operator has, and those of somebody whom another authority has signed."""

    dev: DevCluster
    authority: Authority
    operator: TlsFiles
    stranger: TlsFiles

    @property
    def controllers(self) -> str:
        return self.dev.layout.bootstrap

    @property
    def broker(self) -> str:
        return self.dev.layout.brokers[0].endpoint


def flags(tls: TlsFiles) -> list[str]:
    return [
        *("--cacert", str(tls.certificate_authority)),
        *("--cert", str(tls.certificate_chain)),
        *("--key", str(tls.private_key)),
    ]


def settings(tls: TlsFiles) -> dict[str, str]:
    return {
        "tls.certificate.chain": str(tls.certificate_chain),
        "tls.private.key": str(tls.private_key),
        "tls.certificate.authority": str(tls.certificate_authority),
    }


def certify(node: DevNode, authority: Authority, cluster_id: str) -> None:
    """Gives the node a certificate of its own."""
    given = settings(authority.sign_node(node.role, node.node_id, cluster_id))
    with node.config_path.open("a") as file:
        file.writelines(f"{key}: {json.dumps(value)}\n" for key, value in given.items())


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """Three controllers and a broker, at work. Only the operator may operate it."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    dev = DevCluster.create(
        tmp_path / "cluster",
        controllers=3,
        brokers=1,
        controller_settings={**CONTROLLER_SETTINGS, **OPERATORS},
        broker_settings={**BROKER_SETTINGS, **OPERATORS},
    )
    try:
        for node in dev.nodes:
            certify(node, ours, dev.layout.cluster_id)
            spawn(node)
        secured = Secured(dev, ours, ours.sign("operator"), theirs.sign("stranger"))
        async with client_of(secured, secured.operator) as client:

            async def online() -> bool | None:
                brokers = (await client.list_brokers()).brokers
                return True if [STATE_NAMES[each.state] for each in brokers] == ["online"] else None

            await until(online, 30)
        yield secured
    finally:
        await dev.down(0)


def client_of(secured: Secured, tls: TlsFiles | None) -> AdminClient:
    return AdminClient(secured.controllers.split(","), timeout_s=5, dial=Dialer(tls))


async def test_tls_from_end_to_end(secured: Secured) -> None:
    """Controllers elect and replicate, a broker has its session, an operator works through any of them; a stranger, and who
    has no certificate at all, get nothing and are told what may be wrong. At last controller 3 gets the files of controller 2: it
    goes on with its own certificate, and says what is wrong with the files."""
    ours = flags(secured.operator)
    for asked in (("-C", secured.controllers), ("-b", secured.broker)):
        name = f"by{asked[0]}"
        created = quorumctl(*asked, *ours, "topics", "create", name, "--partitions", "3", "--replication-factor", "1")
        assert created.returncode == 0, created
        listed = quorumctl(*asked, *ours, "topics", "list")
        assert name in listed.stdout, listed
    status = quorumctl("-C", secured.controllers, *ours, "quorum", "status")
    assert "Problem:" not in status.stdout, status
    brokers = quorumctl("-C", secured.controllers, *ours, "brokers", "list")
    assert "online" in brokers.stdout, brokers

    for asked in (("-C", secured.controllers), ("-b", secured.broker)):
        for words, why in (((), CLOSED), (flags(secured.stranger), "not of the authority that is trusted here")):
            refused = quorumctl(*asked, "--timeout", "2", *words, "topics", "list")
            assert (refused.returncode, refused.stdout) == (5, ""), refused
            assert why in refused.stderr

    section = (Path(__file__).parents[2] / "docs" / "clients.md").read_text().split("## TLS from Python")[1]
    program = section.split("```python\n")[1].split("```")[0]
    for shown, file in zip(("alice.crt", "alice.key", "ca.crt"), astuple(secured.operator), strict=True):
        program = program.replace(shown, str(file))
    program = program.replace("10.0.0.1:9001", secured.controllers.split(",")[0])
    asked_in_python = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert "'by-C'" in asked_in_python.stdout, asked_in_python

    third = secured.dev.layout.controllers[2]
    files = [
        secured.authority.certificate.with_name(f"controller-{node}.{kind}")
        for node in (2, 3)
        for kind in ("crt", "key")
    ]
    for wrong, replaced in zip(files[:2], files[2:], strict=True):
        shutil.copyfile(wrong, replaced)
    told = quorumctl("-C", third.endpoint, *ours, "quorum", "status")
    assert told.returncode == 0, told
    assert "certificate_unusable: the new certificate files cannot be used" in told.stdout, told
    assert "controller-3.crt is not the certificate of controller 3" in told.stdout, told


async def test_a_clients_certificate_makes_nobody_a_node(secured: Secured) -> None:
    """A stranger with a certificate of the authority votes as controller 2 and registers broker 101 and another: nothing changes,
    and a log line says who it was. Nor does it operate the cluster, by a controller or by a broker."""
    intern, cluster_id = secured.authority.sign("intern"), secured.dev.layout.cluster_id
    async with client_of(secured, secured.operator) as client, Dialer(intern) as dial:
        before = await client.describe_quorum()
        for node in secured.dev.layout.controllers:
            at: Any = dial(node.endpoint)
            me = voter_pb2.Sender(
                cluster_id=cluster_id, replica=ReplicaKey(node_id=2, directory_id=bytes(16)), generation=1
            )
            vote = voter_pb2.VoteRequest(
                sender=me, receiver=me.replica, epoch=1_000_000, end_offset=1 << 40, last_epoch=999
            )
            stub: Any = voter_pb2_grpc.VoterServiceStub(at)  # type: ignore[no-untyped-call]
            voted = await stub.Vote(
                vote, wait_for_ready=True, timeout=15
            )  # two of three lead while the third still starts
            assert (voted.standing.error, voted.vote_granted) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False)
            for broker_id in (101, 102):
                evil = broker_pb2.RegisterBrokerRequest(
                    cluster_id=cluster_id,
                    broker_id=broker_id,
                    incarnation_id=bytes(15) + b"x",
                    endpoints=[Endpoint(listener="PLAINTEXT", host="evil.example", port=6666)],
                )
                registered = await broker_pb2_grpc.BrokerServiceStub(at).RegisterBroker(evil)  # type: ignore[no-untyped-call]
                assert registered.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

            async def told(path: Path = node.log_path) -> bool | None:
                return True if "refused ipv4:127.0.0.1" in path.read_text() else None

            await until(told)  # a thread of its own writes the log
        after = await client.describe_quorum()
        assert (after.epoch, after.leader.leader_id) == (before.epoch, before.leader.leader_id)
        brokers = (await client.list_brokers()).brokers
        assert [(each.broker_id, STATE_NAMES[each.state], each.endpoints[0].host) for each in brokers] == [
            (101, "online", "127.0.0.1")
        ]
    for asked in (("-C", secured.controllers), ("-b", secured.broker)):
        ran = quorumctl(*asked, "--timeout", "5", *flags(intern), "topics", "create", "evil")
        assert ran.returncode == 1, ran
        assert "CN=intern is not in admin.principals" in ran.stderr, ran


async def test_a_controller_joins_with_its_own_certificate(secured: Secured) -> None:
    """Formatted from the running cluster and started with another node's certificate it ends, and says so; with its own it
    follows, and an operator adds it."""
    (port,) = free_ports(1)
    directory = secured.dev.layout.directory / "controller-4"
    directory.mkdir()
    node = DevNode("controller-4", "controller", 4, port, None, "", directory)
    given = {"node.id": 4, "listeners": f"CONTROLLER://{node.endpoint}", "metadata.log.dir": str(node.data_directory)}
    text = "".join(
        f"{key}: {json.dumps(value)}\n" for key, value in {**given, **CONTROLLER_SETTINGS, **OPERATORS}.items()
    )
    ours = ("-C", secured.controllers, *flags(secured.operator))
    node.config_path.write_text(text)
    formatted = quorumctl(*ours, "storage", "format", "--config", str(node.config_path), "--from", secured.controllers)
    assert formatted.returncode == 0, formatted

    certify(node._replace(node_id=3), secured.authority, secured.dev.layout.cluster_id)
    ended = run("quorum", "--config", str(node.config_path))
    assert ended.returncode == 78, ended
    assert "is not the certificate of controller 4" in ended.stderr

    node.config_path.write_text(text)
    certify(node, secured.authority, secured.dev.layout.cluster_id)
    secured.dev.layout = secured.dev.layout._replace(nodes=(*secured.dev.layout.nodes, node))
    spawn(node)
    async with client_of(secured, secured.operator) as client:

        async def follows() -> bool | None:
            replicas = (await client.describe_quorum(await client.leader())).observers
            return True if any(each.node_id == 4 for each in replicas) else None

        await until(follows, 30)
        added = quorumctl(*ours, "--timeout", "20", "quorum", "add-voter", "--config", str(node.config_path))
        assert added.returncode == 0, added
        voters = (await client.describe_quorum(await client.leader())).voters
        assert sorted(each.node_id for each in voters) == [1, 2, 3, 4]


async def test_who_does_not_agree_about_tls_is_told_so(tmp_path: Path) -> None:
    """Nothing was done, and the error says which of the two has made which mistake, also where the other side just hangs up."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    node, stranger, elsewhere = ours.sign("node"), theirs.sign("stranger"), ours.sign("elsewhere", "127.0.0.2")
    believer = TlsFiles(stranger.certificate_chain, stranger.private_key, node.certificate_authority)
    for served, asking, why in (
        (None, node, "it does not speak TLS"),
        (node, None, CLOSED),
        (node, believer, CLOSED),
        (elsewhere, node, "its certificate is not for this host"),
        (node, stranger, "its certificate is not of the authority that is trusted here"),
    ):
        fake = FakeNode()
        async with serve(fake, IDENTITY, ANY_PORT, grace_s=0, tls=served) as port, Dialer(asking) as dial:
            target = f"127.0.0.1:{port}"
            async with AdminClient([target], timeout_s=0.5, dial=dial) as client:
                with pytest.raises(NotReached, match=f"{target} cannot be reached: {re.escape(why)}"):
                    await client.describe_quorum(target)
                with pytest.raises(NoLeader, match=re.escape(why)):
                    await client.create_topic("orders", 1, 1)
        assert not fake.identities, "no request has come as far as the node"


async def test_a_server_shows_a_new_certificate_without_a_restart(tmp_path: Path) -> None:
    """The files are replaced under the running server: whoever connects from then on needs the new authority."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    old, new = ours.sign("old"), theirs.sign("new")
    shown = TlsFiles(*(tmp_path / name for name in ("node.crt", "node.key", "ca.crt")))

    def show(tls: TlsFiles) -> None:
        for source, target in zip(astuple(tls), astuple(shown), strict=True):
            shutil.copyfile(source, target)

    async def reached(port: int, tls: TlsFiles) -> bool:
        async with Dialer(tls) as dial, AdminClient([f"127.0.0.1:{port}"], timeout_s=2, dial=dial) as client:
            try:
                await client.describe_quorum()
            except NotReached:
                return False
            return True

    show(old)
    async with serve(FakeNode(), IDENTITY, ANY_PORT, grace_s=0, tls=shown) as port:
        assert (await reached(port, old), await reached(port, new)) == (True, False)
        show(new)
        assert (await reached(port, old), await reached(port, new)) == (False, True)


async def test_rotating_certificates_under_load_fails_no_request(tmp_path: Path) -> None:
    """The node's files are replaced again and again while requests come, over a connection that lasts and over new ones. Whoever
    is connected stays so, and whoever connects is shown either certificate, both of the same node."""
    authority, node, cluster_id = Authority(tmp_path / "ca"), FakeNode(), IDENTITY.cluster_id
    pairs = []
    for turn in range(2):
        signed = authority.sign_node("controller", 1, cluster_id)
        kept = TlsFiles(*(tmp_path / f"{turn}.{name}" for name in ("crt", "key", "ca")))
        for source, target in zip(astuple(signed), astuple(kept), strict=True):
            shutil.copyfile(source, target)
        pairs.append(kept)
    shown = TlsFiles(*(tmp_path / name for name in ("node.crt", "node.key", "ca.crt")))
    operator = authority.sign("operator")

    def show(tls: TlsFiles) -> None:
        for source, target in zip(astuple(tls), astuple(shown), strict=True):
            shutil.copyfile(source, target.with_suffix(".new"))
            target.with_suffix(".new").rename(target)

    show(pairs[0])
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0, tls=shown) as port, Dialer(operator) as lasting:
        target = f"127.0.0.1:{port}"
        async with AdminClient([target], timeout_s=5, dial=lasting) as client:
            for turn in range(20):
                show(pairs[turn % 2])
                async with Dialer(operator) as new, AdminClient([target], timeout_s=5, dial=new) as newcomer:
                    await newcomer.create_topic(f"new{turn}", 1, 1)
                await client.create_topic(f"lasting{turn}", 1, 1)
    assert node.cluster.image.topic_count == 40
