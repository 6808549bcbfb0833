"""Partitions on the command line: the same options, names and columns for every command that lists partitions or topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from metadata_log.format.records import RECOVERED, RECOVERING
from quorum.cli.output import Column
from quorum.wire.words import optional

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("LEADER", "leader_id"),
    Column("LEADER_EPOCH", "leader_epoch"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("OFFLINE", "offline_replicas"),
)
_SELDOM: Final = (
    Column("ELR", "elr"),
    Column("LAST_KNOWN_ELR", "last_known_elr"),
    Column("ADDING", "adding_replicas"),
    Column("REMOVING", "removing_replicas"),
    Column("LEADER_RECOVERY_STATE", "leader_recovery_state"),
)
"""Columns that a table has if one of its partitions has eligible leader replicas, is in reassignment, or is recovering."""
_RECOVERED: Final = "recovered"
_USUAL: Final[tuple[object, ...]] = ([], _RECOVERED)
"""The values of a seldom column that tell nothing."""
_RECOVERY_STATES: Final = {RECOVERED: _RECOVERED, RECOVERING: "recovering"}


def partition_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns for these partitions."""
    return (*_COLUMNS, *(column for column in _SELDOM if any(row[column.key] not in _USUAL for row in rows)))


def partition_row(partition: admin_pb2.PartitionDescription) -> dict[str, Any]:
    """The document of one partition, without its topic."""
    return {
        "partition": partition.partition,
        "leader_id": optional(partition, "leader_id"),
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "offline_replicas": list(partition.offline_replicas),
        "leader_recovery_state": _RECOVERY_STATES.get(partition.leader_recovery_state, "unknown"),
    }


_CONDITIONS: Final = {
    "--under-replicated": "Fewer replicas are in sync than were assigned.",
    "--unavailable": "No broker leads the partition.",
    "--under-min-isr": "Fewer replicas are in sync than min.insync.replicas demands.",
    "--at-min-isr": "Just as many replicas are in sync as min.insync.replicas demands.",
}
"""The conditions that `kafka-topics` has, with the options' help."""


def conditions_of_partitions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each condition."""
    for name, text in reversed(_CONDITIONS.items()):
        function = click.option(name, is_flag=True, help=text)(function)
    return function


def wanted_conditions(given: Mapping[str, bool]) -> list[admin_pb2.PartitionCondition]:
    """The conditions whose options were given, by the options' names."""
    from quorum_rpc.v1 import admin_pb2

    names = admin_pb2.PartitionCondition.DESCRIPTOR.values_by_name
    found: list[Any] = [names[name.upper()].number for name, is_given in given.items() if is_given]
    return found
