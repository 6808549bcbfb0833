"""Partitions in documents and tables: the same names and columns for every command that shows partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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
_REASSIGNED: Final = (Column("ADDING", "adding_replicas"), Column("REMOVING", "removing_replicas"))
"""Columns that a table has if one of its partitions is in reassignment."""


def partition_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns for these partitions."""
    return (*_COLUMNS, *(column for column in _REASSIGNED if any(row[column.key] for row in rows)))


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
        "offline_replicas": list(partition.offline_replicas),
    }
