"""The feed of assignments: one subscriber keeps the table (`assignments`), and any number of streams read it.

    1. Broker 101 starts with the image at 500 on its disk. The cluster is at 620: an assignment of the image at 500 may be stale.
    2. The broker registers, fetches, and applies everything below 620, its own registration included. Only now the table begins.
    3. A stream yields `WholeSet`, then one assignment for each replica, and then each change.

Work over many partitions is done on a thread, because images never change. The table is changed on the event loop only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias, TypeVar

from broker_agent.publishing.assignments import (
    AssignmentNews,
    AssignmentTable,
    ResumePoint,
    WholeSet,
    all_assignments,
    changed_assignments,
)
from broker_agent.publishing.publishers import ImageUpdate
from metadata_log.format.ids import NodeId
from metadata_log.image.changes import Changes
from metadata_log.image.metadata_image import MetadataImage
from service_kit.process.switches import frequent_switches

T = TypeVar("T")

NAME: Final = "assignments"
"""The name of the subscriber."""
SMALL: Final = 1_000
"""Maximum number of changed partitions and topics that the event loop looks at by itself: a few milliseconds."""
BURST: Final = 256
"""How many assignments a stream yields before other tasks of the event loop run."""

IsCurrent: TypeAlias = Callable[[MetadataImage], bool]
"""Tells whether the image shows the present cluster, and not the cluster at the end of this broker's last process."""


class AssignmentFeed:
    """The assignments of one broker. `take` is the subscriber; `stream` gives a reader its own stream."""

    def __init__(self, broker_id: NodeId, is_current: IsCurrent, table: AssignmentTable | None = None) -> None:
        self._broker_id = broker_id
        self._is_current = is_current
        self._table = AssignmentTable() if table is None else table
        self._news = asyncio.Event()
        """Set and replaced whenever the table has changed."""
        self.has_ended = False

    async def take(self, update: ImageUpdate) -> None:
        """Brings the table to the image after the update. A subscriber of `Publishers`."""
        table, after, broker_id = self._table, update.after, self._broker_id
        if table.end is not None and table.end.generation == update.generation:
            size = _size(update.changes)
            changed = await _computed(
                lambda: [*changed_assignments(update.before, after, update.changes, broker_id)], size > SMALL
            )
            table.add(after.offset, changed)
        elif self._is_current(after):
            found = await _computed(lambda: all_assignments(after, broker_id), after.partition_count > SMALL)
            table.begin(update.generation, after.offset, found)
        else:
            return
        self._wake()

    def stream(self, since: ResumePoint | None) -> "AssignmentStream":
        """Returns a new stream, for one reader."""
        return AssignmentStream(self, since)

    def read(self, since: ResumePoint | None) -> tuple[tuple[AssignmentNews, ...], ResumePoint] | None:
        """Returns the news since this point and the next point; None before the first image that is current."""
        return self._table.after(since)

    async def changed(self) -> None:
        """Returns at the next change of the table, or when the feed ends."""
        if not self.has_ended:
            await self._news.wait()

    def end(self) -> None:
        """Ends all streams, once each of them has yielded what is there: the broker has left."""
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _size(changes: Changes) -> int:
    topics = len(changes.created_topics) + len(changes.deleted_topics)
    return topics + sum(len(partitions) for partitions in changes.partitions.values())


async def _computed(work: Callable[[], T], is_long: bool) -> T:
    if not is_long:
        return work()
    with frequent_switches():
        return await asyncio.to_thread(work)


class AssignmentStream:
    """One reader's assignments, in order, without an end until the broker has left. One task reads a stream."""

    def __init__(self, feed: AssignmentFeed, since: ResumePoint | None) -> None:
        self.resume_point = since
        """The point to keep once you have carried out the last assignment that was yielded: another stream goes on from there.

        None during the first whole set: a reader that breaks off there begins again."""
        self._feed = feed
        self._news = self._yield_news()

    def __aiter__(self) -> "AssignmentStream":
        return self

    async def __anext__(self) -> AssignmentNews:
        return await anext(self._news)

    async def _yield_news(self) -> AsyncIterator[AssignmentNews]:
        yielded = 0
        while True:
            reading = self._feed.read(self.resume_point)
            if reading is None or not reading[0]:
                if self._feed.has_ended:
                    return
                await self._feed.changed()
                continue
            news, end = reading
            is_whole = isinstance(news[0], WholeSet)
            for index, each in enumerate(news):
                if index + 1 == len(news):
                    self.resume_point = end
                elif not is_whole and each.offset < news[index + 1].offset:
                    self.resume_point = ResumePoint(end.generation, each.offset)
                yield each
                yielded += 1
                if yielded % BURST == 0:
                    await asyncio.sleep(0)
