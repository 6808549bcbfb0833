"""The clients of entities of one run: one asks everything once, and two repeat with request ids. Others watch, or look back."""

import random
from typing import TYPE_CHECKING

from tests.sim.entities.clients import EntityClient
from tests.sim.entities.watchers import SimWatcher
from tests.sim.nodes.clients import SimClient
from tests.sim.nodes.retrying import RetryingClient

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

CALM_EVERY_MS = 400.0
WATCH_EVERY_MS = 100.0
WATCHERS = 3
PAST_EVERY_MS = 1_000.0


class EntityWorkload:
    """Keeps the clients busy."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._rng = random.Random(f"{cluster.seed} entities")
        wires = (SimClient(cluster, "e0", repeats=False), RetryingClient(cluster, "e1"), RetryingClient(cluster, "e2"))
        self.clients = tuple(EntityClient(cluster, wire) for wire in wires)
        watchers = 0 if cluster.options.poison_every_ms else WATCHERS
        self.watchers = tuple(SimWatcher(cluster, f"w{number}") for number in range(watchers))

    @property
    def names(self) -> list[str]:
        """The addresses of all."""
        return [*(client.name for client in self.clients), *(watcher.name for watcher in self.watchers)]

    def start(self) -> None:
        for client in self.clients:
            self._keep_busy(client)
        for watcher in self.watchers:
            self._keep_watching(watcher)
        self._look_back()

    def _look_back(self) -> None:
        """A node that is up shows its past."""
        up = [each for each in self._cluster.controllers if each.is_up and not each.paused]
        if up:
            self._cluster.laws.entities.past.look(self._rng.choice(up), self._rng)
        self._cluster.schedule(self._rng.expovariate(1 / PAST_EVERY_MS), self._look_back)

    def _keep_watching(self, watcher: SimWatcher) -> None:
        watcher.act()
        self._cluster.schedule(WATCH_EVERY_MS, lambda: self._keep_watching(watcher))

    def _keep_busy(self, client: EntityClient) -> None:
        def act() -> None:
            if not self._cluster.is_idle:
                client.act()
            self._keep_busy(client)

        every_ms = self._cluster.options.entity_every_ms
        if self._cluster.is_calm:
            every_ms = max(CALM_EVERY_MS, every_ms)
        self._cluster.schedule(self._rng.expovariate(1 / every_ms), act)
