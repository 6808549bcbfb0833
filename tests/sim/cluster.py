"""A whole cluster on one thread: one seed, one queue of things to happen, and the laws checked after each of them."""

import heapq
import random
from collections.abc import Callable

from metadata_log.disk.identity import Identity
from metadata_log.format.ids import NodeId, uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.store import SnapshotStore
from tests.sim.coverage import Coverage
from tests.sim.data.drawing import draw
from tests.sim.data.plane import DataPlane
from tests.sim.data.workload import Workload
from tests.sim.entities.workload import EntityWorkload
from tests.sim.faults import Faults
from tests.sim.healing import Healing
from tests.sim.laws import Laws
from tests.sim.nodes.brokers import SimBroker
from tests.sim.nodes.clients import SimClient
from tests.sim.nodes.controllers import SimController
from tests.sim.nodes.poisoning import Poisoning
from tests.sim.nodes.retrying import RetryingClient
from tests.sim.options import Options
from tests.sim.picture import Picture
from tests.sim.world.disk import MemoryDirectory
from tests.sim.world.forging import Forger
from tests.sim.world.network import Network

FIRST_BROKER_ID = 101
WATCH_EVERY_MS = 500.0
DATA_EVENTS_AS_ONE = 4


def endpoints_of(node_id: NodeId) -> tuple[Endpoint, ...]:
    """The endpoints under which controller `node_id` says that it can be reached."""
    return (Endpoint("CONTROLLER", "127.0.0.1", 9_092 + node_id),)


def voter_of(identity: Identity) -> Voter:
    """The controller as an entry of a voter set."""
    return Voter(identity.node_id, identity.directory_id, endpoints_of(identity.node_id))


class SimulationFailed(AssertionError):
    """A law is broken, or something raised."""

    def __init__(self, law: str, story: str) -> None:
        super().__init__(law)
        self.law = law
        """Which, and by whom."""
        self.story = story
        """The run's options and its last events."""


