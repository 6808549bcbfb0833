"""A copy of Kafka's directory that has snapshots, and no segment."""

from pathlib import Path

from click.testing import CliRunner

from snapshots.offline import __main__ as cli
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
