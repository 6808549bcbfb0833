"""The assignment hook: a program that brokerd runs with the assignments of this broker, for data planes without gRPC.

The hook gets one JSON document a line on its standard input. Exit code 0 acknowledges all of them.

    1. `brokerd` 101 runs with `data.plane.hook: /usr/local/bin/obey`. The first run gets the whole set, at offset 500:
         {"assignment": "whole_set", "replicas": 1, "offset": 500}
         {"assignment": "lead", "topic": "orders", "partition": 0, "leader": 101, "leader_epoch": 3, ...}
    2. The run ends with 0: everything up to 500 is acknowledged.
    3. At 510 broker 102 leads orders-0. The next run gets the follow line, and ends with 1. The broker has the problem
       `publisher_failed`.
    4. A second later the hook runs again, with all that has changed since 500.

One run is in progress at a time, and nothing is kept on disk: a new process of the broker begins with the whole set.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from broker_agent.publishing.assignment_feed import AssignmentFeed
from broker_agent.publishing.assignments import Assignment, AssignmentNews, ResumePoint
from broker_agent.publishing.publishers import ImageUpdate
from metadata_log.format.ids import uuid_text

NAME: Final = "assignment hook"
"""The name of the subscriber."""
SAID_BYTES_MAX: Final = 1_000
"""Maximum size of the end of the hook's standard error that a problem shows."""
LINES_AT_A_TIME: Final = 256
"""How many lines are written before other tasks of the event loop run."""


class HookFailed(Exception):
    """The hook did not acknowledge its lines. They come again."""


class AssignmentHook:
    """The hook of one broker: a subscriber of `Publishers`, which runs it again after a failure."""

    def __init__(self, program: Sequence[str], timeout_ms: int, feed: AssignmentFeed) -> None:
        """`feed` belongs to the hook."""
        self.acknowledged: ResumePoint | None = None
        """How far the hook has come."""
        self._program = tuple(program)
        self._timeout_ms = timeout_ms
        self._feed = feed

    async def take(self, update: ImageUpdate) -> None:
        """Runs the hook if there is news. Raises HookFailed."""
        await self._feed.take(update)
        reading = self._feed.read(self.acknowledged)
        if reading is None:
            return
        news, end = reading
        if news:
            await self._run(news)
        self.acknowledged = end

    async def _run(self, news: Sequence[AssignmentNews]) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                limit=SAID_BYTES_MAX,
            )
        except OSError as e:
            raise HookFailed(f"{self._program[0]} was not started: {e.strerror}") from e
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                said, _ = await asyncio.gather(_end_of(process.stderr), _write(process.stdin, _lines(news)))
                code = await process.wait()
        except TimeoutError as e:
            raise HookFailed(f"{self._program[0]} was killed: it did not end within {self._timeout_ms} ms") from e
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code:
            raise HookFailed(f"{self._program[0]} ended with {code}: {said or 'it has not said why'}")


async def _write(pipe: asyncio.StreamWriter | None, lines: Iterable[str]) -> None:
    """Writes the lines, and the end of the input. A hook may end before it has read all of it: its exit code decides."""
    assert pipe is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        for number, line in enumerate(lines, 1):
            pipe.write(line.encode())
            if number % LINES_AT_A_TIME == 0:
                await pipe.drain()
                await asyncio.sleep(0)
    pipe.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await pipe.wait_closed()


async def _end_of(pipe: asyncio.StreamReader | None) -> str:
    """Reads to the end, and keeps the last bytes."""
    assert pipe is not None
    kept = b""
    while data := await pipe.read(SAID_BYTES_MAX):
        kept = (kept + data)[-SAID_BYTES_MAX:]
    return kept.decode(errors="replace").strip()


def _lines(news: Sequence[AssignmentNews]) -> Iterator[str]:
    for each in news:
        yield json.dumps(_document(each)) + "\n"


def _document(each: AssignmentNews) -> dict[str, object]:
    if not isinstance(each, Assignment):
        return {"assignment": "whole_set", "replicas": len(each.replicas), "offset": each.offset}
    return {
        "assignment": type(each).__name__.lower(),
        "topic_id": uuid_text(each.topic_id),
        "topic": each.topic,
        "partition": each.partition,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "partition_epoch": each.partition_epoch,
        "replicas": each.replicas,
        "isr": each.isr,
        "directory": None if each.directory is None else uuid_text(each.directory),
        "is_recovering": each.is_recovering,
        "offset": each.offset,
    }
