"""Kills a piece of work at each of its changes of the disk, as `kill -9` does: no `finally` and no `except` runs.

The test gives a function that works in a directory. A process of its own loads the function once, and then forks a child for each
change: the first child dies before the first change, the second child before the second one. The last child ends its work.
Example, `write_atomic`:
    1. child 0 dies before `name.tmp` is opened, and leaves nothing;
    2. child 1 dies before the rename, and leaves `name.tmp`;
    3. child 2 ends its work.
"""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_CHANGES: Final = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"})
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_KILLED: Final = 137
_CHILDREN_MAX: Final = 1_000


def killed_everywhere(function: Callable[[Path], object], given: Path, place: Path) -> list[Path]:
    """Run `function`, a function of a module, on a copy of `given` for each of its changes of the disk, and kill it there.

    Returns:
        The copies in `place`; the work in the last one was done to its end.
    """
    words = [sys.executable, "-m", "tests.killing", function.__module__, function.__qualname__, str(given), str(place)]
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return sorted(place.iterdir())


def _children(function: Callable[[Path], object], given: Path, place: Path) -> Iterator[int]:
    for number in range(_CHILDREN_MAX):
        copy = place / f"{number:04d}"
        shutil.copytree(given, copy)
        child = os.fork()
        if child == 0:
            _die_at(number)
            function(copy)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        yield code
        if code != _KILLED:
            return


def _die_at(number: int) -> None:
    """Kill this process at its change of the disk with this number."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if event in _CHANGES or is_write:
            if left == 0:
                os._exit(_KILLED)
            left -= 1

    sys.addaudithook(hook)


def main(module: str, name: str, given: str, place: str) -> int:
    function = getattr(importlib.import_module(module), name)
    Path(place).mkdir(parents=True, exist_ok=True)
    *killed, last = _children(function, Path(given), Path(place))
    return 0 if killed and last == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
