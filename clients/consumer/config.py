"""The settings of a consumer, with the names and defaults of Kafka's consumer where Kafka has them.

1. A consumer with the defaults is assigned orders-0, and its store has no position: it begins at the end (`latest`).
2. With `auto_offset_reset="earliest"` it would begin at the start of the log; with `"none"` its first `poll` raises NoPosition.
"""

from dataclasses import dataclass
from typing import Final

RESETS: Final = ("earliest", "latest", "none")
"""The values of `auto_offset_reset`."""
ANSWER_BYTES_MAX: Final = 3 << 20
"""Maximum number of bytes of records in one answer: gRPC takes messages of 4 MiB."""
WAIT_MS_MAX: Final = 60_000
"""How long a broker waits for records at most."""


@dataclass(frozen=True)
class ConsumerConfig:
    """The settings of one consumer. Times are in milliseconds."""

    auto_offset_reset: str = "latest"
    """The place of a partition without a position, or with a position that has left the log: earliest, latest or none."""
    auto_commit_interval_ms: int = 5_000
    """How often positions are committed to the store at most."""
    max_poll_records: int = 500
    """Maximum number of records that one `poll` returns."""
    max_block_ms: int = 60_000
    """How long an assigned partition may be missing in the metadata before `poll` raises an error."""
    fetch_min_bytes: int = 1
    """How many bytes of records are worth an answer before `fetch_max_wait_ms`."""
    fetch_max_wait_ms: int = 500
    """How long a leader without enough records keeps a request."""
    fetch_max_bytes: int = 2 << 20
    """Maximum number of bytes of records in one answer. A first batch comes even if it is larger."""
    max_partition_fetch_bytes: int = 1 << 20
    """Maximum number of bytes of one partition in one answer. A partition with as many bytes in the buffer is not fetched."""
    queued_max_bytes: int = 32 << 20
    """How many bytes the buffer of all partitions has before the consumer sends no more fetches."""
    request_timeout_ms: int = 30_000
    """How long a broker may take for an answer, without the wait for records."""
    retry_backoff_ms: int = 100
    """The pause after a first error."""
    retry_backoff_max_ms: int = 1_000
    """Maximum pause after an error."""

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is {self.auto_offset_reset!r}: it must be one of {', '.join(RESETS)}")
        for name, value in vars(self).items():
            if name != "auto_offset_reset" and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is {value!r}: it must be a whole number, at least 1")
        for name, most in (("fetch_max_bytes", ANSWER_BYTES_MAX), ("fetch_max_wait_ms", WAIT_MS_MAX)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at most {most}")
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            text = f"retry_backoff_ms is {self.retry_backoff_ms}, which is more than retry_backoff_max_ms"
            raise ValueError(f"{text}: {self.retry_backoff_max_ms}")
