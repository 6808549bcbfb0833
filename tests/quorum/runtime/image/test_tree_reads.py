"""Queries of the tree on a controller: a few at a time, on threads that rest, and only as much as the reader takes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Topic
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import Changed, Differences, Find, History, Names, Query, Row, Seen, answer
from quorum.runtime.image import tree_reads
from quorum.runtime.image.past_images import PastImages
from quorum.runtime.image.tree_reads import HISTORIES_MAX, READS_MAX, TreeRead, TreeReads
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.tree_question import TreeQuestion
from service_kit.process.clock import RealClock
from snapshots.history.kept import PastConfig
from snapshots.history.past import Past
from snapshots.history.wanted import Wanted
from tests.metadata_log.image.histories import uuid
from tests.metadata_log.tree.test_tree import image_of
from tests.snapshots.history.nodes import PastNode


@pytest.fixture
def node(tmp_path: Path) -> PastNode:
    node = PastNode(tmp_path, 1)
    node.elect(1)
    node.run(20)
    node.write_out()
    node.journal.flush()
    node.remember()
    return node


@asynccontextmanager
async def reads_of(node: PastNode, clock: RealClock | None = None) -> AsyncIterator[TreeReads]:
    clock = clock or RealClock()
    images = PastImages(node.metadata, PastConfig(), clock.elapsed_us)
    reads = TreeReads(node.metadata, images, clock.elapsed_us)
    yield reads
    await reads.stop()
    await images.stop()


def plainly(row: Row) -> tuple[Row, int]:
    return row, 100


def opened(reads: TreeReads, node: PastNode, query: Query, image: MetadataImage | None = None) -> TreeRead[Row]:
    image = node.image if image is None else image
    return reads.open(TreeQuestion(query, image, image, node.journal.shape.end), plainly)


async def all_of(read: TreeRead[Row]) -> list[Row]:
    rows: list[Row] = []
    while portion := await read.portion():
        rows += portion
    await read.close()
    return rows


MANY = image_of(*[Topic(f"topic-{number:04}", uuid(1 + number)) for number in range(1_200)])


async def test_rows_come_in_portions(node: PastNode) -> None:
    async with reads_of(node) as reads:
        query = Names(("/topics",))
        read = opened(reads, node, query, MANY)
        first = await read.portion()
        assert 0 < len(first) <= tree_reads.PORTION_ROWS
        assert first + await all_of(read) == [*answer(query, Seen(MANY))]


async def test_large_rows_make_a_portion_small(node: PastNode) -> None:
    async with reads_of(node) as reads:
        asked = TreeQuestion(Names(("/topics",)), MANY, None, MANY.offset)
        read = reads.open(asked, lambda row: (row, tree_reads.PORTION_BYTES))
        assert len(await read.portion()) == 1
        await read.close()


async def test_a_history_is_that_of_the_files(node: PastNode) -> None:
    """From any offset on, also from one inside of a transaction, and from the oldest."""
    node.transaction(commit=True)
    node.write_out()
    node.journal.flush()
    end = node.journal.shape.end
    async with reads_of(node) as reads:
        for since in (None, 0, end // 2, end - 2, end):
            query = History("/topics", since)
            wanted = [*answer(query, Seen(node.image, None, Past(node.metadata).changes(since or 0, end)))]
            assert await all_of(opened(reads, node, query)) == wanted
            assert wanted or since == end
        assert all(isinstance(row, Changed) and row.offset is not None for row in wanted)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (Names(("/nothing",)), ErrorCode.RESOURCE_NOT_FOUND),
        (Find("x", "/*"), ErrorCode.INVALID_REQUEST),
        (Differences("/nothing"), ErrorCode.RESOURCE_NOT_FOUND),
        (History("/", 1 << 40), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_a_query_without_an_answer_is_refused(node: PastNode, query: Query, code: ErrorCode) -> None:
    async with reads_of(node) as reads:
        read = opened(reads, node, query)
        with pytest.raises(Refused) as refused:
            await read.portion()
        assert refused.value.code is code
        await read.close()


async def test_the_rows_before_a_refusal_are_told(node: PastNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata_log.tree.queries.ROWS_MAX", 5)
    async with reads_of(node) as reads:
        read = opened(reads, node, Names(("/topics",)), MANY)
        assert len(await read.portion()) == 5
        with pytest.raises(Refused, match="more than 5 names; name a deeper path"):
            await read.portion()
        await read.close()


async def test_a_history_over_damaged_files_says_so(node: PastNode) -> None:
    """The base is there already, and a batch above is damaged: the rows that came are true."""
    end = node.journal.shape.end
    async with reads_of(node) as reads:
        base = await reads.images.shown(Wanted(offset=end // 2), end)
        for file in (node.path / "@metadata").rglob("*.log"):
            data = bytearray(file.read_bytes())
            data[-40:] = bytes(40)
            file.write_bytes(data)
        read = opened(reads, node, History("/", base.end))
        with pytest.raises(Refused, match="cannot be") as refused:
            while await read.portion():
                pass
        assert refused.value.code is ErrorCode.STORAGE_ERROR
        await read.close()


async def test_so_many_answers_at_a_time(node: PastNode) -> None:
    async with reads_of(node) as reads:
        histories = [opened(reads, node, History("/")) for _ in range(HISTORIES_MAX)]
        with pytest.raises(Refused, match="histories already") as refused:
            opened(reads, node, History("/"))
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        others = [opened(reads, node, Names(("/",))) for _ in range(READS_MAX - HISTORIES_MAX)]
        with pytest.raises(Refused, match="ask again in a moment, or ask another controller") as refused:
            opened(reads, node, Names(("/",)))
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await histories.pop().close()
        others.append(opened(reads, node, Names(("/",))))
        for read in (*histories, *others):
            await read.close()


class Gate(RealClock):
    """A clock whose every look waits for the gate: a closed gate holds the thread between two steps of its work."""

    def __init__(self) -> None:
        self.looks = 0
        self.entered = threading.Event()
        self.gate = threading.Event()

    def elapsed_us(self) -> int:
        self.looks += 1
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            self.gate.wait(10)
        return self.looks * 10_000


async def test_an_answer_that_nobody_wants_ends_at_its_next_step(node: PastNode) -> None:
    """A search through everything finds nothing, so it never returns by itself; and while it works the loop goes on."""
    clock = Gate()
    async with reads_of(node, clock) as reads:
        read = opened(reads, node, Find("nothing", "/"), MANY)
        asking = asyncio.create_task(read.portion())
        while not clock.entered.is_set():
            await asyncio.sleep(0)
        asking.cancel()
        closing = asyncio.create_task(read.close())
        await asyncio.sleep(0)
        assert not closing.done(), "the thread has not come to its next step"
        clock.gate.set()
        await closing
        assert asking.cancelled() and clock.looks < 10, "a whole search has thousands of steps"
        assert await all_of(opened(reads, node, Names(("/topics",)), MANY)), "its place is free"


async def test_a_node_that_stops_ends_its_answers(node: PastNode) -> None:
    clock = Gate()
    async with reads_of(node, clock) as reads:
        read = opened(reads, node, Find("nothing", "/"), MANY)
        asking: asyncio.Task[Any] = asyncio.create_task(read.portion())
        while not clock.entered.is_set():
            await asyncio.sleep(0)
        stopping = asyncio.create_task(reads.stop())
        await asyncio.sleep(0)
        clock.gate.set()
        await stopping
        with pytest.raises(Refused, match="stops"):
            await asking
        with pytest.raises(Refused, match="stops"):
            opened(reads, node, Names(("/",)))
        await read.close()
