"""What a controller does not open, although every byte of it is intact."""

import pytest

from metadata_log.errors import CorruptLog
from metadata_log.files import Directory
from metadata_log.identity import Identity
from metadata_log.ids import uuid_text
from quorum.runtime.node_config import NodeConfig
from quorum.runtime.opening import open_directory
from snapshots.format import BOOTSTRAP_END, snapshot_name
from snapshots.store import genesis
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of

OURS = voters_of([1])


def _used_disk() -> Directory:
    """The disk of a cluster that has elected and committed something."""
    disk = formatted_disk(OURS)
    LoneNode(disk).run_until_idle()
    return disk


def _identity(cluster_id: str = CLUSTER_ID, genesis_chain: bytes = b"") -> Identity:
    return Identity(cluster_id, 1, directory_id(1), 1, "controller", genesis_chain=genesis_chain)


def test_its_own_directory_opens() -> None:
    """The counter-example to the other stories."""
    opened = open_directory(_used_disk(), _identity(genesis_chain=genesis(CLUSTER_ID, OURS)), NodeConfig())
    assert opened.log.shape.end > 0


def test_a_log_of_another_cluster() -> None:
    """`@metadata` restored from the wrong backup, bootstrap checkpoint and all, under the right meta.properties."""
    with pytest.raises(CorruptLog, match="/lone/@metadata: the log is of another cluster"):
        open_directory(_used_disk(), _identity(uuid_text(b"another cluster!")), NodeConfig())


def test_a_bootstrap_checkpoint_of_another_cluster() -> None:
    """The same ids, other voters: also where the log itself no longer reaches back to its first record."""
    identity = _identity(genesis_chain=genesis(CLUSTER_ID, voters_of([1, 2, 3])))
    with pytest.raises(CorruptLog, match="the bootstrap checkpoint is of another cluster"):
        open_directory(_used_disk(), identity, NodeConfig())


def test_a_lost_checkpoint_of_a_node_that_has_voted() -> None:
    """Formatting it anew would let it vote a second time in an epoch: the advice must not be that."""
    disk = _used_disk()
    metadata = disk.subdirectory("@metadata")
    metadata.remove(snapshot_name(BOOTSTRAP_END))
    with pytest.raises(CorruptLog, match="do not format it"):
        open_directory(disk, _identity(), NodeConfig())
