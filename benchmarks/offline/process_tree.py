"""CPU time and memory of a process and all its descendants: this process, the JVM of Spark, and Spark's Python workers.

On a busy machine the rate of a job falls, but the CPU time of a record stays nearly the same.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.1
_STAT_PARENT, _STAT_TIMES = 1, slice(11, 15)
"""Places in /proc/PID/stat behind the name: the parent; user and system time of the process and of its ended children."""


class Usage(NamedTuple):
    """The processor time and the memory of a job."""

    cpu_s: float
    peak_mb: int
    """The most memory at any moment: resident, of all processes together."""
    python_mb: int
    """The same without the JVM, whose heap grows up to its limit before it collects garbage."""


class _Process(NamedTuple):
    parent: int
    is_jvm: bool
    cpu_s: float
    resident_mb: float


def _processes() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        try:
            name, fields = (path / "stat").read_text().rsplit(")", 1)
            pages = int((path / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended since the directory was listed
        values = fields.split()
        cpu_s = sum(map(int, values[_STAT_TIMES])) / _TICKS
        resident_mb = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        found[int(path.name)] = _Process(int(values[_STAT_PARENT]), name.endswith("(java"), cpu_s, resident_mb)
    return found


def tree(root: int) -> list[_Process]:
    """Return the process `root` and its descendants."""
    everything = _processes()
    family = {root}
    while more := {pid for pid, each in everything.items() if each.parent in family} - family:
        family |= more
    return [everything[pid] for pid in family if pid in everything]


class Watch:
    """Samples the tree of this process. `usage` is there after the block of `watched`."""

    def __init__(self) -> None:
        self.usage = Usage(0.0, 0, 0)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self.sample()

    def sample(self) -> float:
        """Note the memory; return the CPU time so far."""
        processes = tree(os.getpid())
        peak = int(sum(each.resident_mb for each in processes))
        python = int(sum(each.resident_mb for each in processes if not each.is_jvm))
        self.usage = Usage(0.0, max(peak, self.usage.peak_mb), max(python, self.usage.python_mb))
        return sum(each.cpu_s for each in processes)

    def end(self) -> None:
        self._ended.set()


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch what the block uses."""
    watch = Watch()
    before = watch.sample()
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.end()
        thread.join()
        watch.usage = watch.usage._replace(cpu_s=watch.sample() - before)
