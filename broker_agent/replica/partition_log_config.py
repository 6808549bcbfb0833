"""The configuration of the logs of one topic. Pure.

A topic's own values come before the broker's values, and those before the defaults. Example: `retention.ms` of the topic `orders`
is not set, and the broker has `log.retention.ms` = 3600000. The logs of `orders` keep their records for an hour.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_agent.replica.retention import RetentionConfig
from metadata_log.format.batch import DATA_FORMAT_VERSION
from metadata_log.format.data_batch import RECORDS_BYTES_MAX
from metadata_log.store.log_config import LogConfig

SEGMENT_BYTES: Final = 64 << 20
"""The default of `segment.bytes`: smaller than Kafka's, because a start reads whole segments."""
_TAIL_BYTES: Final = 256 << 10
_WEEK_MS: Final = 7 * 24 * 3_600_000
_BROKER_KEYS: Final = {
    "max.message.bytes": "message.max.bytes",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
}
"""Key of a topic -> the key of a broker that holds if the topic has no value, where the names differ."""


class PartitionLogConfig(NamedTuple):
    """The configuration of a topic, as far as its logs need it."""

    segment_bytes: int = SEGMENT_BYTES
    max_message_bytes: int = RECORDS_BYTES_MAX
    """Maximum size of the records of one batch (`max.message.bytes`)."""
    timestamp_after_max_ms: int = 3_600_000
    """How far a timestamp may be ahead of this broker's clock. A wild timestamp would stop the retention by time."""
    producer_id_expiration_ms: int = 24 * 3_600_000
    """How long a silent producer is remembered (`producer.id.expiration.ms`)."""
    retention: RetentionConfig = RetentionConfig()

    @classmethod
    def of_topic(cls, topic: Mapping[str, str], broker: Mapping[str, str]) -> "PartitionLogConfig":
        """Take the values that are set for a topic, and for this broker or all brokers. The controllers have checked them."""

        def value(key: str, default: int) -> int:
            text = topic.get(key, broker.get(_BROKER_KEYS.get(key, key)))
            return default if text is None else int(text)

        return cls(
            segment_bytes=value("segment.bytes", SEGMENT_BYTES),
            max_message_bytes=min(value("max.message.bytes", RECORDS_BYTES_MAX), RECORDS_BYTES_MAX),
            timestamp_after_max_ms=value("message.timestamp.after.max.ms", 3_600_000),
            retention=RetentionConfig(
                value("retention.ms", _WEEK_MS), value("retention.bytes", -1), value("segment.ms", _WEEK_MS)
            ),
        )

    @property
    def log(self) -> LogConfig:
        """The sizes for the store."""
        return LogConfig(
            self.segment_bytes,
            _TAIL_BYTES,
            archive=False,
            open_files_max=1,
            format_version=DATA_FORMAT_VERSION,
            notes_first_start=False,  # a damaged replica is copied again as a whole
        )
