"""When what breaks: crashes, power cuts, cut links, pauses, clock steps; each at its own pace, and some not at all."""

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.controllers import SimController


class Faults:
    """Schedules faults until `stop`."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._rng = random.Random(cluster.rng.random())
        self._stopped = False

    def start(self) -> None:
        options = self._cluster.options
        for every_ms, act in (
            (options.crash_every_ms, self._crash),
            (options.cut_every_ms, self._cut),
            (options.pause_every_ms, self._pause),
            (options.wall_step_every_ms, self._step_clock),
            (options.crash_every_ms * 2, self._trouble_broker),
        ):
            if every_ms > 0:
                self._again(every_ms, act)

    def stop(self) -> None:
        self._stopped = True

    def _again(self, every_ms: float, act: "object") -> None:
        def fire() -> None:
            if not self._stopped:
                act()  # type: ignore[operator]
                self._again(every_ms, act)

        self._cluster.schedule(self._rng.expovariate(1 / every_ms), fire, "fault")

    def _victim(self) -> "SimController":
        """Leaders are the interesting ones."""
        leaders = [c for c in self._cluster.controllers if c.is_up and c.core.is_leading]
        if leaders and self._rng.random() < 0.5:
            return self._rng.choice(leaders)
        return self._rng.choice(self._cluster.controllers)

    def _crash(self) -> None:
        victim, options = self._victim(), self._cluster.options
        if not victim.is_up:
            return
        if self._rng.random() < options.crash_inside_chance:
            victim.crash_soon(self._rng)
            return
        power_cut = self._rng.random() < options.power_cut_chance
        if power_cut and self._rng.random() < 0.1:
            for controller in self._cluster.controllers:
                if controller.is_up:
                    controller.crash(power_cut=True)
                    self._cluster.restart_later(controller)
            return
        victim.crash(power_cut=power_cut)
        self._cluster.restart_later(victim)

    def _cut(self) -> None:
        names = self._cluster.addresses()
        isolated = self._rng.sample(names, self._rng.randint(1, max(1, len(names) // 2)))
        others = [name for name in names if name not in isolated]
        links = {(a, b) for a in isolated for b in others}
        if self._rng.random() >= self._cluster.options.one_way_chance:
            links |= {(b, a) for a, b in links}
        if self._rng.random() < 0.3 and links:
            links = set(self._rng.sample(sorted(links), self._rng.randint(1, len(links))))
        self._cluster.network.cut(links)
        duration_ms = self._rng.uniform(0.2, 1.8) * self._cluster.options.cut_for_ms
        self._cluster.schedule(duration_ms, lambda: self._cluster.network.mend(links), "mend")

    def _pause(self) -> None:
        victim: "object" = self._victim()
        if self._cluster.brokers and self._rng.random() < 0.3:
            victim = self._rng.choice(self._cluster.brokers)
        if victim.paused or not victim.is_up:  # type: ignore[attr-defined]
            return
        self._cluster.coverage["pause"] += 1
        boot = victim.boot  # type: ignore[attr-defined]
        victim.pause()  # type: ignore[attr-defined]

        def wake() -> None:
            if victim.boot == boot and victim.paused:  # type: ignore[attr-defined]
                victim.resume()  # type: ignore[attr-defined]

        self._cluster.schedule(self._rng.uniform(0.2, 1.8) * self._cluster.options.pause_for_ms, wake, "resume")

    def _step_clock(self) -> None:
        victim = self._rng.choice(self._cluster.controllers)
        victim.step_wall_clock(self._rng.randint(-60_000, 60_000))
        self._cluster.coverage["wall clock step"] += 1

    def _trouble_broker(self) -> None:
        if not self._cluster.brokers:
            return
        broker = self._rng.choice(self._cluster.brokers)
        if not broker.is_up:
            broker.boot_up()
        elif self._rng.random() < 0.5:
            broker.stop()
        else:
            broker.crash(power_cut=self._rng.random() < 0.5)
