"""How long a handler lets the node work on one request."""

from typing import Any, Final

DEFAULT_TIMEOUT_MS: Final = 10_000
TIMEOUT_MS_MAX: Final = 120_000
"""Nobody waits longer, whatever they ask for: what waits holds memory."""


def timeout_of(asked_ms: int, context: Any) -> int:
    """Milliseconds: what the request asks for, within the call's own deadline and ours. (gRPC's deadline: seconds left.)"""
    timeout_ms = min(asked_ms, TIMEOUT_MS_MAX) if asked_ms > 0 else DEFAULT_TIMEOUT_MS
    remaining_s = context.time_remaining()
    if remaining_s is not None:
        timeout_ms = min(timeout_ms, int(remaining_s * 1_000))
    return max(1, timeout_ms)
