"""The end of a simulated broker's process: a watcher that reports it, a data plane that lives on, and a fetch that is late.

The watcher follows production's rules (`broker_agent.death`): it reads the noted incarnations while no process holds the broker's
directory and no data plane holds `serving.lock`. All else is bad luck: a watcher dies with its machine or by itself, hangs and
reports seconds later, reports twice, or repeats a report about older processes.

    1  The process of broker 101 is killed. Its data plane is another process, and has a lease for 400 ms more.
    2  The watcher finds `serving.lock` held, and tries again until the data plane has stopped.
    3  The report is on its way for 2 s. Broker 101 has registered again meanwhile: the report changes nothing.
"""

import random
from typing import TYPE_CHECKING

from broker_agent.own_disk.process_notes import forget_incarnations, read_incarnations
from metadata_log.format.ids import Offset, Uuid
from quorum.controller.protocol.commands import ReportDeath, ReportDeathReply
from quorum.runtime.protocol.requests import MetadataFetch
from quorum.runtime.protocol.world import Answer, BrokerFetch, Submission

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker

LIVES_ON_CHANCE = 0.6
"""How often the data plane is a process that outlives the agent."""
WATCHER_DIES_CHANCE = 0.2
LATE_CHANCE = 0.3
"""How often a watcher hangs, a report is on its way for long, or a fetch of the dead process still is."""
LATE_MAX_MS = 4_000.0
TWICE_CHANCE = 0.4
OLDER_CHANCE = 0.3
SOON_MS = 50.0
KILL_AGAIN_MS = 100.0
TRY_AGAIN_MS = 20.0
REPORT_TIMEOUT_MS = 1_000


class DataPlane:
    """A data plane whose agent has died: it serves until its last lease is over, by the metadata below `offset`."""

    def __init__(self, broker_epoch: int, offset: Offset, until_ms: float) -> None:
        self.broker_epoch = broker_epoch
        self.offset = offset
        self.until_ms = until_ms


class Dying:
    """The end of the processes of one broker."""

    def __init__(self, broker: "SimBroker") -> None:
        self._broker = broker
        self._rng = random.Random(f"{broker.cluster.seed} {broker.name} dying")
        self._older: list[Uuid] = []
        self.data_plane: DataPlane | None = None
        self.last_fetch: MetadataFetch | None = None

    def serves(self) -> bool:
        """True if a data plane serves whose agent has died: it holds `serving.lock`."""
        return self.data_plane is not None and self._broker.cluster.now_ms < self.data_plane.until_ms

    def holds_serving_lock(self) -> bool:
        """True if the watcher cannot get `serving.lock`."""
        return self.serves()

    def booted(self) -> None:
        """A new process begins."""
        self.last_fetch = None
        mean_ms = self._broker.cluster.options.agent_kill_every_ms
        if mean_ms > 0.0:
            self._kill_after(self._rng.expovariate(1 / mean_ms), self._broker.boot)

    def opens_directory(self) -> None:
        """Beside a data plane that still serves, the new process names no predecessor."""
        if self.serves():
            self._broker.cluster.coverage["restart beside a data plane that serves"] += 1
            forget_incarnations(self._broker.disk)

    def _kill_after(self, after_ms: float, boot: int) -> None:
        """kill -9 of the agent, as soon as it serves."""
        broker, cluster = self._broker, self._broker.cluster

        def kill() -> None:
            if cluster.is_calm or not broker.is_up or broker.boot != boot:
                return
            if broker.may_serve():
                cluster.coverage["agent killed while it serves"] += 1
                broker.crash(power_cut=False)
            else:
                self._kill_after(KILL_AGAIN_MS, boot)

        cluster.schedule(after_ms, kill)

    def ended(self, *, power_cut: bool) -> None:
        """The process has exited."""
        cluster, broker = self._broker.cluster, self._broker
        if cluster.options.watcher_chance == 0.0 or cluster.is_calm:
            return
        if not power_cut and self._rng.random() < LIVES_ON_CHANCE:
            self._live_on()
        fetch = self.last_fetch
        if fetch is not None and self._rng.random() < LATE_CHANCE:
            self._arrive_late(fetch, LATE_MAX_MS)
        if (
            power_cut
            or self._rng.random() < WATCHER_DIES_CHANCE
            or self._rng.random() >= cluster.options.watcher_chance
        ):
            return
        boot = broker.boot
        cluster.schedule(self._delay_ms(), lambda: self._watch(boot, fetch))

    def _delay_ms(self) -> float:
        return self._rng.uniform(0.0, LATE_MAX_MS) if self._rng.random() < LATE_CHANCE else self._rng.uniform(0.1, 20.0)

    def _live_on(self) -> None:
        session, cluster = self._broker.session, self._broker.cluster
        if self._broker.data is not None:
            return  # the partitions are in the agent's process
        if session.broker_epoch is not None and self._broker.session.may_serve(self._broker.clock.now_ms()):
            until_ms = cluster.now_ms + self._broker.clock.until(session.lease_until_ms)
            self.data_plane = DataPlane(session.broker_epoch, session.position.offset, until_ms)
            cluster.coverage["data plane outlives its agent"] += 1

    def _arrive_late(self, fetch: MetadataFetch, within_ms: float) -> None:
        """The last fetch was in some queue of the network: it arrives at all controllers, and nobody waits for an answer."""
        cluster = self._broker.cluster

        def arrive() -> None:
            cluster.coverage["late fetch of a dead process"] += 1
            for controller in cluster.controllers:
                controller.ask(lambda reply_to, _: BrokerFetch(fetch, reply_to), lambda answer: None, "late fetch")

        cluster.schedule(self._rng.uniform(0.0, within_ms), arrive)

    def _watch(self, boot: int, fetch: MetadataFetch | None) -> None:
        """Proves the death, and reports it; or tries again while the data plane serves."""
        broker, cluster = self._broker, self._broker.cluster
        if broker.is_up or broker.boot != boot:
            return  # the next process has the directory
        if self.holds_serving_lock():
            cluster.coverage["no report while a data plane serves"] += 1
            cluster.schedule(TRY_AGAIN_MS, lambda: self._watch(boot, fetch))
            return
        incarnations = read_incarnations(broker.disk)
        for _ in range(2 if self._rng.random() < TWICE_CHANCE else 1):
            cluster.schedule(self._delay_ms(), lambda: self._report(incarnations, fetch))
        if self._older and self._rng.random() < OLDER_CHANCE:
            older = tuple(self._rng.sample(self._older, 1))
            cluster.schedule(self._delay_ms(), lambda: self._report(older, None))
        self._older.extend(incarnations)

    def _report(self, incarnations: tuple[Uuid, ...], fetch: MetadataFetch | None) -> None:
        """Asks every controller: one of them may lead. `fetch`: the last one of the dead process, which may arrive just after."""
        cluster, name = self._broker.cluster, self._broker.name
        if not incarnations or cluster.is_calm:
            return
        cluster.laws.deaths.reported(self._broker.broker_id, incarnations)
        command = ReportDeath(self._broker.broker_id, incarnations)

        def answered(answer: Answer) -> None:
            if isinstance(answer, ReportDeathReply):
                cluster.coverage["death reported"] += 1
                if fetch is not None:
                    self._arrive_late(fetch, SOON_MS)

        for controller in cluster.controllers:
            cluster.network.carry(
                name,
                controller.name,
                lambda controller=controller: controller.ask(  # type: ignore[misc]
                    lambda reply_to, now_ms: Submission(command, reply_to, now_ms + REPORT_TIMEOUT_MS),
                    answered,
                    f"ReportDeath {name}",
                ),
            )
