"""The timers of the quorum, in milliseconds (see `quorum/config.py` for their names in a config file)."""

from typing import NamedTuple

from metadata_log.format.ids import NodeId
from metadata_log.format.pieces import PIECE_BYTES_MIN


class RaftConfig(NamedTuple):
    """Defaults suit controllers in one region.

    Faster than Kafka's (2 s fetch timeout, 1-2 s elections) because a long poll is answered within 150 ms even when
    nothing happens: silence is noticed sooner. A follower gives up on its leader after `fetch_timeout_ms`; a leader gives
    up on its quorum after `check_quorum_ms`, which is longer, so that a new leader is chosen before the old one notices.
    """

    fetch_wait_ms: int = 150
    fetch_timeout_ms: int = 700
    check_quorum_ms: int = 1_000
    election_timeout_min_ms: int = 250
    election_timeout_max_ms: int = 500
    request_timeout_ms: int = 500
    retry_backoff_ms: int = 30
    successor_wait_ms: int = 40
    """After the leader's process is seen gone, the successor of rank i waits i times this before it pre-votes."""
    watermark_linger_ms: int = 5
    """How long a follower may wait to hear of a new high watermark: under load the next batch brings it along, which saves
    half of all messages. 0: it is told at once."""
    auto_join: bool = False
    """A controller that does not vote asks to be added once it has caught up (KIP-1186)."""
    also_ask: tuple[NodeId, ...] = ()
    """Controllers that a node asks for the leader besides the voters of its own log, which may all have gone: a node that has
    just been formatted knows only the first ones."""
    fetch_bytes_max: int = 1 << 20
    snapshot_chunk_bytes: int = 1 << 20
    piece_bytes_min: int = PIECE_BYTES_MIN
    """No fetch asks for less, however slow the link is (`metadata_log.format.pieces`)."""
