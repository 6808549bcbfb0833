"""Work beside a daemon's main work, such as counting for the metrics page. A failure of this work does not end the daemon.

1. The task that counts partitions meets a bug, and ends with an exception.
2. The log has a line `background task failed` with the traceback. The daemon goes on, and its metrics keep the last figures.
3. Without this file the log would have no line before the daemon ends: asyncio reports an exception that nobody has read only
   when the task is deleted.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from service_kit.process.logs import get_logger

log = get_logger(__name__)


@contextmanager
def in_background(name: str, work: Coroutine[Any, Any, None]) -> Iterator[None]:
    """Runs `work` on the event loop inside of the block, and cancels it at the end. `name` is for the log line of a failure."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(partial(_ended, name))
    try:
        yield
    finally:
        task.cancel()


def _ended(name: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background task failed", task=name, exc_info=error)
