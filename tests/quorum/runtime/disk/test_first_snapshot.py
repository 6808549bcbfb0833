"""A new cluster that begins with an imported snapshot: the first controllers have one state, and are in order."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.format.election_state import ElectionState
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import METADATA_VERSION, METADATA_VERSION_MAX, FeatureLevel, Topic, Voter, Voters
from quorum.cli.main import cli
from quorum.core.protocol.disk_trust import FULL
from quorum.runtime.disk import election_file
from quorum.runtime.disk.format_directory import AlreadyFormatted, InitialController, format_directory
from quorum.runtime.disk.open_directory import open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import SnapshotMeta, snapshot_name
from snapshots.writer import write_records
from tests.killing import killed_everywhere

END = OffsetAndEpoch(275, 6)
VOTERS = tuple(InitialController(node_id, "localhost", 9000 + node_id, bytes([node_id]) * 16) for node_id in (1, 2))
NOBODY = Voters(())
LEVEL = FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX)


def snapshot(directory: Path, *, voters: Voters = NOBODY, level: FeatureLevel = LEVEL) -> Path:
    """Write a snapshot as an import writes it, unless `voters` are given."""
    meta = SnapshotMeta(END, 1_000, b"c" * 32, voters, 1)
    write_records(RealDirectory(directory), meta, [level, Topic("orders", b"t" * 16)])
    return directory / snapshot_name(END)


def formatted(path: Path, node_id: int, file: Path, cluster_id: str = "a") -> Path:
    format_directory(path, cluster_id=cluster_id, node_id=node_id, role="controller", controllers=VOTERS, snapshot=file)
    return path


def test_each_first_controller_begins_at_the_end_of_the_same_snapshot(tmp_path: Path) -> None:
    """Byte for byte the same, with the new voters inside, under the node's own vote and identity."""
    file = snapshot(tmp_path / "import")
    contents = set()
    for voter in VOTERS:
        path = formatted(tmp_path / str(voter.node_id), voter.node_id, file)
        contents.add((path / "@metadata" / snapshot_name(END)).read_bytes())
        directory = RealDirectory(path)
        identity = read_identity(directory)
        assert identity is not None
        opened = open_directory(directory, identity, NodeConfig())
        assert (opened.log.shape.start, opened.log.shape.end) == (END, END.offset)
        assert (opened.disk_trust, opened.election.epoch, opened.identity) == (FULL, 0, identity)
        assert opened.voters.latest.ids == (1, 2)
        assert opened.load is not None and opened.load.end == END
        opened.log.close()
    assert len(contents) == 1


def test_two_clusters_with_one_import_have_different_histories(tmp_path: Path) -> None:
    file = snapshot(tmp_path / "import")
    one, other = formatted(tmp_path / "1", 1, file), formatted(tmp_path / "2", 1, file, cluster_id="b")
    assert (one / "@metadata" / snapshot_name(END)).read_bytes() != (
        other / "@metadata" / snapshot_name(END)
    ).read_bytes()


def refused(tmp_path: Path, file: Path, *, role: str = "controller") -> str:
    with pytest.raises(ValueError, match=r"(?i)nothing was written") as caught:
        format_directory(tmp_path / "node", cluster_id="a", node_id=1, role=role, controllers=VOTERS, snapshot=file)
    assert not (tmp_path / "node").exists()
    return str(caught.value)


def test_a_snapshot_of_a_running_cluster_is_refused(tmp_path: Path) -> None:
    """Two clusters would have one history up to the snapshot, and both go on."""
    file = snapshot(tmp_path / "import", voters=Voters((Voter(1, b"d" * 16, ()),)))
    assert "only a file of `quorum-offline import`" in refused(tmp_path, file)


def test_a_file_that_is_damaged_renamed_or_of_a_later_release_is_refused(tmp_path: Path) -> None:
    later = snapshot(tmp_path / "later", level=FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX + 1))
    assert f"has metadata.version {METADATA_VERSION_MAX + 1}" in refused(tmp_path, later)
    file = snapshot(tmp_path / "import")
    assert "keep the name" in refused(tmp_path, file.rename(file.with_name("state")))
    file = snapshot(tmp_path / "import")
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    assert "import it again" in refused(tmp_path, file)


