"""The timers of a broker's session, and how they have to fit together.

1. Three fetches fit into one session: the broker may lose one of them without being fenced. `broker_agent.config` checks that,
   against its own `broker.session.timeout.ms`.
2. Two waits and one `request_timeout_ms` end before the lease does. Otherwise a leader that hangs costs every broker its lease.
   No code checks rule 2, because the lease is configured at the controllers. An operator who raises
   `metadata.fetch.max.wait.ms` has to check it.

An example of rule 2, with the defaults and a lease of 5 s:

    1. The broker sends a fetch at 0 s. The leader answers at 1.2 s, which renews the lease until 5 s.
    2. The broker sends the next fetch. The leader hangs.
    3. The broker gives up that fetch at 3.4 s: after 1.2 s of wait and 1 s of `request_timeout_ms`.
    4. Other controllers have 1.6 s to answer before the lease ends.
"""

from dataclasses import dataclass

from broker_agent.session.lifecycle import LeaseMode
from metadata_log.format.fetch_size import PIECE_BYTES_MIN


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The session's timers, and what a lapsed lease means for clients."""

    lease_mode: LeaseMode = LeaseMode.STRICT
    max_wait_ms: int = 1_200
    """How long the controller may hold a fetch of an online broker while there are no new records."""
    fenced_max_wait_ms: int = 500
    """Maximum wait of a fenced broker: shorter, so that the broker soon learns that it is unfenced."""
    max_bytes: int = 1 << 20
    """Maximum number of bytes that a fetch asks for, of the log or of a snapshot."""
    piece_bytes_min: int = PIECE_BYTES_MIN
    """Minimum number of bytes that a fetch asks for, however slow the link is (`metadata_log.format.fetch_size`)."""
    request_timeout_ms: int = 1_000
    """How long an answer may take beyond the wait that the request asked for."""
    register_timeout_ms: int = 3_000
    """How long one registration request may take."""
    initial_registration_timeout_ms: int = 60_000
    """How long a new process tries to register before it exits."""
    shutdown_deadline_ms: int = 15_000
    """How long a stopping broker waits until its leaderships have moved. Then it exits."""
    shutdown_interval_ms: int = 50
    """How long a stopping broker waits between two fetches, so that it exits soon after its leaderships have moved."""
    contact_interval_ms: int = 1_000
    """How long the broker waits between two heartbeats while its store works."""
    fetch_interval_min_ms: int = 20
    """Minimum time between two fetches that bring no records."""
    not_ready_interval_ms: int = 50
    """How long the broker waits before it asks a new leader again that cannot answer yet."""
    backoff_ms: int = 50
    """How long the broker waits after the first failure. Each further failure doubles the time."""
    backoff_max_ms: int = 1_000
    """Maximum of the doubled wait."""
    reset_backoff_max_ms: int = 30_000
    """Maximum pause before a dropped store is fetched again. A store that is dropped again and again points to a bug, and each
    attempt costs the controller a whole image."""
