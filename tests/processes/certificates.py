"""Certificates for a test: an authority, and what it signs. Made by the `openssl` command, good for a day."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from service_kit.security.node_identity import Node, NodeNames
from service_kit.security.tls import TlsFiles

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs in `directory`, where nobody else's files are."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.certificate = directory / "ca.crt"
        self._openssl(
            "req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", "1", "-subj", "/CN=authority"
        )

    def sign(
        self,
        name: str,
        host: str = "127.0.0.1",
        *more: str,
        days: int = 1,
        usage: str = "",
        key_usage: str = "",
        key: Sequence[str] = _KEY,
    ) -> TlsFiles:
        """The three files of whoever is at `host`; `more` are further alternative names, as openssl writes them (`DNS:c2`).
        `usage`: the extended key usage; empty: any. `key_usage`: the key usage; empty: any."""
        usages = f"extendedKeyUsage={usage}\n" if usage else ""
        usages += f"keyUsage={key_usage}\n" if key_usage else ""
        (self._directory / f"{name}.ext").write_text(f"subjectAltName={','.join((f'IP:{host}', *more))}\n{usages}")
        self._openssl("req", "-new", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
        extensions = ("-extfile", f"{name}.ext")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *by, "-days", str(days), *extensions)
        return TlsFiles(self._directory / f"{name}.crt", self._directory / f"{name}.key", self.certificate)

    def sign_node(self, role: str, node_id: int, cluster_id: str, host: str = "127.0.0.1", days: int = 1) -> TlsFiles:
        """The three files of a node of that cluster: its host is not its identity, the name beside it is."""
        node = Node(role, node_id)
        return self.sign(str(node), host, f"DNS:{NodeNames(cluster_id).demanded(node)}", days=days)

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._directory, check=True, capture_output=True, timeout=60)
