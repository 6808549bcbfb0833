"""The configuration of a producer, with the names and mostly the defaults of Kafka's producer.

Example: `ProducerConfig(linger_ms=20, batch_size=65_536)` waits up to 20 ms for further records of a partition, and sends a batch
at once when it has 64 KiB.
"""

from dataclasses import dataclass
from typing import Final, Literal

from metadata_log.format.data_batch import RECORDS_BYTES_MAX

IN_FLIGHT_MAX: Final = 5
"""Maximum number of batches of one partition in flight: a leader remembers so many batches of a producer."""
REQUEST_BYTES_MAX: Final = 3 << 20
"""Maximum number of bytes of records in one request: with everything else the request fits one message of gRPC."""


@dataclass(frozen=True)
class ProducerConfig:
    """The limits of a producer: memory, sizes and times. Times are in milliseconds, sizes in bytes."""

    acks: Literal["all", 0, 1] = "all"
    """The durability of a record when its send ends: "all" (on the disks of all replicas in sync), 1 (on the leader's disk), or
    0 (the send ends when the request leaves; nobody tells if the record arrived)."""
    enable_idempotence: bool | None = None
    """True: a record that is sent again is appended once. None: True if `acks` is "all", otherwise False."""
    batch_size: int = 16_384
    """The number of bytes of records that make a full batch. A larger record has a batch of its own."""
    linger_ms: int = 5
    """The time for which a batch that is not full waits for further records."""
    buffer_memory: int = 32 << 20
    """Maximum number of bytes of records that wait for their delivery. A further record waits for room."""
    max_request_size: int = 1 << 20
    """Maximum number of bytes of records in one request, and of one record."""
    max_block_ms: int = 60_000
    """Maximum time for which a send waits for the topic's metadata and for room in the buffer, both together."""
    delivery_timeout_ms: int = 120_000
    """Maximum time from `enqueue` to the delivery of a record. After that time the record has failed."""
    request_timeout_ms: int = 30_000
    """Maximum time that a broker may take for an answer."""
    retry_backoff_ms: int = 100
    """The pause of a batch after its first failure. The pause doubles with each further failure."""
    retry_backoff_max_ms: int = 1_000
    """Maximum pause between two attempts."""
    reconnect_backoff_ms: int = 50
    """The time for which a broker that cannot be reached is left alone after the first failure."""
    reconnect_backoff_max_ms: int = 1_000
    """Maximum time for which a broker is left alone."""
    max_in_flight_requests_per_connection: int = IN_FLIGHT_MAX
    """Maximum number of requests to one broker that wait for their answers."""

    def __post_init__(self) -> None:
        """Raises ValueError for a value that is out of bounds, or that contradicts another value."""
        if self.acks not in ("all", 0, 1):
            raise ValueError(f'acks is {self.acks!r}: it must be "all", 0 or 1')
        for name, value in vars(self).items():
            least = 0 if name == "linger_ms" else 1
            if name not in ("acks", "enable_idempotence") and value < least:
                raise ValueError(f"{name} is {value}: it must be at least {least}")
        for name, most in (("batch_size", RECORDS_BYTES_MAX), ("max_request_size", REQUEST_BYTES_MAX)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at most {most}")
        for first, second in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ):
            if getattr(self, first) > getattr(self, second):
                raise ValueError(f"{first} is {getattr(self, first)}, which is more than {second}")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ValueError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}: it must be at least linger_ms + request_timeout_ms, "
                f"{self.linger_ms + self.request_timeout_ms}"
            )
        if self.enable_idempotence and self.acks != "all":
            raise ValueError(f'enable_idempotence needs acks="all"; acks is {self.acks!r}')
        if self.is_idempotent and self.max_in_flight_requests_per_connection > IN_FLIGHT_MAX:
            raise ValueError(
                f"max_in_flight_requests_per_connection is {self.max_in_flight_requests_per_connection}: it must be at most "
                f"{IN_FLIGHT_MAX} with idempotence"
            )

    @property
    def is_idempotent(self) -> bool:
        return self.acks == "all" if self.enable_idempotence is None else self.enable_idempotence

    @property
    def acks_number(self) -> int:
        """`acks` as the wire has it."""
        return -1 if self.acks == "all" else self.acks

    @property
    def record_bytes_max(self) -> int:
        """Maximum size of one packed record."""
        return min(self.max_request_size, RECORDS_BYTES_MAX, self.buffer_memory - RECORD_OVERHEAD_BYTES)


RECORD_OVERHEAD_BYTES: Final = 256
"""The bytes of `buffer_memory` that a record costs besides its own: its future and its place in the batch."""
