"""The fetches of one broker as a follower: on their way to the source, and their answers."""

from typing import TYPE_CHECKING

from broker_agent.partitions.effects import SendFetch
from broker_agent.partitions.open_fetch import FetchSource
from broker_agent.replica.fetch_sessions import SessionAnswer

if TYPE_CHECKING:
    from tests.sim.data.plane import DataPlane

MAX_WAIT_MS = 500
TIMEOUT_MS = 1_200.0
MAX_BYTES = 4_000


class Fetching:
    """Sends what the manager's fetchers want."""

    def __init__(self, plane: "DataPlane") -> None:
        self._plane = plane

    def send(self, send: SendFetch) -> None:
        """Asks the source. After a while without an answer the request has failed; the answer may still come."""
        plane, cluster = self._plane, self._plane.cluster
        epoch = plane.broker.session.broker_epoch
        source = cluster.brokers.get(send.source_id)
        settled = False

        def fail() -> None:
            nonlocal settled
            if not settled:
                settled = True
                cluster.coverage["data: fetch without an answer"] += 1
                plane.later(0.0, lambda manager: manager.fetch_failed(send, plane.now_ms()), "fetch failed")

        def take(answer: SessionAnswer) -> None:
            nonlocal settled
            settled = True
            plane.later(
                0.0,
                lambda manager: manager.fetch_answered(send, answer, plane.now_ms(), plane.wall_ms()),
                f"fetch answer b{send.source_id}",
            )

        boot = plane.boot

        def arrive(answer: SessionAnswer | None) -> None:
            if plane.boot != boot:
                return
            fail() if answer is None else take(answer)

        if source is not None and source.data is not None and epoch is not None:
            serving, name = source.data.serving, source.name
            cluster.network.carry(
                plane.name,
                name,
                lambda: serving.fetch(
                    FetchSource(plane.broker_id, epoch),
                    send.request.session,
                    MAX_WAIT_MS,
                    MAX_BYTES,
                    lambda answer: cluster.network.carry(name, plane.name, lambda: arrive(answer)),
                ),
            )

        def give_up() -> None:
            if plane.boot == boot:
                fail()

        cluster.schedule(TIMEOUT_MS, give_up)
