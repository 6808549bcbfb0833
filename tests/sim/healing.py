"""After the faults: what is healthy must come together, whatever becomes of the rest (L1 to L4, L7 to L12).

Either everything heals, or only a majority of the controllers does. The others are down or cut off, and the majority must
do its work without them. Then they come and go, heard but deaf or hearing but mute, and must not cost the majority its
leader again and again. At last they heal too. Some runs end behind slow links (`slow_links`).
"""

import random
from typing import TYPE_CHECKING

from metadata_log.format.ids import NO_LEADER, NodeId, Offset
from metadata_log.format.partition_state import DIRECTORIES, ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import RegisterBroker
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.balance import Balance
from tests.sim.data.ending import DataEnding
from tests.sim.laws import LawBroken, hold
from tests.sim.moves import Moves
from tests.sim.picture import describe
from tests.sim.slow_links import SlowLinks

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.nodes.controllers import SimController

SETTLE_MS = 40_000
"""Once nothing breaks any more, everybody agrees within this time, or something is stuck."""
CALM_MS = 4_000
"""For so long a majority is then watched."""
FLAP_EVERY_MS = 700.0
NEW_WRITES = 3
CLIENT_EVERY_MS = 100.0


class Healing:
    """The end of a run."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._rng = random.Random(cluster.rng.random())
        self._flapping = False

    def run(self) -> None:
        """Raises LawBroken if what is healthy does not come together, or does not stay together."""
        cluster = self._cluster
        core = list(cluster.controllers)
        if cluster.options.only_majority_heals and len(core) > 2:
            core = self._rng.sample(core, len(core) // 2 + 1)
            cluster.coverage["only a majority heals"] += 1
        others = [each for each in cluster.controllers if each not in core]
        self._stop_faults(core, others)
        self._cut_off(others)
        self._settle(core)
        if others:
            self._stay_together(others)
            cluster.network.heal()
            cluster.faults.stop(())
            self._wake(cluster.controllers)
            self._settle(cluster.controllers)
        if cluster.options.balance_every_ms:
            Balance(cluster).run()
        if cluster.options.reassign_chance:
            Moves(cluster).run()
        if cluster.workload is not None:
            DataEnding(cluster).run()
        if cluster.options.slow_links_at_the_end:
            SlowLinks(cluster).run()

    def _stop_faults(self, core: "list[SimController]", others: "list[SimController]") -> None:
        self._cluster.faults.stop(others)
        self._cluster.forger.stop()
        self._cluster.is_calm = True
        self._cluster.network.heal()
        self._cluster.client_every_ms = max(CLIENT_EVERY_MS, self._cluster.options.client_every_ms)
        for controller in self._cluster.controllers:
            controller.heal()
        self._wake(core)
        for broker in self._cluster.brokers.values():
            broker.heal()
            has_lost = broker.data is not None and broker.data.has_lost_replicas()
            if broker.directories.agent.offline or has_lost:
                broker.crash(power_cut=False)
            if broker.is_up and broker.paused:
                broker.resume()
            if not broker.is_up:
                broker.boot_up()

    @staticmethod
    def _wake(controllers: "list[SimController]") -> None:
        for controller in controllers:
            if controller.is_up and controller.paused:
                controller.resume()
            if not controller.is_up:
                controller.boot_up()

    # --- the others ------------------------------------------------------------------------------------------------

    def _cut_off(self, others: "list[SimController]") -> None:
        for other in others:
            self._cluster.network.cut(self._links_of(other))
            if self._rng.random() < 0.3:
                other.crash(power_cut=True)
            else:
                self._wake([other])

    def _links_of(self, other: "SimController") -> set[tuple[str, str]]:
        names = [name for name in self._cluster.addresses() if name != other.name]
        return {(name, other.name) for name in names} | {(other.name, name) for name in names}

    def _flap(self, other: "SimController") -> None:
        """Cut off one way, the other or both, then back for a while, and so on."""
        if not self._flapping:
            return
        links = self._links_of(other)
        kind = self._rng.choice(("deaf", "mute", "both"))
        if kind != "both":
            links = {link for link in links if link[0 if kind == "mute" else 1] == other.name}
        self._cluster.network.cut(links)

        def mend() -> None:
            self._cluster.network.mend(links)
            if self._flapping:
                self._cluster.schedule(self._rng.expovariate(1 / FLAP_EVERY_MS), lambda: self._flap(other))

        self._cluster.schedule(self._rng.expovariate(1 / FLAP_EVERY_MS), mend)

    # --- what is demanded ------------------------------------------------------------------------------------------

    def _settle(self, core: "list[SimController]") -> None:
        """L1, L2, L3, L9: a leader, and everybody has everything that was acknowledged, and new writes succeed."""
        cluster = self._cluster
        deadline_ms = cluster.now_ms + SETTLE_MS
        goal = cluster.laws.clients.floor
        writes = cluster.acknowledged_writes() + NEW_WRITES
        while cluster.acknowledged_writes() < writes or not self._together(core, goal) or _without_leader(core):
            if cluster.now_ms > deadline_ms:
                without_leader = _without_leader(core)
                law = "L9 LedWherePossible" if without_leader else "L2 Convergence"
                law = "L11 Registered" if (unregistered := _unregistered(core)) else law
                text = f"not together at {goal} within {SETTLE_MS} ms of quiet"
                raise LawBroken(
                    law, f"{text}; without a leader {without_leader}, not registered {unregistered}: {self._who(core)}"
                )
            cluster.next()

    def _together(self, core: "list[SimController]", goal: Offset) -> bool:
        active = [each for each in core if each.node is not None and each.node.active.on]
        return (
            len(active) == 1
            and not _unregistered(core)
            and all(each.node is not None and each.node.state.applied >= goal for each in core)
            and not any(each.node is not None and each.node.log.damage for each in core)
            and all(
                not broker.is_up or broker.stopping or (broker.may_serve() and broker.session.position.offset >= goal)
                for broker in self._cluster.brokers.values()
            )
        )

    def _who(self, core: "list[SimController]") -> str:
        brokers = (f"{b.name} {b.session.state.name} ({b.session.reason})" for b in self._cluster.brokers.values())
        return "; ".join((*(str(describe(each)).strip() for each in core), *brokers))

    def _stay_together(self, others: "list[SimController]") -> None:
        """L4: the others come and go. Each may cost an election by an epoch that it had raised before, and one that it wins."""
        cluster = self._cluster
        elections = cluster.coverage["election"]
        self._flapping = True
        for other in others:
            cluster.network.mend(self._links_of(other))
            self._flap(other)
        until_ms = cluster.now_ms + CALM_MS
        while cluster.now_ms < until_ms:
            cluster.next()
        self._flapping = False
        more = cluster.coverage["election"] - elections
        law = "L4 OthersCostNoLeader"
        hold(more <= 2 * len(others), law, f"{len(others)} flapping nodes caused {more} elections in {CALM_MS} ms")


def _without_leader(core: "list[SimController]") -> list[str]:
    """L9: the partitions without a leader that an online member of their ISR could lead."""
    images = [each.node.state.committed for each in core if each.node is not None and each.node.active.on]
    return [
        f"{topic.name}-{number}"
        for image in images
        for topic in image.topics_by_id.values()
        for number, state in enumerate(topic.states())
        if state[LEADER] == NO_LEADER
        and any(_is_online(image.brokers[member]) for member in set(state[ISR]) - _offline(image, state))
    ]


def _offline(image: MetadataImage, state: PartitionState) -> set[NodeId]:
    return set(offline_replicas(image.brokers, state[REPLICAS], state[DIRECTORIES]))


def _unregistered(core: "list[SimController]") -> list[str]:
    """L11: the controllers that the active one does not know as they are. An old release cannot register at a newer level."""
    images = [each.node.state.committed for each in core if each.node is not None and each.node.active.on]
    return [
        each.name
        for image in images
        for each in core
        if any(feature.max_level >= image.metadata_version for feature in each.config.features)
        and image.controllers.get(each.node_id) != each.registration
    ]


def _is_online(broker: RegisterBroker) -> bool:
    return not broker.fenced and not broker.in_controlled_shutdown
