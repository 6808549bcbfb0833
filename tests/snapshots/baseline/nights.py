"""Two nights of one cluster: the directories of its controllers at both, and the same cluster with one other record."""

import shutil
from pathlib import Path
from typing import NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.records import TOPIC_RESOURCE, Config
from metadata_log.store.log_config import LogConfig
from tests.snapshots.nodes import CLUSTER_ID, NODES
from tests.snapshots.strict.faults import Small, outcome

CONFIG = LogConfig(segment_bytes=4 << 10, tail_bytes=1 << 10)


class Nights(NamedTuple):
    """The directories of controllers 1 to 3. Controller 3 was stopped early, and stays behind."""

    first: list[Path]
    second: list[Path]


def nights(root: Path, value: str = "1") -> Nights:
    """Make a cluster in which an early config has `value`. All other records are always the same."""
    node = Small(root / "node", 1, config=CONFIG).beginning()
    node.apply(Config(TOPIC_RESOURCE, "orders", "k", value))
    day(node, 0)
    node.journal.flush()
    behind = copy_of(node, root / "behind", 3)
    node.mark()
    day(node, 1)
    node.journal.flush()
    first = [copy_of(node, root / f"first-{each}", each) for each in NODES[:2]]
    day(node, 2)
    node.mark()
    day(node, 3)
    node.journal.flush()
    return Nights([*first, behind], [*(copy_of(node, root / f"second-{each}", each) for each in NODES[:2]), behind])


def day(node: Small, number: int) -> None:
    for each in range(40):
        node.apply(outcome(1_000 * number + each + 10, slot=each))


def copy_of(node: Small, path: Path, node_id: int) -> Path:
    shutil.copytree(node.path, path)
    write_identity(RealDirectory(path), Identity(CLUSTER_ID, node_id, bytes([node_id]) * 16, 1, "controller"))
    return path


def cloned(paths: list[Path], root: Path) -> list[Path]:
    """Copy the directories, to damage the copies."""
    return [Path(shutil.copytree(path, root / f"c{number}")) for number, path in enumerate(paths, 1)]
