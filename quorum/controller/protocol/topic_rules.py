"""The rules for names, counts and manual assignments of topics. Each refusal names field, value and limit."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.topic_names import topic_name_problem
from quorum.controller.protocol.topic_commands import DEFAULT_COUNT

RESERVED_NAMES: Final = frozenset({"@metadata", "__cluster_metadata"})
REPLICATION_FACTOR_MAX: Final = 100
"""Maximum number of replicas of a partition, far above any need, so that a slice of a fencing always fits into a batch."""


class Rejected(Exception):
    """One item of a request, for example one topic, is refused; the other items are not affected."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_name(name: str) -> None:
    """Raises Rejected(INVALID_TOPIC_EXCEPTION) if no topic may have this name."""
    if name in RESERVED_NAMES:
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r} is the name of the metadata log itself")
    problem = topic_name_problem(name)
    if problem is not None:
        raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def collision_key(name: str) -> str:
    """Returns the name with '.' written as '_', as metrics do: two names with one key collide."""
    return name.replace(".", "_")


def check_counts(name: str, partitions: int, replication_factor: int) -> None:
    """Raises Rejected if a count is neither positive nor DEFAULT_COUNT."""
    if partitions < 1 and partitions != DEFAULT_COUNT:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r}: partitions is {partitions}: it must be at least 1, or -1 for the default",
        )
    if replication_factor < 1 and replication_factor != DEFAULT_COUNT:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: replication factor is {replication_factor}: it must be at least 1, or -1 for the default",
        )


def check_replication_factor(name: str, replication_factor: int, usable: int, online: int, registered: int) -> None:
    """Raises Rejected if the brokers cannot hold so many replicas. `usable` brokers take new replicas, and `online` of them are
    online."""
    if replication_factor > REPLICATION_FACTOR_MAX:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: replication factor is {replication_factor}: at most {REPLICATION_FACTOR_MAX} is allowed",
        )
    if replication_factor > registered:
        brokers = "1 broker is" if registered == 1 else f"{registered} brokers are"
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: replication factor is {replication_factor}, but only {brokers} registered",
        )
    if replication_factor > usable:
        brokers = "1 takes" if usable == 1 else f"{usable} take"
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: replication factor is {replication_factor}, but of {registered} brokers only {brokers} new "
            f"replicas: an operator has fenced or drained the others",
        )
    if online == 0:
        those = "all registered brokers" if usable == registered else "all brokers that take new replicas"
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name!r}: {those} ({usable}) are fenced or shutting down; at least one must be online to lead its partitions",
        )


def check_assignment(
    name: str,
    assignment: Sequence[tuple[NodeId, ...]],
    is_registered: Callable[[NodeId], bool],
    active: Collection[NodeId],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> None:
    """Checks that all partitions have `replication_factor` replicas, or as many as the first partition.

    Raises:
        Rejected: INVALID_REPLICA_ASSIGNMENT.
    """
    width = len(assignment[0]) if replication_factor is None else replication_factor
    for partition, replicas in enumerate(assignment, first_partition):
        where = f"topic {name!r}: the assignment of partition {partition}"
        if not 1 <= len(replicas) <= REPLICATION_FACTOR_MAX:
            problem = f"has {len(replicas)} replicas: 1 to {REPLICATION_FACTOR_MAX} are allowed"
        elif len(set(replicas)) != len(replicas):
            twice = next(broker for broker in replicas if replicas.count(broker) > 1)
            problem = f"names broker {twice} more than once"
        elif len(replicas) != width:
            problem = f"has {len(replicas)} replicas; the others have {width}, and all must have the same number"
        elif not all(map(is_registered, replicas)):
            unknown = next(broker for broker in replicas if not is_registered(broker))
            problem = f"names broker {unknown}, which is not registered"
        elif not any(broker in active for broker in replicas):
            named = ", ".join(map(str, replicas))
            problem = (
                f"names only brokers that are fenced, shutting down or in maintenance ({named}): one must be online"
            )
        else:
            continue
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} {problem}")


def check_policy(reason: str | None, what: str) -> None:
    """Raises Rejected(POLICY_VIOLATION) if a policy gave a reason to refuse `what`."""
    if reason is not None:
        raise Rejected(ErrorCode.POLICY_VIOLATION, f"{what} was refused: {reason}; nothing was done for it")
