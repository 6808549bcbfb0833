"""The jobs over a copy of Kafka's directory that has snapshots and no segment; and an import that is killed, or done twice."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from metadata_log.disk.files import RealDirectory
from snapshots.offline import __main__ as cli
from tests.killing import killed_everywhere
from tests.snapshots.kafka.given import METADATA, unpack


def test_a_directory_with_snapshots_alone_is_audited_and_imported(tmp_path: Path) -> None:
    """A node that has just fetched a snapshot, or a copy of the snapshots alone. All three commands ended in a traceback."""
    node = unpack("elr-4.1.1", "node-1", tmp_path)
    for segment in (node / METADATA).glob("*.log"):
        segment.unlink()
    audited = CliRunner().invoke(cli.main, ["audit", str(node)])
    assert (audited.exit_code, "clean" in audited.stdout) == (0, True), audited.output
    dumped = CliRunner().invoke(cli.main, ["dump", str(node)])
    assert dumped.exit_code == 0 and not dumped.stdout
    imported = CliRunner().invoke(cli.main, ["import", "kafka", str(node), "--out", str(tmp_path / "out")])
    assert imported.exit_code == 0, imported.output


def test_nothing_is_imported_into_kafkas_own_directory(tmp_path: Path) -> None:
    """Kafka would take the file for a snapshot of its own: the name is that of a snapshot at the end of its log."""
    node = unpack("elr-4.1.1", "node-1", tmp_path)
    before = sorted(node.rglob("*"))
    for out in (node, node / METADATA, node / "new"):
        ran = CliRunner().invoke(cli.main, ["import", "kafka", str(node), "--out", str(out)])
        assert (ran.exit_code, "the directory of a node, where no job writes" in ran.stderr) == (2, True), ran.output
    assert sorted(node.rglob("*")) == before


def import_it(place: Path) -> None:
    ran = CliRunner().invoke(cli.main, ["import", "kafka", str(place / "node-1"), "--out", str(place / "out")])
    assert ran.exit_code == 0, ran.output


@pytest.mark.slow
def test_a_killed_import_leaves_the_snapshot_or_none(tmp_path: Path) -> None:
    """The next import writes it, unless it is there as a whole."""
    unpack("elr-4.1.1", "node-1", tmp_path / "given")
    copies = killed_everywhere(import_it, tmp_path / "given", tmp_path / "killed")
    (whole,) = (copies[-1] / "out").glob("*.checkpoint")
    for copy in copies[:-1]:
        file = copy / "out" / whole.name
        if not file.exists():
            import_it(copy)
        assert file.read_bytes() == whole.read_bytes()
        assert [each.name for each in (copy / "out").iterdir() if each.name != ".lock"] == [whole.name]


def test_two_imports_do_not_write_one_file(tmp_path: Path) -> None:
    node = unpack("elr-4.1.1", "node-1", tmp_path)
    out = RealDirectory(tmp_path / "out")
    out.lock()
    ran = CliRunner().invoke(cli.main, ["import", "kafka", str(node), "--out", str(tmp_path / "out")])
    assert (ran.exit_code, "another import writes into" in ran.stderr) == (1, True), ran.output
    out.unlock()
