"""What may be open to others, and certificates that cannot be read."""

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
    bad = tmp_path / "bad.pem"
    bad.write_text("hello")

    assert server_credentials(None) is None
    assert channel_credentials(None) is None
    with pytest.raises(TlsUnusable, match=r"gone\.pem: No such file"):
        server_credentials(TlsFiles(good, tmp_path / "gone.pem", good))
    with pytest.raises(TlsUnusable, match=r"bad\.pem: not a PEM file"):
        channel_credentials(TlsFiles(good, good, bad))
