"""run: like `asyncio.run`, and a program that is told to stop leaves its blocks.

    async def main() -> None:
        async with EntityClient(["127.0.0.1:9001"]) as client, client.session("worker a") as session:
            ...

    metaquorum.run(main())

A process manager ends a program by SIGTERM, and Python dies of this signal without a word. Example:

    1. Worker a leads, under `asyncio.run`. The process manager sends SIGTERM, and the process is gone. Its session goes on for
       9 s, and no other candidate leads meanwhile.
    2. Worker a leads, under `run`. The signal cancels the main task, the block of the session ends, and the session is closed.
       The next candidate leads at once.

`run` does with SIGTERM what `asyncio.run` does with SIGINT.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

EXIT_TERMINATED: Final = 128 + signal.SIGTERM
"""The exit code of a program that SIGTERM has ended, as a shell shows it: 143."""


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Runs `main` in a new event loop, and returns its result.

    SIGTERM cancels the main task. A second SIGTERM ends the process at once. A handler that the program itself has set stays.
    Outside of the main thread no signal is handled.

    Raises:
        SystemExit: SIGTERM has ended `main`; the exit code is 143.
        KeyboardInterrupt: Ctrl-C has ended `main`.
    """
    told = threading.Event()
    with asyncio.Runner(debug=debug) as runner:
        try:
            return runner.run(_main_task(main, told))
        except asyncio.CancelledError:
            if told.is_set():
                raise SystemExit(EXIT_TERMINATED) from None
            raise


async def _main_task(main: Coroutine[Any, Any, T], told: threading.Event) -> T:
    """Awaits `main`, and sets `told` when SIGTERM has cancelled it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def terminate() -> None:
        told.set()
        loop.remove_signal_handler(signal.SIGTERM)  # a second signal has its usual effect
        task.cancel("SIGTERM")

    handles = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if handles:
        loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await main
    finally:
        if handles:
            loop.remove_signal_handler(signal.SIGTERM)
