"""When what breaks: crashes, power cuts, bad disks, cut links, pauses, clocks; each at its own pace, and some not at all."""

import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from quorum.core.roles import Role
from tests.sim.membership import Membership
from tests.sim.nodes.brokers import SimBroker
from tests.sim.nodes.controllers import SimController
from tests.sim.slow_links import speed_of_slow_link
from tests.sim.world.network import Link

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

CRASH_IN_RECOVERY_CHANCE = 0.15
BROKER_ROT_CHANCE = 0.4
WALL_STEP_MAX_MS = 60_000


class Faults:
    """Schedules faults until `stop`."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._rng = random.Random(cluster.rng.random())
        self._stopped = False
        self._abandoned: Collection[SimController] = ()
        self._split_until_ms = 0.0
        self._membership = Membership(cluster, self._rng)
        self._rotten: tuple[SimController, int] | None = None
        """The controller whose log was damaged last, and its life at that time."""

    def start(self) -> None:
        options = self._cluster.options
        for every_ms, act in (
            (options.crash_every_ms, self._crash),
            (options.broker_trouble_every_ms, self._trouble_broker),
            (options.flush_failure_every_ms, self._fail_flush),
            (options.disk_full_every_ms, self._fill_disk),
            (options.read_failure_every_ms, self._fail_read),
            (options.slow_disk_every_ms, self._slow_disk),
            (options.hanging_disk_every_ms, self._hang_disk),
            (options.broker_disk_trouble_every_ms, self._trouble_broker_disk),
            (options.data_disk_trouble_every_ms, self._trouble_data_disk),
            (options.membership_every_ms, self._membership.change),
            (options.disk_replaced_every_ms, self._membership.lose),
            (options.cut_every_ms, self._cut),
            (options.split_every_ms, self._split),
            (options.broker_away_every_ms, self._send_broker_away),
            (options.slow_link_every_ms, self._narrow),
            (options.pause_every_ms, self._pause),
            (options.wall_step_every_ms, self._step_clock),
            (options.rot_every_ms, self._rot),
        ):
            if every_ms > 0:
                self._again(every_ms, act)

    def stop(self, abandoned: Collection[SimController]) -> None:
        """The `abandoned` ones are not restarted if they are down. Any other may still fall by an earlier fault of its disk."""
        self._stopped, self._abandoned = True, abandoned

    def _again(self, every_ms: float, act: Callable[[], None]) -> None:
        def fire() -> None:
            if not self._stopped:
                act()
                self._again(every_ms, act)

        self._cluster.schedule(self._rng.expovariate(1 / every_ms), fire)

    def _victim(self) -> SimController:
        """Leaders are the interesting ones."""
        leaders = [c for c in self._cluster.controllers if c.is_up and c.core.is_leading]
        if leaders and self._rng.random() < 0.5:
            return self._rng.choice(leaders)
        return self._rng.choice(self._cluster.controllers)

    # --- crashes ---------------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        victim, options = self._victim(), self._cluster.options
        power_cut = self._rng.random() < options.power_cut_chance
        if self._rng.random() < options.crash_of_all_chance:
            count = self._rng.randint(len(self._cluster.controllers) // 2 + 1, len(self._cluster.controllers))
            self._cluster.coverage["majority crashes at once"] += 1
            for controller in self._rng.sample(self._cluster.controllers, count):
                controller.crash(power_cut=power_cut)
        elif self._rng.random() < options.crash_inside_chance:
            victim.crash_soon(self._rng)
        else:
            victim.crash(power_cut=power_cut)

    def role_changed(self, controller: SimController) -> None:
        """The moments around an election are the best ones to crash in."""
        if self._stopped or not controller.is_up or controller.core.role not in (Role.CANDIDATE, Role.LEADER):
            return
        if self._rng.random() < self._cluster.options.crash_at_election_chance:
            self._cluster.coverage["crash around an election"] += 1
            controller.crash_soon(self._rng, within=8)

    def restart_later(self, controller: SimController) -> None:
        """Restarts a controller that is down; it may crash again while it recovers, and its clock may have been reset."""

        def restart() -> None:
            if controller.is_up or controller in self._abandoned:
                return
            self._cluster.coverage["restart"] += 1
            controller.disk.limit_space(None)
            if not self._stopped and self._rng.random() < CRASH_IN_RECOVERY_CHANCE:
                controller.disk.cut_power_after(self._rng.randint(1, 12))
            if self._cluster.options.wall_step_every_ms > 0:
                controller.clock.step_wall(-self._rng.randint(0, WALL_STEP_MAX_MS))
            controller.boot_up()

        if controller not in self._abandoned:
            self._cluster.schedule(self._rng.uniform(0.2, 1.8) * self._cluster.options.restart_after_ms, restart)

    # --- disks -----------------------------------------------------------------------------------------------------

    def _fail_flush(self) -> None:
        victim = self._victim()
        if victim.is_up:
            self._cluster.coverage["flush failure"] += 1
            victim.disk_is_bad = True
            # Of a directory more often than by chance: what it leaves in the page cache no later flush makes durable.
            directories = victim.disk.path_text, victim.metadata.path_text
            victim.disk.fail_next_flush(self._rng.choice((None, *directories)))

    def _fill_disk(self) -> None:
        victim = self._victim()
        if victim.is_up:
            self._cluster.coverage["disk full"] += 1
            victim.disk_is_bad = True
            victim.disk.limit_space(victim.disk.used_bytes + self._rng.randint(0, 2_000))

    def _fail_read(self) -> None:
        victim = self._victim()
        if victim.is_up:
            self._cluster.coverage["read failure"] += 1
            victim.disk_is_bad = True
            victim.disk.fail_next_read()

    def _rot(self) -> None:
        """A log loses a bit, a sector, or its durable end. One controller at a time, until it has that again."""
        if self._rotten is not None and not self._rotten[0].is_whole_since(self._rotten[1]):
            return
        victim, kind = self._victim(), self._rng.choice(("bit flip", "bit flip", "bad sector", "durable end lost"))
        while_up = kind != "durable end lost" and self._rng.random() < 0.3
        if not while_up:
            victim.crash(power_cut=self._rng.random() < 0.5)
        if kind == "durable end lost":
            done = victim.lose_end(self._rng)
        else:
            done = (victim.is_up or not while_up) and victim.rot(self._rng, sector=kind == "bad sector")
        if done:
            self._rotten = victim, victim.boot
            self._cluster.coverage[kind] += 1

    def _slow_disk(self) -> None:
        """For a while every flush takes long; none fails."""
        self._cluster.coverage["slow disk"] += 1
        self._victim().disk_slow_until_ms = self._cluster.now_ms + self._rng.uniform(200.0, 4_000.0)

    def _hang_disk(self) -> None:
        """For longer than a leader may wait, no flush of the log returns; none fails."""
        self._cluster.coverage["hanging disk"] += 1
        self._victim().disk_hangs_until_ms = self._cluster.now_ms + self._rng.uniform(2_000.0, 12_000.0)

    def _trouble_broker_disk(self) -> None:
        """A broker's store may be lost: it is told so by whatever fails, and begins anew."""
        if not self._cluster.brokers:
            return
        broker = self._rng.choice(list(self._cluster.brokers.values()))
        broker.disk_is_bad = True
        kind = self._rng.choice(("full", "flush", "read", "cut"))
        self._cluster.coverage[f"broker disk: {kind}"] += 1
        if kind == "full":
            broker.disk.limit_space(broker.disk.used_bytes + self._rng.randint(0, 2_000))
        elif kind == "flush":
            broker.disk.fail_next_flush()
        elif kind == "read":
            broker.disk.fail_next_read()
        else:
            broker.disk.cut_power_after(self._rng.randint(1, 30))

    def _trouble_data_disk(self) -> None:
        """A log directory fails, or is full for a while."""
        broker = self._rng.choice(list(self._cluster.brokers.values()))
        if broker.is_up and broker.data is not None:
            broker.data.trouble(self._rng)

    def restart_broker_later(self, broker: SimBroker) -> None:
        """Restarts a broker that its disk has stopped; while it is down its files may rot, or be lost."""

        def restart() -> None:
            if broker.is_up:
                return
            if self._cluster.options.broker_disk_trouble_every_ms > 0 and self._rng.random() < BROKER_ROT_CHANCE:
                broker.rot(self._rng)
            broker.boot_up()

        self._cluster.schedule(self._rng.uniform(20.0, 2_000.0), restart)

    # --- network, processes, clocks --------------------------------------------------------------------------------

    def _cut(self) -> None:
        names = self._cluster.addresses()
        isolated = self._rng.sample(names, self._rng.randint(1, max(1, len(names) // 2)))
        if self._rng.random() < 0.3:
            isolated = [self._victim().name]
        others = [name for name in names if name not in isolated]
        links = {(a, b) for a in isolated for b in others}
        if self._rng.random() >= self._cluster.options.one_way_chance:
            links |= {(b, a) for a, b in links}
        else:
            self._cluster.coverage["cut one way"] += 1
        if self._rng.random() < 0.3 and links:
            links = set(self._rng.sample(sorted(links), self._rng.randint(1, len(links))))
        self._cut_for(links, self._rng.uniform(0.2, 1.8) * self._cluster.options.cut_for_ms)

    def _cut_for(self, links: set[Link], duration_ms: float) -> None:
        self._cluster.network.cut(links)

        def mend() -> None:
            if not self._stopped:
                self._cluster.network.mend(links)

        self._cluster.schedule(duration_ms, mend)

    def _split(self) -> None:
        """Who is deposed behind such a cut is not told so, and brokers and clients still come to it. Perhaps it sleeps, too.

        One at a time: with the next leader behind a cut, too, nobody is deposed.
        """
        if self._split_until_ms > self._cluster.now_ms:
            return
        leaders = [each for each in self._cluster.controllers if each.is_up and each.core.is_leading]
        alone = self._rng.choice(leaders or self._cluster.controllers)
        others = [each.name for each in self._cluster.controllers if each is not alone]
        self._cluster.coverage["controllers cut off from each other"] += 1
        links = {(alone.name, other) for other in others} | {(other, alone.name) for other in others}
        duration_ms = self._rng.uniform(500.0, 5_000.0)
        self._split_until_ms = self._cluster.now_ms + duration_ms
        self._cut_for(links, duration_ms)
        if self._cluster.options.pause_every_ms > 0 and self._rng.random() < 0.5:
            self._put_to_sleep(alone)

    def _send_broker_away(self) -> None:
        """It runs, and nobody hears of it: its lease must be over before its session is. Often it is back just then."""
        broker = self._rng.choice(list(self._cluster.brokers.values()))
        self._cluster.coverage["broker out of reach"] += 1
        controllers = [each.name for each in self._cluster.controllers]
        links = {(broker.name, each) for each in controllers} | {(each, broker.name) for each in controllers}
        sessions = self._rng.choice((self._rng.uniform(0.5, 2.5), self._rng.uniform(0.9, 1.2)))
        self._cut_for(links, sessions * self._cluster.options.session_timeout_ms)

    def _narrow(self) -> None:
        """Log and snapshots arrive slowly for a while: pieces are too late, and arrive all the same."""
        options, rng = self._cluster.options, self._rng
        name, timeout_ms = self._victim().name, options.node_config().raft.request_timeout_ms
        if self._cluster.brokers and rng.random() < 0.5:
            name = rng.choice(list(self._cluster.brokers.values())).name
            timeout_ms = options.session_config().request_timeout_ms
        self._cluster.coverage["slow link"] += 1
        speed = rng.uniform(0.5, 10.0) * speed_of_slow_link(options.piece_bytes_min, timeout_ms)
        self._cluster.network.narrow(name, speed)
        self._cluster.schedule(rng.uniform(500.0, 5_000.0), self._cluster.network.widen)

    def _pause(self) -> None:
        victim: SimController | SimBroker = self._victim()
        if self._cluster.brokers and self._rng.random() < 0.3:
            victim = self._rng.choice(list(self._cluster.brokers.values()))
        self._put_to_sleep(victim)

    def _put_to_sleep(self, victim: SimController | SimBroker) -> None:
        if victim.paused or not victim.is_up:
            return
        self._cluster.coverage["pause"] += 1
        boot = victim.boot
        victim.pause()

        def wake() -> None:
            if victim.boot == boot and victim.paused and victim.is_up:
                victim.resume()

        self._cluster.schedule(self._rng.uniform(0.2, 1.8) * self._cluster.options.pause_for_ms, wake)

    def _step_clock(self) -> None:
        self._rng.choice(self._cluster.controllers).clock.step_wall(
            self._rng.randint(-WALL_STEP_MAX_MS, WALL_STEP_MAX_MS)
        )
        self._cluster.coverage["wall clock step"] += 1

    def _trouble_broker(self) -> None:
        if not self._cluster.brokers:
            return
        broker = self._rng.choice(list(self._cluster.brokers.values()))
        if not broker.is_up:
            broker.boot_up()
        elif self._rng.random() < 0.5:
            broker.stop()
        else:
            broker.crash(power_cut=self._rng.random() < 0.5)
            if self._rng.random() < 0.7:
                # Soon enough to meet what its earlier life had sent.
                self._cluster.schedule(self._rng.uniform(1.0, 300.0), broker.boot_up)
