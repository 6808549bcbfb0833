"""The log directories of a start: made once, known by their ids, and left out if they cannot be used."""

from pathlib import Path

import pytest

from broker_agent.data_plane.log_dirs import NoLogDir, open_log_dirs
from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import IDENTITY_NAME, ForeignDirectory, Identity
from tests.broker_agent.data_plane.lines import Lines

OWNER = Identity("4L6g3nShT-eMCtK--X86sw", 101, b"m" * 16, 1, "broker")


def test_an_empty_directory_becomes_the_brokers_with_an_id_of_its_own(tmp_path: Path) -> None:
    """The next start finds the same ids; a replaced disk gets another one."""
    paths = [tmp_path / "a", tmp_path / "b"]
    with open_log_dirs(paths, OWNER, Lines()) as first:
        ids = [each.directory_id for each in first]
    assert len({*ids, OWNER.directory_id}) == 3

    (paths[1] / IDENTITY_NAME).unlink()
    with open_log_dirs(paths, OWNER, Lines()) as second:
        assert second[0].directory_id == ids[0]
        assert second[1].directory_id not in ids


def test_a_directory_that_cannot_be_opened_is_left_out(tmp_path: Path) -> None:
    """The others are used; the log has the reason."""
    (tmp_path / "b").write_text("no directory")
    lines = Lines()

    with open_log_dirs([tmp_path / "a", tmp_path / "b"], OWNER, lines) as found:
        assert [each.path for each in found] == [tmp_path / "a"]

    assert "log directory left out" in lines.events


def test_a_damaged_identity_counts_as_a_directory_that_cannot_be_opened(tmp_path: Path) -> None:
    """Its replicas may be there, so it gets no new id."""
    with open_log_dirs([tmp_path / "a", tmp_path / "b"], OWNER, Lines()):
        pass
    (tmp_path / "a" / IDENTITY_NAME).write_text("version=1\nnode.id=\n")

    with open_log_dirs([tmp_path / "a", tmp_path / "b"], OWNER, Lines()) as found:
        assert [each.path for each in found] == [tmp_path / "b"]


def test_without_any_directory_the_broker_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no directory")

    with pytest.raises(NoLogDir, match="no log directory can be used"), open_log_dirs([tmp_path / "a"], OWNER, Lines()):
        pass


def test_the_directory_of_another_broker_stops_the_start(tmp_path: Path) -> None:
    """Its records are another broker's. The directories that were locked before are free again."""
    with open_log_dirs([tmp_path / "b"], OWNER._replace(node_id=102), Lines()):
        pass

    with (
        pytest.raises(ForeignDirectory, match="node 102, not 101"),
        open_log_dirs([tmp_path / "a", tmp_path / "b"], OWNER, Lines()),
    ):
        pass

    for name in ("a", "b"):
        directory = RealDirectory(tmp_path / name)
        directory.lock()
        directory.unlock()


def test_a_directory_in_use_stops_the_start(tmp_path: Path) -> None:
    with (
        open_log_dirs([tmp_path / "a"], OWNER, Lines()),
        pytest.raises(DirectoryInUse),
        open_log_dirs([tmp_path / "a"], OWNER, Lines()),
    ):
        pass
