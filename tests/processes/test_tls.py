"""TLS from end to end: every daemon shows its certificate to every other, and who has none of the same authority is nobody."""

import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from daemon.dial import Dialer
from daemon.tls import TlsFiles
from quorum.cli.dev_cluster import DevCluster
from quorum.cli.dev_process import spawn
from quorum.wire.client import AdminClient
from quorum.wire.client_errors import NoLeader, NotReached
from quorum.wire.server import serve
from tests.processes.certificates import Authority
from tests.processes.conftest import BROKER_SETTINGS, CONTROLLER_SETTINGS, STATE_NAMES, quorumctl, until
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made"),
]


HANGS_UP = "it hangs up on whoever connects; does it want TLS, and a certificate of its own authority?"


class Secured(NamedTuple):
    """A cluster that speaks TLS; the files that an operator has, and those of somebody whom another authority has signed."""

    dev: DevCluster
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


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """Three controllers and a broker, at work."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    controller, broker = ours.sign("controller"), ours.sign("broker")
    dev = DevCluster.create(
        tmp_path / "cluster",
        controllers=3,
        brokers=1,
        controller_settings={**CONTROLLER_SETTINGS, **settings(controller)},
        broker_settings={**BROKER_SETTINGS, **settings(broker)},
    )
    try:
        for node in dev.nodes:
            spawn(node)
        secured = Secured(dev, ours.sign("operator"), theirs.sign("stranger"))
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
    has no certificate at all, get nothing and are told what may be wrong."""
    ours = flags(secured.operator)
    for asked in (("-C", secured.controllers), ("-b", secured.broker)):
        name = f"by{asked[0]}"
        created = quorumctl(*asked, *ours, "topics", "create", name, "--partitions", "3", "--replication-factor", "1")
        assert created.returncode == 0, created
        listed = quorumctl(*asked, *ours, "topics", "list")
        assert name in listed.stdout, listed
    status = quorumctl("-C", secured.controllers, *ours, "quorum", "status")
    assert "Concern: -" in status.stdout, status
    brokers = quorumctl("-C", secured.controllers, *ours, "brokers", "list")
    assert "online" in brokers.stdout, brokers

    for asked in (("-C", secured.controllers), ("-b", secured.broker)):
        for words, why in (((), HANGS_UP), (flags(secured.stranger), "not of the authority that is trusted here")):
            refused = quorumctl(*asked, "--timeout", "2", *words, "topics", "list")
            assert (refused.returncode, refused.stdout) == (5, ""), refused
            assert why in refused.stderr


async def test_who_does_not_agree_about_tls_is_told_so(tmp_path: Path) -> None:
    """Nothing was done, and the error says which of the two has made which mistake, also where the other side just hangs up."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    node, stranger = ours.sign("node"), theirs.sign("stranger")
    believer = TlsFiles(stranger.certificate_chain, stranger.private_key, node.certificate_authority)
    for served, asking, why in (
        (None, node, "it does not speak TLS"),
        (node, None, HANGS_UP),
        (node, believer, HANGS_UP),
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