def test_a_broker_gets_no_snapshot(tmp_path: Path) -> None:
    assert "a broker fetches it" in refused(tmp_path, snapshot(tmp_path / "import"), role="broker")


def test_the_command(tmp_path: Path) -> None:
    file = snapshot(tmp_path / "import")
    words = ["storage", "format", "--directory", str(tmp_path / "node"), "--node-id", "1", "--role", "controller"]
    initial = ",".join(map(str, VOTERS))
    ran = CliRunner().invoke(cli, [*words, "-t", "a", "-I", initial, "--snapshot", str(file)])
    assert ran.exit_code == 0, ran.output
    assert f"The cluster begins with the state in {file}." in ran.output
    both = CliRunner().invoke(cli, [*words, "--from", "localhost:1", "--snapshot", str(file)])
    assert (both.exit_code, "--snapshot is for a new cluster" in both.output) == (2, True)


def format_both(place: Path) -> None:
    """Format controller 1 with the file in `place`."""
    formatted(place / "node", 1, place / "import" / snapshot_name(END))


@pytest.mark.slow
def test_a_killed_format_is_finished_by_the_next(tmp_path: Path) -> None:
    """A format that was killed before it wrote its snapshot, or before it wrote the identity, was refused for ever."""
    snapshot(tmp_path / "given" / "import")
    copies = killed_everywhere(format_both, tmp_path / "given", tmp_path / "killed")
    whole = {file.name: file.read_bytes() for file in (copies[-1] / "node" / "@metadata").iterdir()}
    for copy in copies[:-1]:
        node = copy / "node"
        if not (node / "meta.properties").exists():
            format_both(copy)
        assert {file.name: file.read_bytes() for file in (node / "@metadata").iterdir()} == whole, copy
        identity = read_identity(RealDirectory(node))
        assert identity is not None
        assert open_directory(RealDirectory(node), identity, NodeConfig()).disk_trust == FULL


def left_by_a_kill(tmp_path: Path) -> tuple[Path, Path]:
    """A controller whose format was killed before the last step, and the imported file."""
    file = snapshot(tmp_path / "import")
    node = formatted(tmp_path / "node", 1, file)
    (node / "meta.properties").unlink()
    return node, file


def test_a_killed_format_may_be_done_again_with_other_voters(tmp_path: Path) -> None:
    """The snapshot that the killed format has left would belong to another cluster."""
    node, file = left_by_a_kill(tmp_path)
    assert (formatted(node, 1, file, "b") / "@metadata" / snapshot_name(END)).read_bytes() == (
        formatted(tmp_path / "other", 1, file, "b") / "@metadata" / snapshot_name(END)
    ).read_bytes()


def test_another_state_than_that_of_the_file_is_never_overwritten(tmp_path: Path) -> None:
    node, _ = left_by_a_kill(tmp_path)
    other = OffsetAndEpoch(300, 6)
    write_records(RealDirectory(tmp_path / "two"), SnapshotMeta(other, 1_000, b"c" * 32, NOBODY, 1), [LEVEL])
    words = ["storage", "format", "--directory", str(node), "--node-id", "1", "--role", "controller", "-t", "a"]
    words += ["-I", ",".join(map(str, VOTERS))]
    for more in ((), ("--snapshot", str(tmp_path / "two" / snapshot_name(other))), ("-g",)):
        ran = CliRunner().invoke(cli, [*words, *more])
        assert (ran.exit_code, "Nothing was changed" in ran.output) == (4, True), ran.output
        assert f"move {node / '@metadata'} away" in " ".join(ran.output.split())
    assert (node / "@metadata" / snapshot_name(END)).exists()


def test_a_vote_without_an_identity_is_never_overwritten(tmp_path: Path) -> None:
    """The node has voted: with a new format it could vote twice in epoch 7."""
    node, file = left_by_a_kill(tmp_path)
    election_file.save(RealDirectory(node), ElectionState(epoch=7, voted_for=None, leader_id=None))
    with pytest.raises(AlreadyFormatted, match="its owner is not known"):
        formatted(node, 1, file)
