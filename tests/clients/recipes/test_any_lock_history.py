"""Locks under random faults: any seed keeps the promises of the recipe."""

import asyncio
import random
from contextlib import suppress

import pytest

from metaquorum import AdminError, EntityClient, Lock, PutEntity, Session, Token
from tests.clients.fake_entities import FakeCluster, Running, client_of, nodes

WORKERS = 4
TURNS = 6


class Story:
    """Workers that take one lock in turn, while requests and answers are lost, sessions end and lost requests arrive late."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = FakeCluster()
        self.held: list[Token] = []
        """The tokens of all holders, in the order of holding."""
        self.writes: list[Token] = []
        """The tokens of all writes that were done under the lock, in the order of the log."""
        self.is_over = False

    async def work(self, client: EntityClient, number: int) -> None:
        for _ in range(TURNS):
            with suppress(AdminError):
                async with client.session(f"worker {number}", 1_000) as session:
                    await self.hold(session)

    async def hold(self, session: Session) -> None:
        async with Lock(session, "a") as lock:
            self.held.append(lock.token)
            if self.dice.random() < 0.5:
                await asyncio.sleep(self.dice.random() * 0.02)
            await lock.transact([], [PutEntity("job", "7", str(lock.token).encode())])

    async def trouble(self) -> None:
        """One fault at a time."""
        while not self.is_over:
            await asyncio.sleep(self.dice.random() * 0.02)
            match self.dice.randrange(5):
                case 0:
                    self.cluster.lost_answers += 1
                case 1:
                    self.cluster.lost_requests += 1
                case 2 if self.cluster.sessions:
                    self.cluster.end_session(self.dice.choice(sorted(self.cluster.sessions)))
                case 3:
                    with suppress(Exception):  # a late request for a session that has ended is refused
                        self.cluster.arrive()
                case _:
                    self.cluster.trim()

    async def watch(self, client: EntityClient) -> None:
        async with client.watch("job", from_now=True) as watch:
            async for batch in watch:
                for event in batch.events:
                    generation, _, offset = event.entity.value.decode().partition(":")  # type: ignore[union-attr]
                    self.writes.append(Token(int(generation), int(offset)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_no_two_holders_have_one_token_and_no_former_holder_writes(seed: int) -> None:
    """Tokens grow from holder to holder, the writes under the lock come in the order of their tokens, and the lock goes on after
    all faults."""
    story = Story(seed)
    async with nodes(story.cluster, 2) as running, asyncio.timeout(60):
        await _told(story, running)
    assert story.held == sorted(set(story.held))
    assert story.writes == sorted(story.writes)
    assert set(story.writes) <= set(story.held)


async def _told(story: Story, running: list[Running]) -> None:
    async with client_of(running, timeout_s=0.5) as one, client_of(running[::-1], timeout_s=0.5) as two:
        watching = asyncio.create_task(story.watch(one))
        troubling = asyncio.create_task(story.trouble())
        await asyncio.gather(*(story.work((one, two)[number % 2], number) for number in range(WORKERS)))
        story.is_over = True
        await troubling
        for session_id in list(story.cluster.sessions):  # of clients that could not close them: they time out
            story.cluster.end_session(session_id)
        story.cluster.lost_answers = story.cluster.lost_requests = 0
        async with asyncio.timeout(10), one.session("last") as session:
            await story.hold(session)
        while not story.writes or story.writes[-1] != story.held[-1]:
            await asyncio.sleep(0.005)
        watching.cancel()
