"""The simulated year of `benchmarks.offline`: a log that production code accepts, and the same bytes from the same seed."""

from pathlib import Path

import pytest

from benchmarks.offline.year import CLUSTER_ID, FIRST_MS, MARKS, VOTERS, YEAR_MS, make_year
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.image.replay import MarkedImage, Replay
from metadata_log.store.log import Log
from snapshots.format import SnapshotMeta, genesis, snapshot_name
from snapshots.store import SnapshotStore
from snapshots.writer import write_image

pytestmark = pytest.mark.slow

RECORDS = 4_000


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_year(tmp_path_factory.mktemp("year") / "out", RECORDS)


def test_strict_replay_accepts_the_year_and_makes_its_snapshots(year: list[Path], tmp_path: Path) -> None:
    """The generator knows the partitions from a model of its own; replay checks each record, and the bytes are equal."""
    metadata = RealDirectory(year[0]).subdirectory("@metadata")
    log = Log.open(metadata, chain=genesis(CLUSTER_ID, VOTERS))
    assert RECORDS <= log.shape.end == log.shape.flushed_end
    assert FIRST_MS + YEAR_MS * 9 // 10 < log.last_timestamp_ms <= FIRST_MS + YEAR_MS * 11 // 10
    replay = Replay()
    marks: list[MarkedImage] = []
    chains: dict[int, bytes] = {}
    for batch in log.read(0, 64 << 20):
        marks += replay.apply([batch]).marks
        chains[batch.end_offset] = batch.chain
    log.close()
    assert len(marks) >= MARKS
    kept = {info.end for info in SnapshotStore(metadata).list()}
    assert marks[-1].end in kept
    for mark in marks:
        if mark.end in kept:
            meta = SnapshotMeta(mark.end, mark.image.provenance.timestamp_ms, chains[mark.end.offset], VOTERS, 1)
            write_image(RealDirectory(tmp_path), meta, mark.image)
            name = snapshot_name(mark.end)
            assert (tmp_path / name).read_bytes() == (year[0] / "@metadata" / name).read_bytes()


def test_the_nodes_have_one_log_and_names_of_their_own(year: list[Path]) -> None:
    assert len(year) == 3
    identities = [read_identity(RealDirectory(path)) for path in year]
    assert [each.node_id for each in identities if each is not None] == [1, 2, 3]
    for path in year[1:]:
        for mine in sorted((path / "@metadata").iterdir()):
            assert mine.read_bytes() == (year[0] / "@metadata" / mine.name).read_bytes()
    counts = [len(SnapshotStore(RealDirectory(path).subdirectory("@metadata")).list()) for path in year]
    assert counts == [4, 3, 2]


def test_a_seed_gives_the_same_bytes_and_a_finished_year_is_found(year: list[Path], tmp_path: Path) -> None:
    segment = "@metadata/00000000000000000000.log"
    again = make_year(tmp_path / "same", RECORDS, nodes=1)
    assert (again[0] / segment).read_bytes() == (year[0] / segment).read_bytes()
    other = make_year(tmp_path / "other", RECORDS, nodes=1, seed=2)
    assert (other[0] / segment).read_bytes() != (year[0] / segment).read_bytes()
    written = (again[0] / segment).stat().st_mtime_ns
    assert make_year(tmp_path / "same", RECORDS, nodes=1) == again
    assert (again[0] / segment).stat().st_mtime_ns == written
    assert make_year(tmp_path / "same", RECORDS, nodes=1, seed=2) == again
    assert (again[0] / segment).read_bytes() == (other[0] / segment).read_bytes()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.txt\)\. Nothing was written"):
        make_year(tmp_path, RECORDS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
