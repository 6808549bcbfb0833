"""A whole cluster on one thread: one seed, one queue of things to happen, and the laws checked after each of them."""

import heapq
import random
from collections.abc import Callable

from metadata_log.identity import Identity
from metadata_log.ids import NodeId, Offset, uuid_text
from metadata_log.log import LogConfig
from metadata_log.records import Endpoint, Voter, Voters
from quorum.controller.controller import ControllerConfig
from quorum.runtime.node_config import NodeConfig
from quorum.runtime.opening import LOG_DIRECTORY
from snapshots.policy import MarkPolicy, RetentionPolicy
from snapshots.store import SnapshotStore
from tests.sim.brokers import SimBroker
from tests.sim.clients import SimClient
from tests.sim.controllers import SimController
from tests.sim.coverage import Coverage
from tests.sim.disk import MemoryDirectory
from tests.sim.faults import Faults
from tests.sim.laws import LawBroken, Laws
from tests.sim.network import Network
from tests.sim.options import Options
from tests.sim.picture import Picture

SETTLE_MS = 30_000
"""Once nothing breaks any more, everybody agrees within this time, or something is stuck."""


class SimulationFailed(AssertionError):
    """A law is broken, or something raised; the text says all that is needed to see it again."""


class Cluster:
    """Controllers, brokers and a client, and the time they live in."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = options or Options.draw(self.rng)
        self.now_ms = 0.0
        self.events = 0
        self.coverage = Coverage()
        self.picture = Picture()
        self.laws = Laws(self.options.controllers, self.coverage)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.network = Network(self.options, random.Random(self.rng.random()), self.schedule, self.coverage)
        self.controllers = self._format_controllers()
        self.laws.everyone = self.controllers
        self.brokers = [SimBroker(self, 101 + index) for index in range(self.options.brokers)]
        self._clients = [SimClient(self, f"k{index}") for index in range(2)]
        self._faults = Faults(self)

    def _format_controllers(self) -> list[SimController]:
        cluster_id = uuid_text(self.rng.randbytes(16))
        options = self.options
        ids = range(1, options.controllers + 1)
        directory_ids = {node_id: self.rng.randbytes(16) for node_id in ids}
        voters = Voters(
            tuple(Voter(i, directory_ids[i], (Endpoint("CONTROLLER", "127.0.0.1", 9_092 + i),)) for i in ids)
        )
        config = NodeConfig(
            controller=ControllerConfig(),
            log=LogConfig(segment_bytes=options.segment_bytes, tail_bytes=self.rng.choice((1 << 10, 1 << 16))),
            marks=MarkPolicy(bytes_between=options.mark_bytes),
            retention=RetentionPolicy(max_bytes=options.retention_bytes),
        )
        controllers = []
        for node_id in ids:
            disk = MemoryDirectory(f"/c{node_id}")
            SnapshotStore(disk.subdirectory(LOG_DIRECTORY)).write_bootstrap(voters)
            identity = Identity(cluster_id, node_id, directory_ids[node_id], 1, "controller")
            controllers.append(SimController(self, identity, disk, config))
        return controllers

    # --- time ------------------------------------------------------------------------------------------------------

    def schedule(self, after_ms: float, act: Callable[[], None], what: str) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + max(0.0, after_ms), self._sequence, act))

    def run(self, events: int) -> None:
        """At least `events` events under faults, then everything heals and must come together.

        Raises:
            SimulationFailed: with the law, the seed, how to see it again, and the last events.
        """
        try:
            self._start()
            while self.events < events:
                self._next()
            self._heal()
            self._settle()
        except (AssertionError, Exception) as e:
            raise SimulationFailed(self._report(e)) from e

    def _start(self) -> None:
        for controller in self.controllers:
            self.schedule(self.rng.uniform(0, 100), controller.boot_up, "boot")
        for broker in self.brokers:
            self.schedule(self.rng.uniform(0, 500), broker.boot_up, "boot")
        for client in self._clients:
            self._client_acts(client)
        self._faults.start()

    def _client_acts(self, client: SimClient) -> None:
        def act() -> None:
            client.act()
            self._client_acts(client)

        self.schedule(self.rng.expovariate(1 / self.options.client_every_ms), act, "client")

    def _next(self) -> None:
        at_ms, _, act = heapq.heappop(self._queue)
        self.now_ms = at_ms
        act()

    def _heal(self) -> None:
        self._faults.stop()
        self.network.heal()
        for controller in self.controllers:
            if controller.is_up and controller.paused:
                controller.resume()
            if not controller.is_up:
                controller.boot_up()
        for broker in self.brokers:
            if broker.is_up and broker.paused:
                broker.resume()
            if not broker.is_up:
                broker.boot_up()

    def _settle(self) -> None:
        """L1, L2: a leader, and everybody with everything that is committed, while clients go on writing."""
        deadline_ms = self.now_ms + SETTLE_MS
        goal = self.laws.acknowledged_end
        while not self._together(goal):
            if self.now_ms > deadline_ms:
                raise LawBroken("L2 Convergence", f"not together at {goal} within {SETTLE_MS} ms of quiet")
            self._next()

    def _together(self, goal: Offset) -> bool:
        leaders = [c for c in self.controllers if c.is_up and c.node is not None and c.node.active.on]
        return (
            len(leaders) == 1
            and all(c.node is not None and c.node.state.applied >= goal for c in self.controllers)
            and all(not b.is_up or b.stopping or b.store.image.provenance.offset >= goal for b in self.brokers)
        )

    # --- looking ---------------------------------------------------------------------------------------------------

    def controller(self, node_id: NodeId) -> SimController:
        return self.controllers[node_id - 1]

    def addresses(self) -> list[str]:
        return [c.name for c in self.controllers] + [b.name for b in self.brokers] + [c.name for c in self._clients]

    def after_event(self, controller: SimController, what: str) -> None:
        self.events += 1
        self.picture.add(self.now_ms, controller.name, what, self.controllers)
        self.laws.observe(controller, self.controllers)

    def after_broker_event(self, broker: SimBroker, what: str) -> None:
        self.events += 1
        self.picture.add(self.now_ms, broker.name, f"{what} [{broker.session.state.name}]", self.controllers)
        self.laws.observe_broker(broker)

    def acknowledged(self, end: Offset) -> None:
        self.coverage["acknowledged write"] += 1
        self.laws.acknowledged(end)

    def restart_later(self, controller: SimController) -> None:
        def restart() -> None:
            if not controller.is_up:
                self.coverage["restart"] += 1
                controller.boot_up()

        after_ms = self.rng.uniform(0.2, 1.8) * self.options.restart_after_ms
        self.schedule(after_ms, restart, "restart")

    def _report(self, error: BaseException) -> str:
        return (
            f"\n{type(error).__name__}: {error}\n"
            f"seed {self.seed}, event {self.events}, {self.now_ms:.1f} ms; see it again:\n"
            f"    python -m tests.sim --seed {self.seed}\n\n"
            f"{self.options}\n\n{self.picture}\n"
        )
