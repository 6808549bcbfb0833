"""CPU time of other processes: the kernel's count of nanoseconds on a core (schedstat), for all threads.

On a busy machine this figure stays nearly the same, but rates and latencies do not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Spent(NamedTuple):
    """The CPU time of a process so far, and how often its threads have given up a core to wait."""

    cpu_ns: int
    switches: int

    def since(self, earlier: "Spent") -> "Spent":
        return Spent(self.cpu_ns - earlier.cpu_ns, self.switches - earlier.switches)


def spent(pid: int) -> Spent:
    """Returns what the process has spent; threads that have ended are not counted."""
    cpu_ns = switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            cpu = (task / "schedstat").read_text()
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended since the directory was listed
        cpu_ns += int(cpu.split()[0])
        switches += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    return Spent(cpu_ns, switches)


def spent_by_name(pids: Mapping[str, int]) -> dict[str, Spent]:
    return {name: spent(pid) for name, pid in pids.items()}
