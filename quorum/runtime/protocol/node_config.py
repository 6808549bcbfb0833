"""The configuration of a controller node. `quorum.config` makes one from a file."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from metadata_log.format.ids import NodeId
from metadata_log.format.records import SUPPORTED, Endpoint, FeatureRange
from metadata_log.store.log_config import LogConfig
from quorum.controller.controller import ControllerConfig
from quorum.core.protocol.config import RaftConfig
from snapshots.history.kept import PastConfig
from snapshots.policy import MarkPolicy, RetentionPolicy


class NodeConfig(NamedTuple):
    """The configuration of all parts of a node.

    `lease_ms + quorum_age_ms` is at most 0.8 x the session timeout. So a broker without contact to the controllers stops serving
    before its session ends, even if clocks run at different speeds or a controller was paused. Example with a session of 9 s:
        1. a majority confirms leader 1 at 0 s for the last time; then leader 1 is cut off from the other voters;
        2. leader 1 grants broker 101 a lease of 5 s just before 2 s; later leases are 0 (`quorum_age_ms`);
        3. broker 101 stops serving at 7 s; the next leader ends the session of broker 101 at 9 s at the earliest.
    """

    endpoints: tuple[Endpoint, ...] = ()
    """Addresses of this controller for other nodes. Empty: the addresses in the voter set stay as they are."""
    raft: RaftConfig = RaftConfig()
    controller: ControllerConfig = ControllerConfig()
    log: LogConfig = LogConfig()
    marks: MarkPolicy = MarkPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    past: PastConfig = PastConfig()
    scrub_interval_ms: int = 24 * 3_600_000
    """How long one scrub of all sealed segments and snapshots takes, about; 0: no scrub."""
    lease_ms: int = 5_000
    quorum_age_ms: int = 2_000
    broker_linger_ms: int = 20
    """How long new records are held back while many brokers wait, so that a burst of commits wakes the brokers once."""
    broker_wake_at_once_max: int = 32
    """Maximum number of waiting brokers that are answered at the commit; more brokers are answered after the linger."""
    broker_answers_per_turn_max: int = 64
    """Maximum number of waiting brokers that a turn answers, because of a commit or because they have waited long enough."""
    broker_answers_per_s_max: int = 4_000
    """Maximum rate of answers to waiting brokers; after a wave of 1,000 answers, the next wave begins 250 ms later or more."""
    fetch_wait_max_ms: int = 5_000
    """Maximum time that a broker's fetch waits for new records."""
    apply_at_once_records: int = 100
    """Maximum number of records that a follower applies before it flushes or acknowledges."""

    features: tuple[FeatureRange, ...] = SUPPORTED
    """The levels of features that this controller registers."""
    voter_endpoints: Mapping[NodeId, Endpoint] = MappingProxyType({})
    """Configured addresses of controllers. A configured address overrides the address in the log."""

    def problems(self) -> list[str]:
        """Returns every contradiction that makes this configuration unsafe, as a sentence each."""
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
