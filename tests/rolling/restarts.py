"""The runbook's rolling restart (`deploy/runbook.md`), step by step, with the commands that an operator types.

each controller    `quorum can-restart --node-id ID` until exit code 0; SIGTERM; start. The leader is the last one
each broker        `brokers list --expect-online` and `health --exit-when-healthy`; SIGTERM; start
after the last     `health --exit-when-healthy`. The active controller balances the leaders by itself
"""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from quorum_rpc.v1 import admin_pb2

from metaquorum import AdminClient
from quorum.devcluster.cluster import DevCluster, DevNode
from quorum.devcluster.process import exit_code

ASK_AGAIN_S: Final = 0.5
STEP_S: Final = 60.0
"""How long one condition of the runbook may take."""
STOP_S: Final = 30.0
UNBALANCED_PERCENT: Final = 10
"""`leader.imbalance.per.broker.percentage`, as it is by default."""


class StepFailed(Exception):
    """A step of the runbook did not come to its end. The message has the command, and its last words."""


class Balance(NamedTuple):
    """One broker: the partitions that prefer it, those of them that others lead, and all that it leads."""

    preferring: int
    led_by_others: int
    led: int

    @property
    def is_balanced(self) -> bool:
        return 100 * self.led_by_others <= UNBALANCED_PERCENT * self.preferring


def balance_of(partitions: Iterable[admin_pb2.PartitionDescription]) -> dict[int, Balance]:
    """By broker id, Kafka's measure of the balance of leaders."""
    preferring: Counter[int] = Counter()
    away: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for each in partitions:
        preferring[each.replicas[0]] += 1
        away[each.replicas[0]] += each.leader_id != each.replicas[0]
        led[each.leader_id] += 1
    return {broker: Balance(preferring[broker], away[broker], led[broker]) for broker in sorted({*preferring, *led})}


class Restarts:
    """One rolling restart of one cluster. `begin(name)` is called as each step begins."""

    def __init__(self, cluster: DevCluster, client: AdminClient, begin: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._client = client
        self._begin = begin

    async def controllers(self) -> None:
        """Restarts the controllers, the leader last."""
        target = await self._client.leader()
        for node in sorted(self._cluster.layout.controllers, key=lambda node: node.endpoint == target):
            self._begin(node.name)
            await self._until_zero("quorum", "can-restart", "--node-id", f"{node.node_id}")
            await self._stop(node)
            await self._start(node)

    async def brokers(self) -> None:
        """Restarts the brokers; returns when all replicas are in sync again."""
        for node in self._cluster.layout.brokers:
            self._begin(f"{node.name} stops")
            await self._stop(node)
            self._begin(f"{node.name} returns")
            await self._start(node)
            await self._until_zero("brokers", "list", "--expect-online")
            await self._until_zero("health", "--exit-when-healthy", "--timeout", f"{STEP_S:g}")

    async def balanced(self, topic: str, within_s: float) -> float:
        """Waits until the leaders are balanced, without a command. Returns the seconds. Raises StepFailed."""
        began_s = time.monotonic()
        while True:
            found = balance_of((await self._client.describe_topic(topic)).partitions)
            if all(each.is_balanced for each in found.values()):
                return time.monotonic() - began_s
            if time.monotonic() > began_s + within_s:
                raise StepFailed(f"the leaders are not balanced within {within_s:g} s: {found}")
            await asyncio.sleep(ASK_AGAIN_S)

    async def _stop(self, node: DevNode) -> None:
        """SIGTERM, and the end of the process with exit code 0. Raises StepFailed."""
        pid = self._cluster.pid(node.name)
        if pid is None:
            raise StepFailed(f"{node.name} does not run: its process has ended by itself")
        self._cluster.kill(node.name, signal.SIGTERM)
        try:
            await self._cluster.wait_until_gone(node.name, STOP_S)
        except TimeoutError as e:
            raise StepFailed(f"{node.name} has not ended within {STOP_S:g} s of SIGTERM") from e
        code = exit_code(pid)
        if code != 0:
            raise StepFailed(f"{node.name} ended with exit code {code} after SIGTERM, and not with 0")

    async def _start(self, node: DevNode) -> None:
        """A new process that listens."""
        self._cluster.start(node.name)
        await self._cluster.wait_until_serving(node.name, STEP_S)

    async def _until_zero(self, *words: str) -> None:
        """Calls `quorumctl` until it ends with 0, as an operator does. Raises StepFailed after a minute."""
        command = (sys.executable, "-m", "quorum.cli.main", "-C", self._cluster.layout.bootstrap, *words)
        deadline_s = time.monotonic() + STEP_S
        while True:
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said, _ = await process.communicate()
            if process.returncode == 0:
                return
            if time.monotonic() > deadline_s:
                text = said.decode(errors="replace").strip()
                raise StepFailed(f"quorumctl {' '.join(words)} ends with {process.returncode}:\n{text}")
            await asyncio.sleep(ASK_AGAIN_S)