class Cluster:
    """Controllers, brokers and clients, and the time they live in."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = options or Options.draw(self.rng)
        self.now_ms = 0.0
        self.events = 0
        self.coverage = Coverage()
        self.picture = Picture()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.network = Network(
            self.options, random.Random(self.rng.random()), self.schedule, self.coverage, lambda: self.now_ms
        )
        self.controllers = self._format_controllers()
        ids = range(FIRST_BROKER_ID, FIRST_BROKER_ID + self.options.brokers)
        self.brokers = {broker_id: SimBroker(self, broker_id) for broker_id in ids}
        self.laws = Laws(self.options, self.coverage, self.controllers, self.brokers, self.bootstrap)
        repeating = RetryingClient(self, "k1") if self.options.request_ids else SimClient(self, "k1", repeats=True)
        self.clients = (SimClient(self, "k0", repeats=False), repeating)
        self.client_every_ms = self.options.client_every_ms
        self.is_calm = False
        """True from the beginning of the healing on: operators end what they have begun."""
        self.forger = Forger(self.options.forged_chance, random.Random(f"{seed} forger"), self.coverage)
        self.is_idle = False
        """Nobody asks for anything any more."""
        self.faults = Faults(self)
        self.workload = Workload(self) if self.options.data else None
        """Producers and consumers, if brokers have partitions."""
        self.entities = EntityWorkload(self) if self.options.entities else None
        """Clients with entities, sessions and locks."""
        self._data_events = 0
        self.poisoning = Poisoning(self)
        if self.options.clock_drift > 0:
            self.coverage["clock that drifts"] += len(self.controllers) + len(self.brokers)
        for controller in self.controllers:
            self.draw(controller, "is formatted")

    def _format_controllers(self) -> list[SimController]:
        cluster_id = uuid_text(self.rng.randbytes(16))
        ids = range(1, self.options.controllers + self.options.spares + 1)
        identities = [Identity(cluster_id, node_id, self.rng.randbytes(16), 1, "controller") for node_id in ids]
        voters = tuple(voter_of(identity) for identity in identities[: self.options.controllers])
        self.bootstrap = Voters(voters)
        return [SimController(self, each, self.formatted(each.node_id), self._config_of(each)) for each in identities]

    def formatted(self, node_id: NodeId) -> MemoryDirectory:
        """A new disk for a controller of this cluster."""
        disk = MemoryDirectory(f"/c{node_id}")
        SnapshotStore(disk.subdirectory(LOG_DIRECTORY)).write_bootstrap(self.bootstrap)
        return disk

    def _config_of(self, identity: Identity) -> NodeConfig:
        config = self.options.node_config()
        return config._replace(endpoints=endpoints_of(identity.node_id)) if self.options.membership_every_ms else config

    # --- time ------------------------------------------------------------------------------------------------------

    def schedule(self, after_ms: float, act: Callable[[], None]) -> None:
        """`act` will be called once, `after_ms` from now."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + max(0.0, after_ms), self._sequence, act))

    def next(self) -> None:
        """The next thing happens."""
        self.now_ms, _, act = heapq.heappop(self._queue)
        act()

    def run(self, events: int) -> None:
        """At least `events` events under faults; then they stop, and what is healthy must come together.

        Raises:
            SimulationFailed: with the law, the run's options and its last events.
        """
        try:
            self._start()
            while self.events < events:
                self.next()
            Healing(self).run()
            self.laws.metadata.check_whole(self.laws.history.image)
            self.coverage["image made anew after a skip"] += self.laws.history.skips.images_anew
            for how, count in self.laws.history.transactions.items():
                self.coverage[f"transaction {how}"] += count
        except Exception as e:
            raise SimulationFailed(f"{type(e).__name__}: {e}", self._story()) from e

    def _start(self) -> None:
        for controller in self.controllers:
            self.schedule(self.rng.uniform(0, 100), controller.boot_up)
        for broker in self.brokers.values():
            self.schedule(self.rng.uniform(0, 500), broker.boot_up)
        for client in self.clients:
            self._keep_busy(client)
        self.schedule(WATCH_EVERY_MS, self._watch)
        if self.workload is not None:
            self.workload.start()
        if self.entities is not None:
            self.entities.start()
        self.faults.start()
        self.poisoning.start()

    def _keep_busy(self, client: SimClient) -> None:
        def act() -> None:
            if not self.is_idle:
                client.act()
            self._keep_busy(client)

        self.schedule(self.rng.expovariate(1 / self.client_every_ms), act)

    def _watch(self) -> None:
        """Looks at states that must not last, also while nothing happens."""
        for controller in self.controllers:
            if controller.is_up and controller.core.is_leading:
                self.laws.quorum.following.check_still_followed(controller, self.now_ms)
        self.schedule(WATCH_EVERY_MS, self._watch)

    # --- looking ---------------------------------------------------------------------------------------------------

    def controller(self, node_id: NodeId) -> SimController:
        return self.controllers[node_id - 1]

    def addresses(self) -> list[str]:
        """Everybody on the network."""
        controllers, brokers, clients = self.controllers, self.brokers.values(), self.clients
        others = [] if self.workload is None else self.workload.names
        others += [] if self.entities is None else self.entities.names
        return [*(c.name for c in controllers), *(b.name for b in brokers), *(k.name for k in clients), *others]

    def acknowledged_writes(self) -> int:
        return sum(client.answers for client in self.clients)

    def after_event(self, controller: SimController, what: str) -> None:
        self.events += 1
        self.picture.add_controller(self.now_ms, controller, what)
        self.laws.observe(controller, self.now_ms)

    def draw(self, controller: SimController, what: str) -> None:
        """Something that is no event of its own, for the picture."""
        self.picture.add_controller(self.now_ms, controller, what)

    def after_broker_event(self, broker: SimBroker, what: str) -> None:
        self.events += 1
        state = broker.session.state.name.lower()
        self.picture.add(self.now_ms, broker.name, f"{what} [{state}]")
        self.laws.observe_broker(broker)

    def after_data_event(self, plane: DataPlane, what: str) -> None:
        """Data planes do much, and little at a time: a few of their events count as one."""
        self._data_events += 1
        self.events += self._data_events % DATA_EVENTS_AS_ONE == 0
        self.picture.add(self.now_ms, plane.name, what)

    def restart_later(self, controller: SimController) -> None:
        """Somebody will see that it is down."""
        self.faults.restart_later(controller)

    def _story(self) -> str:
        options = "\n".join(f"    {name:<24} {value}" for name, value in self.options._asdict().items())
        partitions = f"\nThe partitions:\n\n{draw(self)}\n" if self.workload is not None else ""
        return (
            f"It was event {self.events:,} of seed {self.seed}, after {self.now_ms:,.1f} simulated milliseconds.\n\n"
            f"The run's options:\n\n{options}\n\nThe last events:\n\n{self.picture}\n{partitions}"
        )
