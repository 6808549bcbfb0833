"""The gRPC options that both daemons and all clients use, each with the failure that it prevents."""

from typing import Final, TypeAlias

from service_kit.process.descriptors import SILENCE_MS

Options: TypeAlias = list[tuple[str, int | str]]

MESSAGE_BYTES_MAX: Final = 4 << 20
"""gRPC's own limit for what is received. Whatever may be larger (snapshots, long logs) is sent in pieces by bytes."""

CONCURRENT_STREAMS_MAX: Final = 1_024
"""Per connection; beyond it the client's gRPC waits, so that one client cannot pile up work without end."""

CONCURRENT_RPCS_MAX: Final = 10_000
"""Per server; beyond it a call ends at once with RESOURCE_EXHAUSTED."""

KEEPALIVE_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 2_000
"""A peer whose machine vanished (no FIN, no RST) is noticed within their sum. Raft's own timers notice it earlier."""

PING_TIMEOUT: Final = ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS)
"""For every ping, also those by which gRPC measures the bandwidth. While one of these is on its way keepalive sends none of its
own, and their own limit is a minute: so long each call to a half-open connection ran into its deadline (measured: 60 s)."""

RECONNECT_BACKOFF_MIN_MS: Final = 20
RECONNECT_BACKOFF_MAX_MS: Final = 150
"""Stays below the shortest election timeout (250 ms). With gRPC's default, up to 120 s, a voter that was down for a minute
would be back for two minutes before anybody talks to it."""


def server_options(message_bytes_max: int = MESSAGE_BYTES_MAX, connections: int | None = None) -> Options:
    """For `grpc.aio.server`. `connections`: at most so many at a time; beyond them it hangs up at once. None: no bound."""
    bounds: Options = [] if connections is None else [("grpc.max_allowed_incoming_connections", connections)]
    return [
        *bounds,
        ("grpc.server_handshake_timeout_ms", SILENCE_MS),
        (
            "grpc.so_reuseport",
            0,
        ),  # 1, the default, lets two daemons share a port silently, each getting half of the calls
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_concurrent_streams", CONCURRENT_STREAMS_MAX),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        PING_TIMEOUT,
        # Clients of ours ping as often as `channel_options` says; stricter servers would drop them (too_many_pings).
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def channel_options(
    message_bytes_max: int = MESSAGE_BYTES_MAX, reconnect_backoff_max_ms: int = RECONNECT_BACKOFF_MAX_MS
) -> Options:
    """For `grpc.aio.insecure_channel` and `secure_channel`. Keep `reconnect_backoff_max_ms` below the election timeout."""
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.initial_reconnect_backoff_ms", min(RECONNECT_BACKOFF_MIN_MS, reconnect_backoff_max_ms)),
        ("grpc.min_reconnect_backoff_ms", min(RECONNECT_BACKOFF_MIN_MS, reconnect_backoff_max_ms)),
        ("grpc.max_reconnect_backoff_ms", reconnect_backoff_max_ms),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        PING_TIMEOUT,
        ("grpc.http2.max_pings_without_data", 0),
        (
            "grpc.enable_retries",
            0,
        ),  # who may ask again, and when, is decided by the callers: "may have happened" matters
        ("grpc.use_local_subchannel_pool", 1),  # closing a channel closes its connection, also with a twin elsewhere
        ("grpc.enable_http_proxy", 0),  # an HTTP proxy from the environment is not for a cluster's own calls
    ]
