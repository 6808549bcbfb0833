"""Processes that a test ends with Ctrl-C."""

import signal


def ctrl_c_ends_a_process() -> None:
    """Give SIGINT its usual meaning, between fork and exec. A shell's background job (`make test &`) ignores SIGINT, and its
    children inherit that: then a test would wait for the end of its process until its timeout.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
