"""`quorum recover` goes on in a later epoch than any that there was, and there is one: also where few are left."""

from pathlib import Path

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import EPOCH_MAX
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.epochs import EPOCHS_AHEAD_MAX, reach
from quorum.runtime.disk import election_file
from tests.quorum.cli.recover.test_recover import OLD, contents, controller, recover, recovered, reopened


def survivor(path: Path, left: int) -> Path:
    """A controller's directory whose vote is `left` epochs before the last one."""
    controller(path, OLD)
    election_file.save(RealDirectory(path), ElectionState(EPOCH_MAX - left, None, None))
    return path


@pytest.mark.parametrize("left", [1 << 40, 3 * EPOCHS_AHEAD_MAX, EPOCHS_AHEAD_MAX, 5_000, 3])
def test_a_recovery_finds_an_epoch_however_few_are_left(tmp_path: Path, left: int) -> None:
    """A million on, or half of what is left: forged messages may have brought the survivor far, and it has to be elected yet."""
    path = survivor(tmp_path / "c", left)
    recovered("--directory", path)
    opened = reopened(path)
    assert opened.election.epoch == EPOCH_MAX - left + min(EPOCHS_AHEAD_MAX, left // 2) == opened.log.shape.last_epoch
    assert reach(opened.election.epoch) > 0


@pytest.mark.parametrize("left", [0, 1, 2])
def test_where_no_epoch_is_left_nothing_is_changed(tmp_path: Path, left: int) -> None:
    path = survivor(tmp_path / "c", left)
    before = contents(path)
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 4
    assert f"is in epoch {EPOCH_MAX - left}, and a recovery needs a later epoch" in refused.stderr
    assert contents(path) == before
