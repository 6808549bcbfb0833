"""When this node's certificate expires, for the metrics page: an alert some weeks before is what keeps a cluster together.

The answer comes from a handshake of the node with itself (`certificate_names`), which takes milliseconds and reads files. So a
background task asks once an hour, in a thread. Files that were replaced show within that hour.
"""

import asyncio
import contextlib
from typing import Final

from service_kit.security.certificate_names import expiry_s
from service_kit.security.tls import TlsFiles, TlsUnusable

INTERVAL_S: Final = 3_600.0


class CertificateExpiry:
    """The newest answer."""

    def __init__(self, tls: TlsFiles | None) -> None:
        self._tls = tls
        self.at_s: float | None = None
        """Seconds since 1970 UTC; None without TLS, or while no certificate was valid."""

    async def keep(self, interval_s: float = INTERVAL_S) -> None:
        """Reads the certificate again and again until it is cancelled."""
        while self._tls is not None:
            # Expired, or files half replaced: the last answer stays, and the alert on it stays, too.
            with contextlib.suppress(TlsUnusable):
                self.at_s = await asyncio.to_thread(expiry_s, self._tls)
            await asyncio.sleep(interval_s)
