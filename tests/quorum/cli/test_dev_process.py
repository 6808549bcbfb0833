"""How a local cluster tells whether a process has ended."""

import subprocess
import sys

from quorum.devcluster import process as dev_process

FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_runs_until_its_last_thread_has_ended() -> None:
    """A killed daemon looks like a zombie while gRPC's threads still hold its port, and could not be started again."""
    child = subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE)
    try:
        while dev_process._state(child.pid) != "Z":
            assert child.poll() is None
        assert dev_process._runs(child.pid)
    finally:
        child.kill()
        child.communicate()
    assert not dev_process._runs(child.pid)
