"""The data plane of one simulated broker: production's `ReplicaManager` over forgetful disks and a network that lies.

The manager decides; this file carries the effects out. Disk work runs a little later, and the power may go before it. Requests
travel between brokers, and answers come late, twice or never. The lease is looked at when a request has come, and again when its
answer leaves, as a data plane must.

    1  A producer's batch arrives at broker 101, which leads: `append`. The manager wants a flush.
    2  Broker 101 is paused for longer than its session, and wakes. The flush is done, and the manager answers the write.
    3  The lease is over: the answer that leaves is BROKER_NOT_AVAILABLE.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from broker_agent.partitions.effects import (
    AssignDirectory,
    BrokerFailed,
    DeleteLog,
    DirectoryFailed,
    DiskWork,
    Effect,
    Effects,
    FindTime,
    Flush,
    OffsetFound,
    OpenLog,
    Produced,
    ReplicaFailed,
    SendFetch,
    SendProposal,
    Stopped,
    StrayLogs,
    TrimLog,
    Wake,
    WriteHighWatermarks,
)
from broker_agent.partitions.replica_manager import ReplicaManager
from metadata_log.disk.failures import FlushFailed
from metadata_log.format.ids import Offset, Uuid
from tests.sim.data.fetching import Fetching
from tests.sim.data.proposing import Proposing
from tests.sim.data.serving import Serving
from tests.sim.data.telling import Telling
from tests.sim.data.views import ReplicaView, hosted_of
from tests.sim.laws import hold
from tests.sim.world.disk import MemoryDirectory, Observer, PowerCut

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker

Act = Callable[[ReplicaManager], Effects]

SLOW_WORK_CHANCE = 0.05
SLOW_WORK_MAX_MS = 400.0
MEMBERS_EVERY_MS = 40.0
STOP_ROUNDS_MAX = 10_000


class DataPlane:
    """One broker's partitions, over all its processes."""

    def __init__(self, broker: "SimBroker") -> None:
        self.broker = broker
        self.cluster = broker.cluster
        self.name = broker.name
        self.broker_id = broker.broker_id
        self.rng = random.Random(f"{broker.cluster.seed} {broker.name} data")
        self.disks: dict[Uuid, MemoryDirectory] = {}
        self.manager: ReplicaManager | None = None
        self.views: dict[tuple[Uuid, int], ReplicaView] = {}
        self.is_bad = False
        """Something was ordered to go wrong with a log directory."""
        self.awake_since_ms = 0.0
        self._asleep: list[tuple[Act, str]] = []
        self._timer = 0
        self._is_stopped = False
        self._look_at_members_ms = 0.0
        self.telling = Telling(self)
        self.fetching = Fetching(self)
        self.proposing = Proposing(self)
        self.serving = Serving(self)

    @property
    def boot(self) -> int:
        return self.broker.boot

    @property
    def offset(self) -> Offset:
        """How far this broker has read the metadata."""
        return self.broker.session.position.offset

    def leaders_moved_at(self) -> Offset:
        """Where the metadata gave the leaderships of this process to others, because it was silent; 0: nowhere."""
        return self.cluster.laws.brokers.led_away_at(self.broker_id, self.broker.session.broker_epoch)

    def may_serve(self) -> bool:
        return self.broker.may_serve() and not self._is_stopped

    def min_isr(self, place: tuple[Uuid, int]) -> int:
        """How many replicas must have a record before it is acknowledged, as the leader here knows it; 0: it leads no more."""
        view = self.views.get(place)
        if view is None or view.leader is None:
            return 0
        return min(view.leader.config.min_insync_replicas, len(view.leader.isr.replicas))

    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def wall_ms(self) -> int:
        return self.broker.clock.wall_ms()

    # --- life --------------------------------------------------------------------------------------------------------

    def booted(self) -> None:
        """A new process begins, on the log directories that it has."""
        for each in self.broker.directories.sound:
            if each not in self.disks:
                self.disks[each] = MemoryDirectory(f"/{self.name}-{each[0]}")
                self.disks[each].stop_reserving()
        sound = {each: self.disks[each] for each in self.broker.directories.sound}
        self._asleep.clear()
        self.views.clear()
        self._is_stopped = False
        self.awake_since_ms = self.cluster.now_ms
        self.telling.booted()
        self.serving.booted()
        options = self.cluster.options
        manager = self.manager = ReplicaManager(self.broker_id, sound, options.manager_config(), self.rng)
        self.act(lambda _: manager.start(self.now_ms()), "data plane starts")

    def ended(self, *, power_cut: bool) -> None:
        """The process has ended."""
        self.manager = None
        self.views.clear()
        self._asleep.clear()
        for each, disk in self.disks.items():
            self.disks[each] = disk.crash(self.rng) if power_cut else disk.kill()
            self.disks[each].stop_reserving()
        self.heal()

    def heal(self) -> None:
        """Nothing ordered earlier will break a log directory any more."""
        for disk in self.disks.values():
            disk.heal()
        self.is_bad = False

    def has_lost_replicas(self) -> bool:
        """True if only another process can serve all replicas again."""
        return self.manager is not None and any(each.is_lost for each in hosted_of(self.manager).values())

    def trouble(self, rng: random.Random) -> None:
        """Something goes wrong with a log directory: it is full, or a flush, a read or the power fails."""
        disk = rng.choice(list(self.disks.values()))
        kind = rng.choice(("full", "flush", "flush", "read", "cut"))
        self.is_bad = True
        self.cluster.coverage[f"data disk: {kind}"] += 1
        match kind:
            case "full":
                disk.limit_space(disk.used_bytes + rng.randint(0, 3_000))
                self.cluster.schedule(rng.uniform(100.0, 3_000.0), lambda: disk.limit_space(None))
            case "flush":
                disk.fail_next_flush()
            case "read":
                disk.fail_next_read()
            case _:
                disk.cut_power_after(rng.randint(1, 30))

    def stop(self) -> bool:
        """The process ends in order: True if all is on the disks."""
        manager = self.manager
        if manager is None:
            return False
        todo = [*manager.stop(self.now_ms())]
        self._is_stopped = True
        for _ in range(STOP_ROUNDS_MAX):
            if not todo:
                return False
            effect = todo.pop(0)
            match effect:
                case Stopped():
                    manager.close()
                    return all(disk.failed_flushes == 0 for disk in self.disks.values()) or not self.is_bad
                case OpenLog() | DeleteLog() | TrimLog() | Flush() | WriteHighWatermarks() | FindTime():
                    todo += self._run(effect, manager)
                case _:
                    continue
        raise AssertionError(f"{self.name}: the data plane does not stop")

    def resume(self) -> None:
        """Takes all that has come during a pause."""
        self.awake_since_ms = self.cluster.now_ms
        asleep, self._asleep = self._asleep, []
        for act, what in asleep:
            self.act(act, what)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def later(self, after_ms: float, act: Act, what: str) -> None:
        """Something will happen in this process, if it still lives then."""
        boot = self.boot

        def fire() -> None:
            if self.boot == boot:
                self.act(act, what)

        self.cluster.schedule(after_ms, fire)

    def act(self, act: Act, what: str) -> None:
        """One input of the manager, its effects, and a look at what has become of the replicas."""
        broker = self.broker
        if not broker.is_up or self.manager is None or self._is_stopped:
            return
        if broker.paused:
            self._asleep.append((act, what))
            return
        broker.guarded(lambda: self._step(act, what))

    def _step(self, act: Act, what: str) -> None:
        manager, boot = self.manager, self.boot
        assert manager is not None
        effects = act(manager)
        self._look()  # first: what leaves now was true when it was decided
        for effect in effects:
            if self.broker.is_up and self.boot == boot:
                self._carry_out(effect)
        if self.broker.is_up and self.boot == boot and self.manager is not None:
            self._arm()
            self.cluster.after_data_event(self, what)

    def _arm(self) -> None:
        assert self.manager is not None
        deadline_ms = self.manager.next_deadline_ms(self.now_ms())
        self._timer += 1
        if deadline_ms is None:
            return
        timer, boot = self._timer, self.boot

        def fire() -> None:
            if self.boot == boot and self._timer == timer:
                self.act(lambda manager: manager.tick(self.now_ms(), self.wall_ms()), "data timer")

        self.cluster.schedule(self.broker.clock.until(deadline_ms), fire)

    # --- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        coverage, now_ms = self.cluster.coverage, self.now_ms()
        match effect:
            case OpenLog() | DeleteLog() | TrimLog() | Flush() | WriteHighWatermarks() | FindTime():
                self._work(effect)
            case SendFetch():
                self.fetching.send(effect)
            case SendProposal():
                view = self.views.get(effect.place)
                if view is not None and view.watch is not None:
                    view.watch.proposed()
                self.proposing.send(effect)
            case Produced():
                self.serving.produced(effect)
            case Wake(fetch):
                self.later(0.0, lambda _: self.serving.poll(fetch), "wake")
            case AssignDirectory(place, directory):
                coverage["data: replica in a directory"] += 1
                self.broker.directories.agent.assign(directory, [(place.topic_id, place.partition)])
            case DirectoryFailed(directory, reason):
                self._excuse(reason)
                coverage["data: log directory failed"] += 1
                self.broker.directories.failed(directory, now_ms)
            case ReplicaFailed(_, reason):
                self._excuse(reason)
                coverage["data: replica failed"] += 1
            case BrokerFailed(reason):
                self._excuse(reason)
                coverage["data: last log directory failed"] += 1
                self.broker.crash(power_cut=False)
            case StrayLogs():
                coverage["data: stray logs"] += 1
            case Stopped() | OffsetFound():
                pass
            case _:
                assert_never(effect)

    def _excuse(self, reason: str) -> None:
        hold(self.is_bad, "R16 FailStop", f"{self.name}: a replica stops on a healthy disk: {reason}")

    def _work(self, work: DiskWork) -> None:
        """On some thread of the process, a little later."""
        slow = not self.cluster.is_calm and self.rng.random() < SLOW_WORK_CHANCE
        after_ms = self.rng.uniform(0.05, SLOW_WORK_MAX_MS if slow else self.cluster.options.flush_max_ms)
        self.later(after_ms, lambda manager: self._run(work, manager), type(work).__name__)

    def _run(self, work: DiskWork, manager: ReplicaManager) -> Effects:
        try:
            result = work.run(self.wall_ms())
        except (OSError, FlushFailed) as e:
            hold(self.is_bad, "R16 FailStop", f"{self.name}: {type(work).__name__} fails on a healthy disk: {e}")
            return manager.disk_failed(work, e, self.now_ms(), self.wall_ms())
        except PowerCut:
            raise
        except Exception as e:  # the manager judges it
            return manager.disk_failed(work, e, self.now_ms(), self.wall_ms())
        return manager.disk_done(work, result, self.now_ms(), self.wall_ms())

    # --- the observer ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self.manager is None:
            return
        laws, now_ms = self.cluster.laws.partitions, self.now_ms()
        hosted = hosted_of(self.manager)
        with Observer():
            for place, each in hosted.items():
                if each.log is None or (each.leader is None and each.follower is None):
                    self.views.pop(place, None)
                    continue
                view = self.views.get(place)
                if view is None:
                    view = self.views[place] = ReplicaView(place)
                elif view.is_as_seen(each):
                    continue
                if view.begins(each, now_ms):
                    laws.leads(self, view)
                if view.watch is not None:
                    view.watch.appended(now_ms)
                laws.looked(self, view)
                view.seen()
            if len(self.views) > len(hosted):
                for place in self.views.keys() - hosted.keys():
                    del self.views[place]
        if self.cluster.now_ms >= self._look_at_members_ms:
            self._look_at_members_ms = self.cluster.now_ms + MEMBERS_EVERY_MS
            self._look_at_members(now_ms)

    def _look_at_members(self, now_ms: int) -> None:
        laws, awake_ms = self.cluster.laws.partitions, self.cluster.now_ms - self.awake_since_ms
        for view in self.views.values():
            if view.watch is not None:
                view.watch.looked(now_ms)
                if awake_ms > self.cluster.options.lag_time_max_ms:
                    laws.lags(self, view, now_ms)
