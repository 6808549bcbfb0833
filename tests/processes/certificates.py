"""Certificates for a test: an authority, and what it signs. Made by the `openssl` command, good for a day."""

import subprocess
from pathlib import Path
from typing import Final

from daemon.tls import TlsFiles

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

    def sign(self, name: str, host: str = "127.0.0.1") -> TlsFiles:
        """The three files of a node at `host`."""
        (self._directory / f"{name}.ext").write_text(f"subjectAltName=IP:{host}\n")
        self._openssl("req", "-new", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
        extensions = ("-extfile", f"{name}.ext")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *by, "-days", "1", *extensions)
        return TlsFiles(self._directory / f"{name}.crt", self._directory / f"{name}.key", self.certificate)

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._directory, check=True, capture_output=True, timeout=60)
