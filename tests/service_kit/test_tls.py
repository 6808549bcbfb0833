"""What may be open to others, and certificates that cannot be read."""

import asyncio
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from service_kit.process.endpoints import HostPort
from service_kit.security import certificate_expiry
from service_kit.security.certificate_names import check_own_name, expiry_s
from service_kit.security.node_identity import BROKER, CONTROLLER, Node, NodeNames, parse_named_node
from service_kit.security.tls import (
    InsecureListener,
    TlsFiles,
    TlsUnusable,
    channel_credentials,
    check_listener,
    server_credentials,
)
from tests.processes.certificates import Authority

LOOPBACK, EVERYWHERE = HostPort("127.0.0.1", 9093), HostPort("0.0.0.0", 9093)


def test_insecure_means_loopback_unless_said_otherwise() -> None:
    """Without TLS nobody else can connect, or somebody asked for it and is warned."""
    tls = TlsFiles(Path("c"), Path("k"), Path("a"))

    assert check_listener(LOOPBACK, None, allow_insecure_remote=False) is None
    assert check_listener(EVERYWHERE, tls, allow_insecure_remote=False) is None
    assert "without TLS" in (check_listener(EVERYWHERE, None, allow_insecure_remote=True) or "")
    with pytest.raises(InsecureListener, match=r"allow\.insecure\.remote=true"):
        check_listener(EVERYWHERE, None, allow_insecure_remote=False)


def test_unreadable_certificates_are_named(tmp_path: Path) -> None:
    """The file is named, whether it is missing or not what it should be. No TLS needs no files."""
    good = tmp_path / "good.pem"
    good.write_text("-----BEGIN CERTIFICATE-----\n")
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    bad = tmp_path / "bad.pem"
    bad.write_text("hello")

    assert server_credentials(None) is None
    assert channel_credentials(None) is None
    with pytest.raises(TlsUnusable, match=r"gone\.pem: No such file"):
        server_credentials(TlsFiles(good, tmp_path / "gone.pem", good))
    with pytest.raises(TlsUnusable, match=r"bad\.pem: not a PEM file"):
        channel_credentials(TlsFiles(good, key, bad))


async def test_the_expiry_is_read_again_although_a_file_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are replaced one by one. A file that is gone between two looks at it must not freeze the metric for ever."""
    failures: list[Exception] = [TlsUnusable("expired"), FileNotFoundError("gone"), ssl.SSLError("half")]

    def read(_: TlsFiles) -> float:
        if failures:
            raise failures.pop()
        return 2_000.0

    monkeypatch.setattr(certificate_expiry, "expiry_s", read)
    expiry = certificate_expiry.CertificateExpiry(TlsFiles(Path("c"), Path("k"), Path("a")))
    keeping = asyncio.ensure_future(expiry.keep(interval_s=0))
    async with asyncio.timeout(5):
        while expiry.at_s is None and not keeping.done():
            await asyncio.sleep(0)
    keeping.cancel()
    assert expiry.at_s == 2_000


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@needs_openssl
@pytest.mark.slow
def test_swapped_and_foreign_files_are_named_before_anything_is_dialled(tmp_path: Path) -> None:
    """gRPC would only say `Failed to create security handshaker`, once for each connection, and retry for ever."""
    authority = Authority(tmp_path / "ca")
    one, other = authority.sign("one"), authority.sign("other")
    chain, key, ca = one.certificate_chain, one.private_key, one.certificate_authority
    for files, why in (
        (
            TlsFiles(key, chain, ca),
            r"one\.key: a certificate expected, and this is a private key: are the two swapped\?",
        ),
        (TlsFiles(chain, chain, ca), r"one\.crt: a private key expected, and this is a certificate"),
        (TlsFiles(chain, key, key), r"one\.key: a certificate expected, and this is a private key"),
        (TlsFiles(chain, other.private_key, ca), r"other\.key is not the key of the certificate in .*one\.crt"),
    ):
        for use in (server_credentials, channel_credentials):
            with pytest.raises(TlsUnusable, match=why):
                use(files)
    assert server_credentials(one) is not None
    assert channel_credentials(one) is not None


@needs_openssl
@pytest.mark.slow
def test_a_node_starts_with_its_own_certificate_or_is_told_what_its_lacks(tmp_path: Path) -> None:
    """Every other node would refuse it, which nobody should have to find in *their* logs. A certificate that others would not
    take for another reason is a warning: it may be exchanged under the running node."""
    cluster = "4L6g3nShT-eMCtK--X86sw"
    ours, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
    names, me = NodeNames(cluster), Node(CONTROLLER, 1)
    right = ours.sign_node(CONTROLLER, 1, cluster)
    assert check_own_name(right, names, me) is None
    assert 0 < expiry_s(right) - time.time() < 2 * 86_400, "good for a day"
    with pytest.raises(
        TlsUnusable,
        match=r"is not the certificate of controller 2: it has controller-1\.e0be.*but not controller-2\.e0be",
    ):
        check_own_name(right, names, Node(CONTROLLER, 2))
    with pytest.raises(TlsUnusable, match="broker 1"):
        check_own_name(right, names, Node(BROKER, 1))
    by_host = ours.sign("host", "127.0.0.1", "DNS:c1.example.org")
    with pytest.raises(
        TlsUnusable,
        match=r"it has c1\.example\.org.*list a name of the certificate in tls\.node\.names.*controller-1@NAME",
    ):
        check_own_name(by_host, names, me)
    assert check_own_name(by_host, NodeNames(cluster, [parse_named_node("controller-1@c1.example.org")]), me) is None
    renamed = [parse_named_node(f"controller-1@{name}") for name in ("new.example.org", "c1.example.org")]
    assert "other nodes demand new.example.org" in (check_own_name(by_host, NodeNames(cluster, renamed), me) or "")
    mixed = TlsFiles(right.certificate_chain, right.private_key, foreign.certificate)
    assert "other nodes will not accept this node's certificate" in (check_own_name(mixed, names, me) or "")


@needs_openssl
@pytest.mark.slow
def test_the_runbooks_commands_make_certificates_that_nodes_start_with(tmp_path: Path) -> None:
    """As they stand there, in bash."""
    runbook = (Path(__file__).parents[2] / "deploy" / "runbook.md").read_text()
    section = runbook.split("## Certificates")[1].split("\n## ")[0]
    script = section.split("```")[1]
    subprocess.run(["bash", "-euo", "pipefail"], input=script, text=True, cwd=tmp_path, check=True, capture_output=True)
    cluster = next(line.partition("=")[2] for line in script.splitlines() if line.startswith("ID="))
    for node in (Node(CONTROLLER, 1), Node(CONTROLLER, 2), Node(BROKER, 101)):
        files = TlsFiles(*(tmp_path / name for name in (f"{node}.crt", f"{node}.key", "ca.crt")))
        assert check_own_name(files, NodeNames(cluster), node) is None
    alice = TlsFiles(*(tmp_path / name for name in ("alice.crt", "alice.key", "ca.crt")))
    with pytest.raises(TlsUnusable, match=r"alice\.crt is a client's.*the certificate of controller 1"):
        check_own_name(alice, NodeNames(cluster), Node(CONTROLLER, 1))
    asked = ["openssl", "x509", "-in", "alice.crt", "-noout", "-subject", "-nameopt", "RFC2253"]
    shown = subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "subject=CN=alice,O=Example"
