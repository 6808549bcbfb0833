"""The configuration of a broker's partitions: of the broker, and of each topic. Pure."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_agent.partitions.throttle import NOTHING_THROTTLED, ThrottledReplicas
from broker_agent.replica.fetchers import FetcherConfig
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.session_cache import SessionLimits


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The configuration of one broker."""

    lag_time_max_ms: int = 30_000
    """How long a member of the ISR may not be caught up (`replica.lag.time.max.ms`)."""
    proposal_backoff_ms: int = 50
    """How long a leader waits before it sends an unanswered proposal again."""
    fetchers: FetcherConfig = field(default_factory=FetcherConfig)
    sessions: SessionLimits = field(default_factory=SessionLimits)
    high_watermark_interval_ms: int = 5_000
    """How often the high watermarks are written (`replica.high.watermark.checkpoint.interval.ms`)."""
    retention_interval_ms: int = 300_000
    """How often the retention of each log is applied (`log.retention.check.interval.ms`)."""
    disk_retry_ms: int = 1_000
    """How long to wait before work is repeated for which the disk had no room."""
    open_logs_max: int = 1_000
    """Maximum number of logs of one directory whose files stay open while nothing waits for a flush."""
    slice_max: int = 200
    """Maximum number of partitions that one call works on. A `Wake` or a deadline brings the rest."""


class TopicConfig(NamedTuple):
    """The configuration of one topic."""

    log: PartitionLogConfig = PartitionLogConfig()
    min_insync_replicas: int = 1
    leader_throttled: ThrottledReplicas = NOTHING_THROTTLED
    """The replicas that this broker sends at a limited rate (`leader.replication.throttled.replicas`)."""
    follower_throttled: ThrottledReplicas = NOTHING_THROTTLED
    """The replicas that this broker fetches at a limited rate (`follower.replication.throttled.replicas`)."""


DEFAULT_TOPIC: Final = TopicConfig()
