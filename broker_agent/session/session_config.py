"""The session's times. They fit together: `config` checks what an operator sets against them.

`max_wait_ms` must leave room for two fetches in a session: one may be lost without the broker being fenced. And two waits with
one `request_timeout_ms` must leave time for an answer before the lease ends, or a leader that hangs costs every broker its lease.
Example, with a lease of 5 s: a fetch is sent at 0 and answered at 1.2 s, the leader hangs, the next fetch is given up at 3.4 s,
and other controllers have 1.6 s to answer.
"""

from dataclasses import dataclass

from broker_agent.session.lifecycle import LeaseMode
from metadata_log.format.pieces import PIECE_BYTES_MIN


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The session's times, and what a lapsed lease does to clients."""

    lease_mode: LeaseMode = LeaseMode.STRICT
    max_wait_ms: int = 1_200
    fenced_max_wait_ms: int = 500
    """A fenced broker waits less, so that it sees soon that it may go Online."""
    max_bytes: int = 1 << 20
    """The most that a fetch asks for, of the log or of a snapshot."""
    piece_bytes_min: int = PIECE_BYTES_MIN
    """No fetch asks for less, however slow the link is (`metadata_log.format.pieces`)."""
    request_timeout_ms: int = 1_000
    """How long an answer may take beyond the wait that was asked for."""
    register_timeout_ms: int = 3_000
    initial_registration_timeout_ms: int = 60_000
    shutdown_deadline_ms: int = 15_000
    shutdown_interval_ms: int = 50
    contact_interval_ms: int = 1_000
    fetch_interval_min_ms: int = 20
    not_ready_interval_ms: int = 50
    backoff_ms: int = 50
    backoff_max_ms: int = 1_000
    reset_backoff_max_ms: int = 30_000
    """A store that keeps coming out wrong is a bug somewhere, and each new attempt costs the controller a whole image."""
