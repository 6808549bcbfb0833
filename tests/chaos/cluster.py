"""A cluster of real daemons under faults: controllers that see each other through proxies, and brokers.

Somebody has to start again what has died, as a service manager would; here that is `supervise`. Which ends are *allowed* is
decided here, too: a daemon may end by a signal that it was sent, at any moment of its life; it may stop in order (0) if it was
asked to, and may give up (1) while its disk fails. Anything else, an assertion for example, a directory that it does not trust
any more (78) or a kill that was not ours, is a finding.

For example: a SIGTERM that meets an interpreter which is still starting finds no handler, and the process ends by the signal
(-15). That is the harness's doing, and the daemon is started again like any other.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.format.ids import parse_uuid
from metadata_log.format.records import Voters
from quorum.devcluster import layout as dev_layout
from quorum.devcluster.layout import DevNode, Layout
from quorum.runtime.disk.format_directory import InitialController, voters_record
from service_kit.process.run import EXIT_FAILURE, EXIT_OK
from tests.chaos.launch import NO_MUTANT, order
from tests.chaos.network import Network

ROOT: Final = Path(__file__).parents[2]
LOOK_S: Final = 0.05
ENDED_AT_ONCE: Final = 128 + signal.SIGTERM
"""Exit code of a daemon that got a second SIGTERM before it had stopped."""
BROKERS: Final = 4
"""How many brokers run: two that operators fence and drain, and two that always take new replicas."""
CONTROLLER_SETTINGS: Final = {
    "log.format": "json",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.auto.join.enable": "true",
    "metadata.log.segment.bytes": str(2 << 20),
    "metadata.log.max.record.bytes.between.snapshots": str(96 << 10),
    "metadata.max.retention.bytes": str(1 << 20),
}
"""Small segments and many snapshots: a controller that was away for a while finds that the log has moved on."""
BROKER_SETTINGS: Final = {
    "log.format": "json",
    "broker.session.timeout.ms": "3000",
    "metadata.fetch.max.wait.ms": "500",
    "initial.broker.registration.timeout.ms": "600000",
    "controlled.shutdown.deadline.ms": "2000",
}


class Ended(NamedTuple):
    """A daemon that has ended by itself, and not as it may."""

    name: str
    code: int
    tail: str

    def __str__(self) -> str:
        return f"{self.name} ended with {self.code}; the end of its log:\n{self.tail}"


class Daemon:
    """One node's process, started again and again."""

    def __init__(self, node: DevNode, directory: Path, mutant: str, *, has_orders: bool = True) -> None:
        """`has_orders`: the process takes orders for faults of its disk and clock."""
        self.node = node
        self._mutant = mutant
        self.has_orders = has_orders
        self.control = directory / f"{node.name}.orders"
        self.wanted = False
        """It is to run; `supervise` sees to it."""
        self.may_give_up = False
        """Its disk fails, or may have: ending with EXIT_FAILURE is right."""
        self.paused = False
        self.starts_at_s = 0.0
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: Counter[signal.Signals] = Counter()
        """How often the process was sent each signal of which it may end, in this life."""
        self._may_die = False
        """It was told to, in a disk call. Whom nobody has told the kernel has killed, as it does when memory runs out."""

    def start(self, environment: Mapping[str, str]) -> None:
        launch = ["tests.chaos.launch", self.node.role, str(self.control), self._mutant]
        module = launch if self.has_orders else ["broker_agent"]
        command = [sys.executable, "-m", *module, "--config", str(self.node.config_path)]
        with self.node.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=environment
            )
        self.starts += 1
        self._sent = Counter()
        self._may_die = self.paused = False

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> bool:
        """False if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._sent[number] += 1
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self.paused = number is signal.SIGSTOP
        return True

    def order(self, **fault: object) -> bool:
        """Tells the launcher what is to go wrong; False if nobody was there to be told."""
        if not self.runs or self.paused:
            return False
        if fault["fault"] == "kill_at":
            self._may_die = True  # before it is told: it may die before it says that it has heard
        return order(self.control, **fault)

    def reaped(self) -> Ended | None:
        """Once after each end: what was wrong with it, or None. A process that runs is not reaped."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._process = None
        if -code in self._sent or (code == EXIT_OK and signal.SIGTERM in self._sent):
            return None
        if self._sent[signal.SIGTERM] > 1 and code == ENDED_AT_ONCE:
            return None
        if self._may_die and code == -signal.SIGKILL:
            return None
        if code == EXIT_FAILURE and self.may_give_up:
            return None
        return Ended(self.node.name, code, self.tail())

    def tail(self, lines: int = 4) -> str:
        return "\n".join(self.node.log_path.read_text(errors="replace").splitlines()[-lines:])


