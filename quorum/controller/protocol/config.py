"""The settings of a controller's decisions, with Kafka's names and defaults if Kafka has them."""

from typing import NamedTuple

from metadata_log.format.batch import BATCH_RECORDS_MAX
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import (
    ELR_METADATA_VERSION,
    ELR_VERSION_MAX,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
)
from quorum.controller.protocol.policy import ALLOW_ALL, Policy


class ControllerConfig(NamedTuple):
    """The settings of one controller. All controllers of a cluster should have equal settings."""

    session_timeout_ms: int = 9_000
    """How long a broker may be silent before the controller fences it (`broker.session.timeout.ms`)."""
    default_partitions: int = 1
    """Number of partitions of a new topic whose request does not say it (`num.partitions`)."""
    default_replication_factor: int = 3
    """Number of replicas of a new topic whose request does not say it (`default.replication.factor`)."""
    partitions_per_request_max: int = 10_000
    """Maximum number of partitions in one request, over all its topics, if the request is one batch."""
    partitions_per_transaction_max: int = 1_000_000
    """Maximum number of partitions in one request that may be a transaction (from metadata.version 2 on)."""
    bootstrap_metadata_version: int = METADATA_VERSION_MAX
    """The level of `metadata.version` of a new cluster (`bootstrap.metadata.version`). A cluster with a log keeps its level."""
    bootstrap_elr_version: int = 0
    """The level of `eligible.leader.replicas.version` of a new cluster; 1 needs `metadata.version` 2
    (`bootstrap.eligible.leader.replicas.version`)."""
    records_max: int = BATCH_RECORDS_MAX - 1
    """Maximum number of records of a decision. A decision is one batch, and the batch has room for the request's outcome."""
    transaction_records_max: int = 1_200_000
    """Maximum number of records of a transaction: besides the partitions, those of topics and configs."""
    transaction_slice_records: int = 500
    """How many records one batch of a transaction has: about 4 ms of work."""
    one_batch_records_max: int = 1_100
    """Maximum number of records of a request about topics that is one batch, and no transaction. One topic with 1,000 partitions
    is one batch, because as a transaction the request would cost one and a half times as much."""
    transaction_timeout_ms: int = 30_000
    """How long a client's transaction may be open. Meanwhile no other request is decided, and no broker is fenced."""
    producer_id_block: int = 1_000
    """How many producer ids a broker gets at once."""
    node_id: NodeId = NO_LEADER
    """The controller's own id: the broker resource with this name has configs for this controller. NO_LEADER: none."""
    unclean_leader_election: bool = False
    """True if replicas out of sync may lead where no config says it (`unclean.leader.election.enable`)."""
    topic_deletion_enabled: bool = True
    """True if topics may be deleted (`delete.topic.enable`)."""
    auto_leader_rebalance: bool = True
    """True if the controller gives leaderships back to preferred replicas by itself (`auto.leader.rebalance.enable`)."""
    leader_imbalance_check_interval_ms: int = 300_000
    """How often the controller checks the leaderships (`leader.imbalance.check.interval.seconds`)."""
    leader_imbalance_percentage: int = 10
    """Maximum share of the partitions that prefer a broker and that others lead, before the broker gets them back
    (`leader.imbalance.per.broker.percentage`)."""
    reassignment_moves_per_broker_max: int = 100
    """Maximum number of replicas that reassignments add to one broker at a time (`reassignment.moves.per.broker.max`)."""
    policy: Policy = ALLOW_ALL
    """The organisation's rules about new topics, new partitions and configs (`policy.file`, `policy.names`)."""
    slice_changes_max: int = 250
    """Maximum number of partitions that one slice of a fencing or of an election changes: about 4 ms of work."""
    slice_partitions_max: int = 5_000
    """Maximum number of partitions that one slice looks at: about 3 ms of work."""
    request_outcomes_max: int = 8_192
    """How many requests with ids are remembered: 16 MiB at the worst (2 KiB each), ordinarily 2 MiB."""

    def problems(self) -> list[str]:
        """Lists everything that is wrong with these settings, as sentences."""
        positive = (
            ("broker.session.timeout.ms", self.session_timeout_ms),
            ("num.partitions", self.default_partitions),
            ("default.replication.factor", self.default_replication_factor),
            ("leader.imbalance.check.interval.seconds", self.leader_imbalance_check_interval_ms),
            ("reassignment.moves.per.broker.max", self.reassignment_moves_per_broker_max),
            ("partitions_per_request_max", self.partitions_per_request_max),
            ("partitions_per_transaction_max", self.partitions_per_transaction_max),
            ("transaction_slice_records", self.transaction_slice_records),
            ("one_batch_records_max", self.one_batch_records_max),
            ("transaction_timeout_ms", self.transaction_timeout_ms),
            ("producer_id_block", self.producer_id_block),
            ("slice_changes_max", self.slice_changes_max),
            ("slice_partitions_max", self.slice_partitions_max),
            ("request_outcomes_max", self.request_outcomes_max),
        )
        found = [f"{name} must be at least 1, not {value}" for name, value in positive if value < 1]
        if not 0 <= self.leader_imbalance_percentage <= 100:
            found.append(
                f"leader.imbalance.per.broker.percentage must be 0 to 100, not {self.leader_imbalance_percentage}"
            )
        if not METADATA_VERSION_MIN <= self.bootstrap_metadata_version <= METADATA_VERSION_MAX:
            found.append(
                f"bootstrap.metadata.version must be {METADATA_VERSION_MIN} to {METADATA_VERSION_MAX}, "
                f"not {self.bootstrap_metadata_version}"
            )
        if not 0 <= self.bootstrap_elr_version <= ELR_VERSION_MAX:
            found.append(
                f"bootstrap.eligible.leader.replicas.version must be 0 to {ELR_VERSION_MAX}, not {self.bootstrap_elr_version}"
            )
        if self.bootstrap_elr_version and self.bootstrap_metadata_version < ELR_METADATA_VERSION:
            found.append(
                f"bootstrap.eligible.leader.replicas.version 1 needs bootstrap.metadata.version {ELR_METADATA_VERSION}"
            )
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
        if self.transaction_slice_records > self.records_max // 2:
            found.append(
                f"transaction_slice_records must be at most {self.records_max // 2}, not {self.transaction_slice_records}"
            )
        if self.one_batch_records_max > self.records_max:
            found.append(f"one_batch_records_max must be at most {self.records_max}, not {self.one_batch_records_max}")
        return found
