"""The rows that the metric tables of controllers and brokers share: release, certificate, and gRPC calls."""

import platform
from typing import Final, Protocol

from service_kit.process.metrics import Kind, Metric
from service_kit.process.release import release
from service_kit.rpc.call_tallies import CallTallies
from service_kit.security.served_certificate import ServedCertificate


class DaemonReading(Protocol):
    """The readings for the shared rows."""

    @property
    def calls(self) -> CallTallies:
        """The calls that this daemon's servers have answered."""
        ...

    @property
    def certificate(self) -> ServedCertificate | None:
        """The certificate that the daemon's servers show; None without TLS."""
        ...


_Row = Metric[DaemonReading]

DAEMON_ROWS: Final = (
    _Row(
        "build_info",
        Kind.GAUGE,
        "Always 1; the labels say which release runs, on which Python.",
        lambda of: {(release(), platform.python_version()): 1},
        ("version", "python"),
    ),
    _Row(
        "certificate_expiry_timestamp_seconds",
        Kind.GAUGE,
        "Time at which this node's certificate expires, in seconds since 1970 UTC; NaN without TLS.",
        lambda of: None if of.certificate is None else of.certificate.expires_s,
    ),
    _Row(
        "certificate_unusable",
        Kind.GAUGE,
        "1 while other nodes refuse this node's certificate files as they are on disk, else 0. The log has the reason.",
        lambda of: of.certificate is not None and bool(of.certificate.problem),
    ),
    _Row(
        "requests_total",
        Kind.COUNTER,
        "Calls that ended on this node's gRPC servers, by method and gRPC code; a stream is one call.",
        lambda of: of.calls.requests,
        ("method", "code"),
    ),
    _Row(
        "request_seconds",
        Kind.HISTOGRAM,
        "Duration of each unary call on this node's gRPC servers.",
        lambda of: of.calls.seconds,
        ("method",),
    ),
    _Row(
        "received_bytes_total",
        Kind.COUNTER,
        "Bytes of requests that this node's gRPC servers received.",
        lambda of: of.calls.received_bytes,
        ("service",),
    ),
    _Row(
        "sent_bytes_total",
        Kind.COUNTER,
        "Bytes of responses that this node's gRPC servers sent.",
        lambda of: of.calls.sent_bytes,
        ("service",),
    ),
)
