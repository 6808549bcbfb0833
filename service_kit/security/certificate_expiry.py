"""The time at which this node's certificate expires, for the metrics page.

An operator sets an alert some weeks before that time, and renews the certificates before the nodes refuse each other.

The node reads the time in a handshake with itself (`certificate_names`). A handshake takes milliseconds and reads files, so a
background task makes one each hour, in a thread. For example, an operator replaces the files at 12:10, and the task runs at 12:00
and 13:00: the metric has the new time from 13:00 on.
"""

import asyncio
import contextlib
from typing import Final

from service_kit.security.certificate_names import expiry_s
from service_kit.security.tls import TlsFiles, TlsUnusable

INTERVAL_S: Final = 3_600.0


class CertificateExpiry:
    """The result of the newest handshake."""

    def __init__(self, tls: TlsFiles | None) -> None:
        self._tls = tls
        self.at_s: float | None = None
        """Seconds since 1970 UTC; None without TLS, or while no certificate was valid."""

    async def keep(self, interval_s: float = INTERVAL_S) -> None:
        """Reads the certificate again and again until it is cancelled."""
        while self._tls is not None:
            # Expired, or files half replaced, perhaps while they are read: the last answer stays, and the alert on it stays, too.
            with contextlib.suppress(TlsUnusable, OSError):
                self.at_s = await asyncio.to_thread(expiry_s, self._tls)
            await asyncio.sleep(interval_s)
