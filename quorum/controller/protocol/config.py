"""What a controller may be told about how to decide; names and defaults are Kafka's where Kafka has them."""

from typing import NamedTuple

from metadata_log.format.batch import BATCH_RECORDS_MAX


class ControllerConfig(NamedTuple):
    """Frozen settings of one controller. All controllers of a cluster should agree on them."""

    session_timeout_ms: int = 9_000
    """A broker that was not heard of for so long is fenced (`broker.session.timeout.ms`)."""
    default_partitions: int = 1
    """`num.partitions`."""
    default_replication_factor: int = 3
    """`default.replication.factor`."""
    partitions_per_request_max: int = 10_000
    """More in one request, over all its topics, are refused."""
    records_max: int = BATCH_RECORDS_MAX - 1
    """No decision has more records: a decision is one batch, which ends with the outcome of a request that has an id."""
    producer_id_block: int = 1_000
    """How many producer ids a broker is given at once."""
    topic_deletion_enabled: bool = True
    """`delete.topic.enable`."""
    slice_changes_max: int = 1_000
    """An eviction or a round of elections changes at most so many partitions in one decision, so that no turn is long."""
    slice_partitions_max: int = 10_000
    """... and looks at about so many: 3 ms."""
    request_outcomes_max: int = 8_192
    """So many requests with ids are remembered; of 2 KiB each at the worst, that is 16 MiB, and 2 MiB of ordinary ones."""

    def problems(self) -> list[str]:
        """What is wrong with these settings, all of it, as sentences."""
        positive = (
            ("broker.session.timeout.ms", self.session_timeout_ms),
            ("num.partitions", self.default_partitions),
            ("default.replication.factor", self.default_replication_factor),
            ("partitions_per_request_max", self.partitions_per_request_max),
            ("producer_id_block", self.producer_id_block),
            ("slice_changes_max", self.slice_changes_max),
            ("slice_partitions_max", self.slice_partitions_max),
            ("request_outcomes_max", self.request_outcomes_max),
        )
        found = [f"{name} must be at least 1, not {value}" for name, value in positive if value < 1]
        if not 2 <= self.records_max < BATCH_RECORDS_MAX:
            found.append(f"records_max must be between 2 and {BATCH_RECORDS_MAX - 1:,}, not {self.records_max}")
        if self.partitions_per_request_max >= self.records_max:
            found.append(
                f"partitions_per_request_max must be below records_max, which is {self.records_max}, "
                f"not {self.partitions_per_request_max}: a topic has a record of its own"
            )
        if 2 * self.slice_changes_max + 100 > self.records_max:
            found.append(
                f"slice_changes_max must be below {(self.records_max - 100) // 2}, not {self.slice_changes_max}"
            )
        return found
