"""The timers of a broker's session, and how they have to fit together.

1. Three fetches fit into one session: one of them may be lost without the broker being fenced. `broker_agent.config` checks it,
   against its own `broker.session.timeout.ms`.
2. Two waits and one `request_timeout_ms` end before the lease does, or a leader that hangs costs every broker its lease. No
   code checks it: the lease is configured at the controllers. An operator who raises `metadata.fetch.max.wait.ms` checks it.

An example of 2, with the defaults and a lease of 5 s:

    1. The broker sends a fetch at 0 s. The leader answers at 1.2 s, which renews the lease until 5 s.
    2. The broker sends the next fetch. The leader hangs.
    3. The broker gives that fetch up at 3.4 s: 1.2 s of wait and 1 s of `request_timeout_ms`.
    4. Other controllers have 1.6 s to answer before the lease ends.
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
