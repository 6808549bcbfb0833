"""kill -9 of a broker's agent at random moments of its life: it always restarts clean.

Eight moments by default; `make kills` takes fifty, and `KILLS=500 SEED=7` any number of a certain seed. The seed is printed.
"""

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quorum.devcluster.cluster import DevClusterError
from quorum.devcluster.process import spawn
from tests.processes.conftest import Cluster, image_at, running, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("SEED", secrets.randbelow(1 << 32)))
TOPIC_PARTITIONS = 2_000


def tell(line: str) -> None:
    """Shown with `-s`, and by pytest after a failure."""
    sys.stdout.write(f"{line}\n")


class Story:
    """Broker 101 is killed again and again; 102 shows what is right."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster = cluster
        self.victim, self.other = cluster.brokers[101], cluster.brokers[102]
        self._dice = dice
        self._topics = 0
        self.moments: tuple[Callable[[], Awaitable[None]], ...] = (
            self.during_the_start,
            self.during_the_download_of_a_snapshot,
            self.while_it_applies,
            self.while_it_writes_a_snapshot,
            self.during_the_shutdown,
        )

    async def write(self) -> None:
        """About 150 KiB of log."""
        self._topics += 1
        await self.cluster.client.create_topic(f"t{self._topics}", partitions=TOPIC_PARTITIONS, replication_factor=1)

    async def kill_within(self, seconds: float) -> None:
        """The moment is the dice's choice: this pause is the test's input, and nothing waits for its end."""
        await asyncio.sleep(self._dice.uniform(0, seconds))
        await self.kill()

    async def kill(self) -> None:
        """The process may have left in order a moment before."""
        with contextlib.suppress(DevClusterError):
            self.cluster.dev.kill(self.victim.name)
        await self.cluster.dev.wait_until_gone(self.victim.name, 15)

    # --- the moments -----------------------------------------------------------------------------------------------

    async def during_the_start(self) -> None:
        await self.kill()
        await self.write()
        spawn(self.victim)
        await self.kill_within(2.0)

    async def during_the_download_of_a_snapshot(self) -> None:
        await self.write()
        await self.cluster.client.create_snapshot()
        await self.kill()
        shutil.rmtree(self.victim.data_directory / "@metadata")
        spawn(self.victim)
        await self.kill_within(2.0)

    async def while_it_applies(self) -> None:
        writing = asyncio.gather(*(self.write() for _ in range(4)))
        await self.kill_within(1.0)
        await writing

    async def while_it_writes_a_snapshot(self) -> None:
        await self.write()
        await self.cluster.client.create_snapshot()
        await self.kill_within(0.5)

    async def during_the_shutdown(self) -> None:
        self.cluster.dev.kill(self.victim.name, signal.SIGTERM)
        await self.kill_within(0.5)

    # --- after each of them ----------------------------------------------------------------------------------------

    async def restarts_clean(self) -> None:
        """Online, with the image of the other broker, and without a word of damage."""
        before = len(said(self.victim))
        spawn(self.victim)
        await self.cluster.dev.wait_until_healthy(60)

        async def agrees() -> bool | None:
            return True if await image_at(self.victim.endpoint) == await image_at(self.other.endpoint) else None

        await until(agrees, 60)
        lines = said(self.victim)[before:]
        assert not [line for line in lines if line["event"] in ("store dropped", "stopped", "cannot start", "gave up")]
        assert not [line for line in lines if line["level"] in ("error", "critical")], lines
        assert "Traceback" not in self.victim.log_path.read_text()


@pytest.mark.timeout(120 + 20 * KILLS)
async def test_an_agent_that_is_killed_at_any_moment_restarts_clean(tmp_path: Path) -> None:
    """After each kill the next process is online with the right image, from what the disk has: nothing is damaged or dropped."""
    tell(f"SEED={SEED} KILLS={KILLS}")
    async with running(tmp_path / "cluster", brokers=2) as cluster:
        story = Story(cluster, random.Random(SEED))
        for _ in range(3):
            await story.write()
        for number in range(KILLS):
            moment = story.moments[number % len(story.moments)]
            await moment()
            tell(f"{number + 1}: killed {moment.__name__.replace('_', ' ')}")
            await story.restarts_clean()
