"""`python -m tests.chaos.launch ROLE SOCKET MUTANT --config FILE ...`: production's daemon, on a faulty disk and clock.

ROLE is `controller` for `quorumd`, or `broker` for `brokerd`.

MUTANT is one of the simulator's seeded bugs, by name, or `-`: then the code is as it is.

Orders come as lines of JSON over a Unix socket and are answered by `ok`, on a thread of their own, so that they are taken
also while the daemon's event loop stands still. See `disk_faults.Faults.take` for what can be ordered.
"""

import json
import socket
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from broker_agent.__main__ import main as brokerd
from quorum.__main__ import main as quorumd
from service_kit.process.clock import RealClock
from tests.chaos.disk_faults import Faults, put_in

NO_MUTANT = "-"
ORDER_BYTES_MAX = 4_096


def step_wall_clock(faults: Faults) -> None:
    """The wall clock of this process jumps as `faults` says; the clock that measures waits does not."""
    real = RealClock.wall_ms
    RealClock.wall_ms = lambda self: real(self) + faults.wall_step_ms  # type: ignore[method-assign]


def mutated(name: str) -> AbstractContextManager[None]:
    """The bug `name` in this process's code; `-`: none. (What finds bugs is imported only where one is wanted.)"""
    if name == NO_MUTANT:
        return nullcontext()
    from tests.sim import mutants

    return mutants.put_in(name)


def listen(path: Path, faults: Faults) -> None:
    """Takes orders until the process ends."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                faults.take(json.loads(connection.recv(ORDER_BYTES_MAX)))
                connection.sendall(b"ok\n")

    threading.Thread(target=serve, name="orders", daemon=True).start()


def order(path: Path, **fault: object) -> bool:
    """On the harness's side: gives an order; False if nobody takes any, because the daemon does not run."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(fault).encode())
            return connection.recv(16) == b"ok\n"
        except (FileNotFoundError, ConnectionError, TimeoutError):
            return False


if __name__ == "__main__":
    role, socket_path, mutant = sys.argv[1:4]
    all_faults = Faults()
    step_wall_clock(all_faults)
    put_in(all_faults)
    listen(Path(socket_path), all_faults)
    with mutated(mutant):
        {"controller": quorumd, "broker": brokerd}[role](sys.argv[4:])
