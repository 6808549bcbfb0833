"""What may be open to others, and certificates that cannot be read."""

import asyncio
import re
import shutil
import subprocess
import time
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from service_kit.process.endpoints import HostPort
from service_kit.security.certificate_names import check_own_name
from service_kit.security.node_identity import BROKER, CONTROLLER, Node, NodeNames, parse_named_node
from service_kit.security.served_certificate import KEPT, REFUSED, REPLACE, ServedCertificate, server_credentials
from service_kit.security.tls import (
    InsecureListener,
    PemTexts,
    TlsFiles,
    TlsUnusable,
    channel_credentials,
    check_listener,
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
        ServedCertificate(TlsFiles(good, tmp_path / "gone.pem", good))
    with pytest.raises(TlsUnusable, match=r"bad\.pem: not a PEM file"):
        channel_credentials(TlsFiles(good, key, bad))


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
        for use in (ServedCertificate, channel_credentials):
            with pytest.raises(TlsUnusable, match=why):
                use(files)
    for kind, words in (
        ("Ed25519", ("-newkey", "ed25519", "-nodes")),
        ("Ed448", ("-newkey", "ed448", "-nodes")),
        ("P-521", ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp521r1", "-nodes")),
    ):
        files = authority.sign(kind, key=words)
        for use in (ServedCertificate, channel_credentials):
            with pytest.raises(TlsUnusable, match=f"{kind}.crt has a key of the kind {kind}, which gRPC cannot use"):
                use(files)
    for words in (
        ("-newkey", "rsa:2048", "-nodes"),
        ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes"),
    ):
        assert channel_credentials(authority.sign(f"good-{len(words)}", key=words)) is not None
    assert server_credentials(ServedCertificate(one)) is not None
    assert channel_credentials(one) is not None


@needs_openssl
@pytest.mark.slow
def test_a_certificate_whose_key_may_not_sign_is_told_from_one_of_the_wrong_extended_usage(tmp_path: Path) -> None:
    """Every handshake signs, with P-256 and with RSA. Without digitalSignature gRPC would not listen, or not connect, and OpenSSL
    names the purpose only, if anything. An RSA certificate needs no keyEncipherment."""
    authority = Authority(tmp_path / "ca")
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    rsa = ("-newkey", "rsa:2048", "-nodes")
    for index, usage in enumerate(("keyEncipherment", "critical,keyAgreement", "critical,keyAgreement,decipherOnly")):
        for files in (
            authority.sign(f"ec-{index}", key_usage=usage, key=ec),
            authority.sign(f"rsa-{index}", key_usage=usage, key=rsa),
        ):
            for use in (ServedCertificate, channel_credentials):
                with pytest.raises(TlsUnusable, match=r"-\d\.crt may not sign: its key usage lacks digitalSignature"):
                    use(files)
    for name, usage, key in (
        ("ec", "critical,digitalSignature", ec),
        ("rsa-signs", "digitalSignature", rsa),
        ("rsa-does-both", "critical,digitalSignature,keyEncipherment", rsa),
    ):
        good = authority.sign(name, key_usage=usage, key=key)
        assert ServedCertificate(good).problem == ""
        assert channel_credentials(good) is not None


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
    assert 0 < (ServedCertificate(right).expires_s or 0) - time.time() < 2 * 86_400, "good for a day"
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
    with pytest.raises(
        TlsUnusable, match=r"controller-1\.crt, verified with .*foreign/ca\.crt: .*files of one authority"
    ):
        check_own_name(mixed, names, me)
    for usage, lacks in (("serverAuth", "clientAuth"), ("clientAuth", "serverAuth")):
        one_way = ours.sign(usage, "127.0.0.1", f"DNS:{names.demanded(me)}", usage=usage)
        with pytest.raises(TlsUnusable, match=f"lacks {lacks}. Give this node the certificate of controller 1"):
            check_own_name(one_way, names, me)
    expired = ours.sign_node(CONTROLLER, 3, cluster, days=-1)
    assert "certificate has expired" in (check_own_name(expired, names, Node(CONTROLLER, 3)) or "")
    assert ServedCertificate(expired, names, Node(CONTROLLER, 3)).problem.startswith(REFUSED)


@needs_openssl
@pytest.mark.slow
async def test_a_running_node_never_shows_a_certificate_that_other_nodes_refuse(tmp_path: Path) -> None:
    """1. Over the files of the running controller 3 an operator copies those of controller 2, then those of another authority,
    then another key.  2. The node goes on to show its old certificate, and reports the file and the fault.  3. The operator
    copies new files of controller 3: the node shows them without a restart, and the problem ends."""
    cluster = "4L6g3nShT-eMCtK--X86sw"
    ours, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
    shown = TlsFiles(*(tmp_path / name for name in ("node.crt", "node.key", "ca.crt")))

    def copy(tls: TlsFiles) -> PemTexts:
        for source, target in zip(astuple(tls), astuple(shown), strict=True):
            shutil.copyfile(source, target)
        return shown.read()

    own = ours.sign_node(CONTROLLER, 3, cluster)
    first = copy(own)
    certificate = ServedCertificate(shown, NodeNames(cluster), Node(CONTROLLER, 3))
    assert (certificate.newest(), certificate.problem) == (first, "")

    wrong = ours.sign_node(CONTROLLER, 2, cluster), foreign.sign_node(CONTROLLER, 3, cluster)
    half = replace(own, private_key=wrong[0].private_key)
    for files, why in (
        (wrong[0], r"node\.crt is not the certificate of controller 3: it has controller-2\."),
        (
            replace(wrong[1], certificate_authority=ours.certificate),
            r"node\.crt, verified with .*ca\.crt: .*one authority",
        ),
        (half, r"node\.key is not the key of the certificate in .*node\.crt"),
    ):
        copy(files)
        assert certificate.newest() == first
        assert re.search(why, certificate.problem) and KEPT in certificate.problem and REPLACE in certificate.problem
        assert certificate.check() == first
    shown.private_key.unlink()
    assert certificate.newest() == first
    assert "node.key: No such file" in certificate.problem

    second = copy(ours.sign_node(CONTROLLER, 3, cluster))
    told: list[str] = []
    keeping = asyncio.ensure_future(certificate.keep(interval_s=0, tell=told.append))
    async with asyncio.timeout(5):
        while not told and not keeping.done():
            await asyncio.sleep(0)
    keeping.cancel()
    assert (told, certificate.newest(), first != second) == ([""], second, True)


@needs_openssl
@pytest.mark.slow
def test_the_runbooks_commands_make_certificates_that_nodes_start_with(tmp_path: Path) -> None:
    """As they stand there, in bash, and once more for a renewal: that must not make a new authority."""
    runbook = (Path(__file__).parents[2] / "deploy" / "runbook.md").read_text()
    section = runbook.split("## Certificates")[1].split("\n## ")[0]
    script = "\n".join(section.split("```")[1:4:2])
    authorities = []
    for _ in range(2):
        subprocess.run(
            ["bash", "-euo", "pipefail"], input=script, text=True, cwd=tmp_path, check=True, capture_output=True
        )
        authorities.append((tmp_path / "ca.crt").read_bytes())
    assert authorities[0] == authorities[1]
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