def first_voters(layout: Layout) -> Voters:
    """The voter set that the controllers were formatted with."""
    return voters_record(
        tuple(
            InitialController(each.node_id, dev_layout.HOST, each.port, parse_uuid(each.directory_id))
            for each in layout.controllers
        )
    )


class ChaosCluster:
    """See the file's head."""

    def __init__(self, layout: Layout, network: Network, mutant: str, *, has_data: bool = False) -> None:
        self.layout = layout
        self.network = network
        self.daemons = {
            node.name: Daemon(node, layout.directory, mutant, has_orders=has_data or node.role == "controller")
            for node in layout.nodes
        }
        self.findings: list[Ended] = []
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])}

    @classmethod
    def create(
        cls,
        directory: Path,
        dice: random.Random,
        *,
        brokers: int = BROKERS,
        settings: Mapping[str, str] | None = None,
        broker_settings: Mapping[str, str] | None = None,
        mutant: str = NO_MUTANT,
    ) -> "ChaosCluster":
        """Formats three controllers and some brokers. `mutant`: a bug of the simulator's that is put into the controllers."""
        of_brokers = {**BROKER_SETTINGS, **(broker_settings or {})}
        directory.mkdir(parents=True, exist_ok=True)
        of_roles = {"controller": {**CONTROLLER_SETTINGS, **(settings or {})}, "broker": of_brokers}
        layout = dev_layout.plan(directory, 3, brokers)._replace(settings=of_roles)
        dev_layout.write(layout)
        network = Network({node.node_id: node.port for node in layout.controllers}, dice)
        for node in layout.controllers:
            with node.config_path.open("a") as config:
                config.write(f"controller.quorum.voters: {network.views(node.node_id)}\n")
        return cls(layout, network, mutant, has_data=of_brokers.get(dev_layout.DATA_PLANE) == dev_layout.PARTITIONS)

    @property
    def controllers(self) -> list[Daemon]:
        return [each for each in self.daemons.values() if each.node.role == "controller"]

    @property
    def brokers(self) -> list[Daemon]:
        return [each for each in self.daemons.values() if each.node.role == "broker"]

    @property
    def endpoints(self) -> list[str]:
        """The addresses of the controllers, for clients."""
        return [node.endpoint for node in self.layout.controllers]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Every daemon runs, and is started again when it ends, until the block is left; then none runs."""
        await self.network.start()
        for daemon in self.daemons.values():
            daemon.wanted = True
        supervisor = asyncio.create_task(self._supervise())
        try:
            yield
        finally:
            supervisor.cancel()
            for daemon in self.daemons.values():
                daemon.send(signal.SIGKILL)  # before the first await: this task may be cancelled in it
            await self.network.close()
            await asyncio.gather(supervisor, return_exceptions=True)

    async def _supervise(self) -> None:
        while True:
            for daemon in self.daemons.values():
                found = daemon.reaped()
                if found is not None:
                    self.findings.append(found)
                    daemon.wanted = False
                if daemon.wanted and not daemon.runs and time.monotonic() >= daemon.starts_at_s:
                    daemon.start(self._environment)
            await asyncio.sleep(LOOK_S)

    async def stop(self, within_s: float = 60.0) -> None:
        """All in order, brokers first; whoever does not go in time is a finding."""
        for role in (self.brokers, self.controllers):
            for daemon in role:
                daemon.wanted = False
                daemon.send(signal.SIGTERM)
            deadline_s = time.monotonic() + within_s
            while any(daemon.runs for daemon in role):
                if time.monotonic() > deadline_s:
                    late = [daemon.node.name for daemon in role if daemon.runs]
                    raise AssertionError(f"{', '.join(late)} did not stop within {within_s:g} s of SIGTERM")
                await asyncio.sleep(LOOK_S)
