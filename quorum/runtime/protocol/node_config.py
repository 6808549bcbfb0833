"""Everything that a controller node can be told about how to work; `quorum.config` makes one from a file."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint
from metadata_log.store.log import LogConfig
from quorum.controller.controller import ControllerConfig
from quorum.core.protocol.config import RaftConfig
from snapshots.policy import MarkPolicy, RetentionPolicy


class NodeConfig(NamedTuple):
    """Lease: `lease_ms + quorum_age_ms <= 0.8 x session timeout`, so that a cut-off broker fences itself before its session
    can end, whatever clocks and a paused controller do.
    """

    endpoints: tuple[Endpoint, ...] = ()
    """Where this controller is to be reached, as configured. Empty: whatever the voter set says of it stays."""
    raft: RaftConfig = RaftConfig()
    controller: ControllerConfig = ControllerConfig()
    log: LogConfig = LogConfig()
    marks: MarkPolicy = MarkPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    scrub_interval_ms: int = 24 * 3_600_000
    """All that is sealed is read again about once in this time; 0: never."""
    lease_ms: int = 5_000
    quorum_age_ms: int = 2_000
    broker_linger_ms: int = 20
    """With many brokers waiting, news is held back this long, so that a burst of commits wakes them once."""
    fetch_wait_max_ms: int = 5_000
    """No broker's fetch waits longer, whatever it asks for."""
    apply_at_once_records: int = 100
    """A follower that has something to make durable or to acknowledge applies no more than so many records before that."""

    voter_endpoints: Mapping[NodeId, Endpoint] = MappingProxyType({})
    """Where controllers are reached, for those that the configuration knows better than the log."""

    def problems(self) -> list[str]:
        """What makes this configuration unsafe, all of it, as sentences."""
        found: list[str] = []
        session_ms = self.controller.session_timeout_ms
        if self.lease_ms + self.quorum_age_ms > 0.8 * session_ms:
            found.append(
                f"lease ({self.lease_ms} ms) + quorum age ({self.quorum_age_ms} ms) must be at most 0.8 x "
                f"broker.session.timeout.ms ({session_ms} ms)"
            )
        raft = self.raft
        if not 0 < raft.election_timeout_min_ms < raft.election_timeout_max_ms:
            found.append("controller.quorum.election.timeout: the minimum must be positive and below the maximum")
        if raft.fetch_wait_ms * 2 > raft.fetch_timeout_ms:
            found.append("controller.quorum.fetch.timeout.ms must be at least twice the fetch wait")
        return found
