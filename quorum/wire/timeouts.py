"""The time that a node may work on one request."""

from typing import Any, Final

DEFAULT_TIMEOUT_MS: Final = 10_000
TIMEOUT_MS_MAX: Final = 120_000
"""Maximum timeout of a request, in milliseconds: a waiting request holds memory."""


def timeout_of(asked_ms: int, context: Any) -> int:
    """Returns the request's timeout in milliseconds, limited by the call's gRPC deadline and by TIMEOUT_MS_MAX."""
    timeout_ms = min(asked_ms, TIMEOUT_MS_MAX) if asked_ms > 0 else DEFAULT_TIMEOUT_MS
    remaining_s = context.time_remaining()
    if remaining_s is not None:
        timeout_ms = min(timeout_ms, int(remaining_s * 1_000))
    return max(1, timeout_ms)
