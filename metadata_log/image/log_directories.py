"""The replicas of a partition that are in offline log directories (KIP-858).

A broker's registration has its online directories. Example: orders-0 has the replicas 101,102 in the directories A and B.
  1. Brokers 101 and 102 are registered with A and B: both replicas are online;
  2. broker 101 reports that A has failed, and the registration of 101 has no A any more: the replica of 101 is offline;
  3. a partition without directories, or a replica with UNASSIGNED_DIRECTORY, is online: its broker has said nothing.
"""

from collections.abc import Mapping

from metadata_log.format.ids import UNASSIGNED_DIRECTORY, NodeId, Uuid
from metadata_log.format.records import RegisterBroker


def offline_replicas(
    brokers: Mapping[NodeId, RegisterBroker], replicas: tuple[NodeId, ...], directories: tuple[Uuid, ...]
) -> tuple[NodeId, ...]:
    """Return the replicas whose broker is not among `brokers`, or does not have their directory."""
    if not directories:
        return tuple([replica for replica in replicas if replica not in brokers])
    offline = []
    for replica, directory in zip(replicas, directories, strict=True):
        broker = brokers.get(replica)
        if broker is None or (directory != UNASSIGNED_DIRECTORY and directory not in broker.log_dirs):
            offline.append(replica)
    return tuple(offline)
