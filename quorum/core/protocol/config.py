"""The quorum's timers, in milliseconds (see `quorum/config.py` for their names in a config file)."""

from typing import NamedTuple

from metadata_log.format.fetch_size import PIECE_BYTES_MIN
from metadata_log.format.ids import NodeId


class RaftConfig(NamedTuple):
    """The defaults suit controllers in one region.

    They are shorter than Kafka's (2 s fetch timeout, 1 to 2 s elections), because a leader answers a long poll within
    150 ms even without news, so silence shows sooner. A follower gives up its leader after `fetch_timeout_ms`. A leader
    gives up its quorum after `check_quorum_ms`, which is longer: a new leader is elected before the old leader notices.
    """

    fetch_wait_ms: int = 150
    fetch_timeout_ms: int = 700
    check_quorum_ms: int = 1_000
    election_timeout_min_ms: int = 250
    election_timeout_max_ms: int = 500
    request_timeout_ms: int = 500
    retry_backoff_ms: int = 30
    successor_wait_ms: int = 40
    """How long a successor waits per rank: after the leader's process is gone, rank i starts its pre-vote after i times
    this."""
    watermark_linger_ms: int = 5
    """How long a parked fetch may wait with a new high watermark. Under load the next batch carries the high watermark
    along, which saves half of all messages. 0: answer at once."""
    auto_join: bool = False
    """True: a controller outside the voter set asks to be added once it has caught up (KIP-1186)."""
    also_ask: tuple[NodeId, ...] = ()
    """Controllers to ask for the leader, besides the voters in the node's own log. All voters in the log may be gone: a
    newly formatted node knows only the first voters."""
    fetch_bytes_max: int = 1 << 20
    snapshot_chunk_bytes: int = 1 << 20
    piece_bytes_min: int = PIECE_BYTES_MIN
    """Minimum number of bytes a fetch asks for, however slow the link is (`metadata_log.format.fetch_size`)."""
