"""Ctrl-C in a job with Spark: one line and exit code 1, no traceback, and no Java that stays behind.

Two moments need different treatment. Example: a person presses Ctrl-C 3 s, or 20 s, after the beginning of an audit.
    3 s: Java is starting. If Python ended now, Java would not notice, and would stay. So Ctrl-C waits for Spark, and stops it
    20 s: Spark works, and Python waits for its answer. PySpark's own handler would send Java a request on the connection
        that waits, which is a traceback of three errors. Ours raises KeyboardInterrupt, and the job stops Spark as at its end

A second Ctrl-C while Java starts ends Python at once.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from snapshots.offline.commands.shared import Failed

_WAITING: Final = b"quorum-offline: interrupted; the job ends as soon as Spark has started\n"
_INTERRUPTED: Final = "interrupted before the job had ended; no half result was written. Run the command again"


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Treat Ctrl-C as above until the block ends. The block calls the function that it gets when Spark has started.

    Raises:
        Failed: somebody has pressed Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # only the main thread gets signals
        return
    pressed = threading.Event()

    def note(_signal: int, _frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        os.write(2, _WAITING)  # `print` may be at work just now

    def stop(_signal: int, _frame: FrameType | None) -> None:
        pressed.set()
        logging.disable()  # Py4J logs the traceback of an interrupted request
        raise KeyboardInterrupt

    def started() -> None:
        signal.signal(signal.SIGINT, stop)
        if pressed.is_set():
            raise KeyboardInterrupt

    before, disabled = signal.signal(signal.SIGINT, note), logging.root.manager.disable
    try:
        yield started
    except (KeyboardInterrupt, Exception):  # an interrupted request to Java may end as any error
        if not pressed.is_set():
            raise
        raise Failed(_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(disabled)
