"""The config keys of topics and brokers: a table with type, range and default of each key.

A key that Kafka 4 has (in TopicConfig, LogConfig or the dynamic part of KafkaConfig) has Kafka's name and default here, and in
most cases Kafka's range: for example `segment.bytes` begins at 14 here, and at 1 MiB in Kafka 4. Other keys are metaquorum's own.

The controllers store the values. They use `min.insync.replicas` for counts of partitions (`partitions.partition_counts`) and for
eligible leader replicas, and `unclean.leader.election.enable` for elections (`partitions.election_rules`); your data plane uses
the other values. Embedders define further keys in a running cluster (`defined_keys`).

A value of a broker key is for one broker or for all:

    resource "7"   num.io.threads = 16     broker 7 has 16 threads
    resource ""    num.io.threads = 12     the default of all brokers: each other broker has 12 threads
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
VALUE_MAX: Final = 32_767
"""Maximum number of characters of one value, so that one key cannot fill a batch."""

Check = Callable[[str], str | None]
"""A function that returns the error in a value, as the end of a sentence ("must be ..."), or None if the value is good."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
DECIMAL_TEXT: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
"""A number as every language reads it: Python alone also reads `0_1` and digits of other scripts."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """The check that a value is a whole number from `low` to `high`."""

    low: int
    high: int

    def __call__(self, value: str) -> str | None:
        if _INTEGER.fullmatch(value) and self.low <= int(value) <= self.high:
            return None
        if self.high == LONG_MAX:
            return f"must be a whole number, at least {self.low} (and below 2**63)"
        return f"must be a whole number between {self.low} and {self.high}"


def _gzip_level(value: str) -> str | None:
    is_level = value == "-1" or WholeNumber(1, 9)(value) is None
    return None if is_level else "must be -1 (the default level) or a whole number from 1 to 9"


def _ratio(value: str) -> str | None:
    is_ratio = DECIMAL_TEXT.fullmatch(value) and 0 <= float(value) <= 1
    return None if is_ratio else "must be a number between 0 and 1"


def one_of(*allowed: str) -> Check:
    """Returns the check that a value is one of a few words."""

    def check(value: str) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


_boolean: Final = one_of("true", "false")


def _list_of(check_item: Check, what: str, *, may_be_empty: bool = True) -> Check:
    def check(value: str) -> str | None:
        items = list_items(value)
        if not items and not may_be_empty:
            return f"must be a list of {what}, and not empty"
        if len(set(items)) != len(items):
            return f"must be a list of {what}, each once"
        return None if all(check_item(item) is None for item in items) else f"must be a list of {what}"

    return check


_PAIR = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


def _replica_pair(value: str) -> str | None:
    return None if value == "*" or _PAIR.fullmatch(value) else "bad"


_throttled = _list_of(_replica_pair, "PARTITION:BROKER pairs, or *")


def list_items(value: str) -> list[str]:
    """Returns the items of a list that is written with commas. Spaces and empty items do not count: " a,, b" is [a, b]."""
    return [item.strip() for item in value.split(",") if item.strip()]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key.

    Example: no operator has set `retention.ms` for the topic `orders`. The value of `orders` is then the cluster-wide broker
    config `log.retention.ms` (`broker_key`), and if that is not set either, `default`.
    """

    name: str
    check: Check
    default: str
    is_list: bool = False
    broker_key: str = ""
    """The cluster-wide broker config that a topic without a value of its own uses; empty: the key of the same name, if any."""


