"""The fetches of this broker as a follower: each request of a fetcher on its way to the source, and the answer on its way back.

1. The manager returns `SendFetch`: fetcher 101/0 wants 40 partitions of broker 101. A task sends the request.
2. Broker 101 answers after 300 ms: the manager gets the answer, appends, and returns the flushes and the next `SendFetch`.
3. Broker 101 does not answer within its time: the manager hears of it, and lets the fetcher rest.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from broker_agent.client import CallFailed
from broker_agent.data_plane.fetch_messages import FetchLimits
from broker_agent.data_plane.tallies import DataPlaneTallies, bytes_of
from broker_agent.metadata_loader import Log
from broker_agent.partitions.effects import Effects, SendFetch
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from metadata_log.format.ids import NodeId

ANSWER_PATIENCE_MS: Final = 5_000
"""How long a fetch waits for an answer beyond the time that it lets the source wait."""


class SourceBrokers(Protocol):
    """The brokers that this broker follows."""

    async def fetch(
        self, source_id: NodeId, session: SessionRequest, broker_epoch: int, limits: FetchLimits, timeout_s: float
    ) -> SessionAnswer:
        """Fetches from a broker. Raises CallFailed."""


class FollowingBroker(Protocol):
    """The view of the agent that this file needs."""

    @property
    def broker_epoch(self) -> int | None: ...

    def give_up(self, reason: str) -> None: ...


class OwnFetches:
    """The fetches of one broker that are under way: one of each fetcher."""

    def __init__(
        self,
        broker: FollowingBroker,
        manager: ReplicaManager,
        sources: SourceBrokers,
        limits: FetchLimits,
        carry_out: Callable[[Effects], None],
        tallies: DataPlaneTallies,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        log: Log,
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._sources = sources
        self._limits = limits
        self._carry_out = carry_out
        self._tallies = tallies
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._log = log
        self._under_way: set[asyncio.Task[None]] = set()

    def send(self, send: SendFetch) -> None:
        """Sends one request of a fetcher; its answer goes to the manager."""
        task = asyncio.get_running_loop().create_task(self._fetch(send))
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def close(self) -> None:
        """Ends all requests. The manager hears of none of them."""
        for task in self._under_way:
            task.cancel()

    async def _fetch(self, send: SendFetch) -> None:
        self._tallies.fetches_sent.add()
        timeout_s = (self._limits.max_wait_ms + ANSWER_PATIENCE_MS) / 1_000
        try:
            epoch = self._broker.broker_epoch
            if epoch is None:
                raise CallFailed("this broker is not registered")
            answer = await self._sources.fetch(send.source_id, send.request.session, epoch, self._limits, timeout_s)
        except CallFailed as e:
            self._log.debug("fetch failed", source=send.source_id, reason=str(e))
            self._tallies.fetches_failed.add()
            self._carry_out(self._manager.fetch_failed(send, self._now_ms()))
        else:
            self._tallies.replication_bytes_in.add(bytes_of(answer))
            self._carry_out(self._manager.fetch_answered(send, answer, self._now_ms(), self._wall_ms()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("mistake in the data plane", reason=repr(error), exc_info=error)
            self._broker.give_up(f"the data plane has made a mistake: {error!r}")
