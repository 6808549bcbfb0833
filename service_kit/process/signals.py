"""A daemon's reactions to signals.

    SIGTERM, SIGINT   stop in order; a second one ends the process at once, with exit code 128 + the signal's number
    SIGHUP            read changed files again
    SIGUSR1           write the stack of every thread to stderr, even if the event loop hangs

The interpreter itself handles SIGUSR1, without the event loop.
"""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _exit_now(code: int) -> NoReturn:
    os._exit(code)


@contextmanager
def handling_signals(
    on_stop: Callable[[signal.Signals], None],
    on_hangup: Callable[[], None] | None = None,
    *,
    exit_now: Callable[[int], object] = _exit_now,
) -> Iterator[None]:
    """Handles the signals inside of the block. Enter it on a running event loop of the main thread.

    `on_stop` is called once, on the event loop. Without `on_hangup` SIGHUP is ignored.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def stop(number: signal.Signals) -> None:
        nonlocal asked
        if asked:
            exit_now(128 + number)
        else:
            asked = True
            on_stop(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, on_hangup if on_hangup is not None else lambda: None)
    stderr = sys.__stderr__
    if stderr is not None:
        faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