def _keys(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_WEEK = str(7 * 24 * 3_600_000)
_LONG = str(LONG_MAX)

TOPIC_KEYS: Final = _keys(
    ConfigKey(
        "cleanup.policy",
        _list_of(one_of("delete", "compact"), "delete and compact", may_be_empty=False),
        "delete",
        is_list=True,
        broker_key="log.cleanup.policy",
    ),
    ConfigKey("compression.gzip.level", _gzip_level, "-1"),
    ConfigKey("compression.lz4.level", WholeNumber(1, 17), "9"),
    ConfigKey("compression.type", one_of(*_COMPRESSIONS), "producer"),
    ConfigKey("compression.zstd.level", WholeNumber(-131_072, 22), "3"),
    ConfigKey("delete.retention.ms", WholeNumber(0, LONG_MAX), "86400000"),
    ConfigKey("file.delete.delay.ms", WholeNumber(0, LONG_MAX), "60000"),
    ConfigKey("flush.messages", WholeNumber(1, LONG_MAX), _LONG),
    ConfigKey("flush.ms", WholeNumber(0, LONG_MAX), _LONG),
    ConfigKey("follower.replication.throttled.replicas", _throttled, "", is_list=True),
    ConfigKey("index.interval.bytes", WholeNumber(0, INT_MAX), "4096"),
    ConfigKey("leader.replication.throttled.replicas", _throttled, "", is_list=True),
    ConfigKey("local.retention.bytes", WholeNumber(-2, LONG_MAX), "-2"),
    ConfigKey("local.retention.ms", WholeNumber(-2, LONG_MAX), "-2"),
    ConfigKey("max.compaction.lag.ms", WholeNumber(1, LONG_MAX), _LONG),
    ConfigKey("max.message.bytes", WholeNumber(0, INT_MAX), "1048588", broker_key="message.max.bytes"),
    ConfigKey("message.timestamp.after.max.ms", WholeNumber(0, LONG_MAX), "3600000"),
    ConfigKey("message.timestamp.before.max.ms", WholeNumber(0, LONG_MAX), _LONG),
    ConfigKey("message.timestamp.type", one_of("CreateTime", "LogAppendTime"), "CreateTime"),
    ConfigKey("min.cleanable.dirty.ratio", _ratio, "0.5"),
    ConfigKey("min.compaction.lag.ms", WholeNumber(0, LONG_MAX), "0"),
    ConfigKey("min.insync.replicas", WholeNumber(1, INT_MAX), "1"),
    ConfigKey("preallocate", _boolean, "false"),
    ConfigKey("remote.log.copy.disable", _boolean, "false"),
    ConfigKey("remote.log.delete.on.disable", _boolean, "false"),
    ConfigKey("remote.storage.enable", _boolean, "false"),
    ConfigKey("retention.bytes", WholeNumber(-1, LONG_MAX), "-1", broker_key="log.retention.bytes"),
    ConfigKey("retention.ms", WholeNumber(-1, LONG_MAX), _WEEK, broker_key="log.retention.ms"),
    ConfigKey("segment.bytes", WholeNumber(14, INT_MAX), "1073741824", broker_key="log.segment.bytes"),
    ConfigKey("segment.index.bytes", WholeNumber(4, INT_MAX), "10485760"),
    ConfigKey("segment.jitter.ms", WholeNumber(0, LONG_MAX), "0"),
    ConfigKey("segment.ms", WholeNumber(1, LONG_MAX), _WEEK, broker_key="log.roll.ms"),
    ConfigKey("unclean.leader.election.enable", _boolean, "false"),
)

BROKER_KEYS: Final = _keys(
    ConfigKey("background.threads", WholeNumber(1, INT_MAX), "10"),
    ConfigKey("compression.type", one_of(*_COMPRESSIONS), "producer"),
    ConfigKey("follower.replication.throttled.rate", WholeNumber(0, LONG_MAX), _LONG),
    ConfigKey("leader.replication.throttled.rate", WholeNumber(0, LONG_MAX), _LONG),
    ConfigKey(
        "log.cleanup.policy",
        _list_of(one_of("delete", "compact"), "delete and compact", may_be_empty=False),
        "delete",
        is_list=True,
    ),
    ConfigKey("log.retention.bytes", WholeNumber(-1, LONG_MAX), "-1"),
    ConfigKey("log.retention.ms", WholeNumber(-1, LONG_MAX), _WEEK),
    ConfigKey("log.roll.ms", WholeNumber(1, LONG_MAX), _WEEK),
    ConfigKey("log.segment.bytes", WholeNumber(14, INT_MAX), "1073741824"),
    ConfigKey("max.connections", WholeNumber(0, INT_MAX), str(INT_MAX)),
    ConfigKey("message.max.bytes", WholeNumber(0, INT_MAX), "1048588"),
    ConfigKey("min.insync.replicas", WholeNumber(1, INT_MAX), "1"),
    ConfigKey("num.io.threads", WholeNumber(1, INT_MAX), "8"),
    ConfigKey("num.network.threads", WholeNumber(1, INT_MAX), "3"),
    ConfigKey("num.recovery.threads.per.data.dir", WholeNumber(1, INT_MAX), "2"),
    ConfigKey("num.replica.fetchers", WholeNumber(1, INT_MAX), "1"),
    ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", WholeNumber(0, LONG_MAX), _LONG),
    ConfigKey("unclean.leader.election.enable", _boolean, "false"),
)

KEYS: Final = {TOPIC_RESOURCE: TOPIC_KEYS, BROKER_RESOURCE: BROKER_KEYS}
RESOURCE_WORDS: Final = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}
