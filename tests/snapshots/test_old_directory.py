"""A controller's directory from the time when epochs had 32 bits: it opens, grows, and compacts to its own snapshots.

The archive was made by `tests.snapshots.nodes.Node(path, seed=11).live(60)`, its quorum-state by `election_file.save`,
with the release of that time. It has three segments, epochs 2, 3 and 5, and snapshots at 344@3 and 566@5.
"""

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import verify_chain
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import NoOp
from metadata_log.store.log import Log
from metadata_log.store.segment import unpack_header
from quorum.core.protocol.effects import ElectionState
from quorum.runtime.disk import election_file
from snapshots.format import genesis, snapshot_name
from snapshots.reader import read_snapshot
from snapshots.store import SnapshotStore
from snapshots.writer import write_records
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.nodes import CLUSTER_ID, LOG_CONFIG, VOTERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(__file__).parents[1] / "golden" / "controller-before-wide-epochs.zip"
CHAIN = bytes.fromhex("96b31ea24b905aa40a9e7fb0b660bf08e00c685ed10c7072159b2cc51798bf12")
DIGEST = bytes.fromhex("9ec526683c52546a4c9f93f2dcf973598194546dd4216e076c32e884414f138d")
ENDS = (OffsetAndEpoch(344, 3), OffsetAndEpoch(566, 5))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "controller"


def opened(old: Path) -> Log:
    metadata = RealDirectory(old).subdirectory("@metadata")
    return Log.open(metadata, chain=genesis(CLUSTER_ID, VOTERS), config=LOG_CONFIG)


def test_the_log_opens_as_it_was_and_goes_on(old: Path) -> None:
    """The log grows on the same chain, across epoch 2^32, into a new segment, and is opened again."""
    log = opened(old)
    assert (log.shape.end, log.shape.flushed_end, log.shape.chain) == (739, 739, CHAIN)
    assert [entry.epoch for entry in log.shape.epochs] == [2, 3, 5]

    before = len(list((old / "@metadata").glob("*.log")))
    first = log.append([NoOp()], epoch=6, wall_ms=0)
    assert verify_chain(first, CHAIN)
    while len(files := sorted((old / "@metadata").glob("*.log"))) == before:
        log.append([NoOp()] * 100, epoch=1 << 32, wall_ms=0)
    log.flush()
    shape = log.shape
    log.close()
    assert files[0].read_bytes()[8:10] == b"\x00\x01" and files[-1].read_bytes()[8:10] == b"\x00\x02"
    assert unpack_header(files[-1].read_bytes()).start.epoch == 1 << 32

    again = opened(old)
    assert (again.shape.end, again.shape.chain, again.shape.last_epoch) == (shape.end, shape.chain, 1 << 32)
    again.close()


def test_the_vote_reads_back(old: Path) -> None:
    assert election_file.load(RealDirectory(old)) == ElectionState(5, ReplicaKey(1, b"\x01" * 16), 1)


def test_its_snapshots_are_what_this_code_would_write(old: Path) -> None:
    """Nodes of two releases send each other parts of the same file."""
    store = SnapshotStore(RealDirectory(old).subdirectory("@metadata"))
    assert tuple(info.end for info in store.list()) == ENDS
    for end in ENDS:
        snapshot, mine = read_snapshot(store.directory, end), MemoryDirectory()
        write_records(mine, snapshot.meta, snapshot.records)
        name = snapshot_name(end)
        assert mine.read(name, 1 << 20) == store.directory.read(name, 1 << 20)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_spark_compacts_it_to_its_own_snapshot(spark: "SparkSession", old: Path, tmp_path: Path) -> None:
    from snapshots.offline.compaction import compact

    for end in ENDS:
        assert compact(spark, str(old), end.offset, str(tmp_path / "out")).same_as_source is True
    assert compact(spark, str(old), 739, str(tmp_path / "out"), uncommitted=True).digest == DIGEST
