"""gRPC options of both daemons and all clients, each with the failure that it prevents."""

from typing import Final, TypeAlias

from service_kit.process.descriptors import SILENCE_MS

Options: TypeAlias = list[tuple[str, int | str]]

MESSAGE_BYTES_MAX: Final = 4 << 20
"""Maximum size of a received message (gRPC's default). Larger values (snapshots, long logs) are sent in pieces."""

CONCURRENT_STREAMS_MAX: Final = 1_024
"""Maximum number of calls per connection. Further calls wait in the client's gRPC, so one client cannot pile up work."""

CONCURRENT_RPCS_MAX: Final = 10_000
"""Maximum number of calls per server. A further call ends at once with RESOURCE_EXHAUSTED."""

KEEPALIVE_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 2_000
"""How long a ping may take. A peer whose machine vanished (no FIN, no RST) is noticed within the sum of both. Raft's own timers
notice it earlier."""

PING_TIMEOUT: Final = ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS)
"""The timeout of every ping, also of those that measure the bandwidth. While such a ping is in flight keepalive sends none of its
own, and gRPC's timeout for it is a minute. Without this option each call to a half-open connection failed for 60 s (measured)."""

RECONNECT_BACKOFF_MIN_MS: Final = 20
RECONNECT_BACKOFF_MAX_MS: Final = 150
"""Maximum pause between two attempts to connect: below the shortest election timeout (250 ms). gRPC's default is up to 120 s: a
voter that was down for a minute would be back for two minutes before any peer connects to it."""


def server_options(message_bytes_max: int = MESSAGE_BYTES_MAX, connections: int | None = None) -> Options:
    """Options for `grpc.aio.server`. `connections`: maximum number of connections, further ones are closed at once; None: no
    limit."""
    bounds: Options = [] if connections is None else [("grpc.max_allowed_incoming_connections", connections)]
    return [
        *bounds,
        ("grpc.server_handshake_timeout_ms", SILENCE_MS),
        (
            "grpc.so_reuseport",
            0,
        ),  # gRPC's default of 1 lets two daemons share a port silently: each would get half of the calls
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_concurrent_streams", CONCURRENT_STREAMS_MAX),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        PING_TIMEOUT,
        # Our clients ping at the rate in `channel_options`; with a stricter limit the server would drop them (too_many_pings).
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def channel_options(
    message_bytes_max: int = MESSAGE_BYTES_MAX, reconnect_backoff_max_ms: int = RECONNECT_BACKOFF_MAX_MS
) -> Options:
    """Options for `grpc.aio.insecure_channel` and `secure_channel`. Keep `reconnect_backoff_max_ms` below the election
    timeout."""
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
        ),  # the callers decide about retries, because a change may have happened
        (
            "grpc.use_local_subchannel_pool",
            1,
        ),  # so that closing a channel closes its connection, even with an equal channel
        ("grpc.enable_http_proxy", 0),  # calls within a cluster must not go through a proxy from the environment
    ]
