"""`quorumctl quorum recover`, killed at every change that it makes to the disk: run again, it ends as if nothing had happened."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log.disk.files import RealDirectory, RealFile
from metadata_log.format.records import NoOp
from tests.quorum.cli.recover.test_recover import OLD, batches, broker, controller, recover, reopened

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """The process ended there. Nothing may handle this but the test."""


class Changes:
    """Counts what is done to the disk, and ends the process instead of doing the `last`-th."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.done = 0

    def one_more(self) -> None:
        if self.done + 1 >= self.last:
            raise Killed
        self.done += 1


@contextmanager
def killed_at(number: int) -> Iterator[Changes]:
    changes = Changes(number)
    with pytest.MonkeyPatch.context() as patch:
        for owner, names in (
            (RealFile, ("write_at", "truncate", "preallocate", "flush")),
            (RealDirectory, ("rename", "move", "remove", "flush")),
        ):
            for name in names:
                patch.setattr(owner, name, _counted(getattr(owner, name), changes))
        yield changes


def _counted(method: Any, changes: Changes) -> Any:
    def counted(self: object, *arguments: Any) -> Any:
        changes.one_more()
        return method(self, *arguments)

    return counted


def outcome(path: Path) -> object:
    """All that a controller of this directory begins with."""
    opened = reopened(path)
    opened.log.close()
    names = sorted(each.name for each in path.iterdir() if not each.name.endswith(".tmp"))
    return opened.identity, opened.election, opened.voters.latest, [batch.data for batch in batches(path)], names


def test_killed_at_any_step_and_run_again_it_ends_as_if_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The survivor gives up records of its own and takes over a broker's: the hardest case."""
    monkeypatch.setattr("service_kit.process.clock.RealClock.wall_ms", lambda _: 5_000)
    gone = controller(tmp_path / "gone", [*OLD, *[(2, NoOp())] * 4], node_id=2)
    before = controller(tmp_path / "before", [*OLD, *[(1, NoOp())] * 7])
    store = broker(tmp_path / "b", gone)

    def words(path: Path) -> tuple[object, ...]:
        return ("--directory", path, "--from-broker", store, "--yes")

    undisturbed = shutil.copytree(before, tmp_path / "undisturbed")
    with killed_at(1 << 60) as changes:
        assert recover(*words(undisturbed)).exit_code == 0
    wanted = outcome(undisturbed)
    for number in range(1, changes.done + 1):
        path = shutil.copytree(before, tmp_path / str(number))
        with killed_at(number), pytest.raises(Killed):
            recover(*words(path))
        again = recover(*words(path))
        was_done = again.exit_code == 4 and "is the only voter already, of generation " in again.stderr
        assert again.exit_code == 0 or (was_done and number == changes.done), (number, again.output)
        assert outcome(path) == wanted, number
