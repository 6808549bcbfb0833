"""The configuration of a topic's logs: the topic's values, then the broker's, then the defaults."""

import pytest

from broker_agent.replica import partition_log_config
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.retention import RetentionConfig
from metadata_log.format.data_batch import RECORDS_BYTES_MAX
from quorum.controller.topics.config_keys import BROKER_KEYS, TOPIC_KEYS


def test_without_values_the_defaults_hold() -> None:
    assert PartitionLogConfig.of_topic({}, {}) == PartitionLogConfig()


def test_a_topics_values_come_before_the_brokers_values() -> None:
    broker = {
        "log.retention.ms": "1000",
        "log.segment.bytes": "2000",
        "message.max.bytes": "3000",
        "retention.bytes": "9",
    }
    topic = {
        "retention.ms": "-1",
        "segment.ms": "4000",
        "message.timestamp.after.max.ms": "50",
        "cleanup.policy": "delete",
    }

    config = PartitionLogConfig.of_topic(topic, broker)

    assert config.retention == RetentionConfig(-1, -1, 4_000)
    assert (config.segment_bytes, config.max_message_bytes, config.timestamp_after_max_ms) == (2_000, 3_000, 50)
    assert (config.log.segment_bytes, config.log.archive, config.log.format_version) == (2_000, False, 2)


def test_no_message_is_larger_than_a_batch() -> None:
    assert PartitionLogConfig.of_topic({"max.message.bytes": "2147483647"}, {}).max_message_bytes == RECORDS_BYTES_MAX


@pytest.mark.parametrize("key", ["message.timestamp.after.max.ms", *partition_log_config._BROKER_KEYS])
def test_the_keys_are_those_of_the_controllers(key: str) -> None:
    """And the defaults, except for the size of a segment and of a message."""
    row = TOPIC_KEYS[key]
    broker_key = partition_log_config._BROKER_KEYS.get(key, "")
    assert row.broker_key == broker_key and (not broker_key or broker_key in BROKER_KEYS)
    if key not in ("segment.bytes", "max.message.bytes"):
        assert PartitionLogConfig.of_topic({key: row.default}, {}) == PartitionLogConfig()
