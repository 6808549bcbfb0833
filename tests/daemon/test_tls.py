"""What may be open to others, and certificates that cannot be read."""

import shutil
from pathlib import Path

import pytest

from daemon.endpoints import HostPort
from daemon.tls import (
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
