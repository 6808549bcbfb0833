"""How a local cluster tells whether a process has ended, and what its last words were."""

import io
import subprocess
import sys

from quorum.cli.commands.dev import _cli_error
from quorum.devcluster import process as dev_process
from quorum.devcluster.cluster import DevClusterError

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


def test_the_end_of_a_log_keeps_its_lines() -> None:
    """The reason why a daemon has ended is in its last lines; joined into one, nobody could read them."""
    shown = io.StringIO()
    _cli_error(DevClusterError("controller-1 has ended; the end of /c/log:\nstarted\ndamage found")).show(shown)
    assert shown.getvalue() == "quorumctl: controller-1 has ended; the end of /c/log:\n  started\n  damage found\n"
