"""A real cluster on this machine, for trying things out, demonstrations and tests.

    cluster = DevCluster.create(Path("/tmp/c"), controllers=3, brokers=3)
    await cluster.up()
    async with cluster.client() as client:
        await client.create_topic("orders", 12, 3)
    cluster.kill("controller-1")
    await cluster.down()

The cluster runs the production daemons. The daemons outlive the process that started them; `DevCluster.load` finds them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from metadata_log.format.errors import ErrorCode
from quorum.devcluster import layout as layouts
from quorum.devcluster.layout import Conflict, DevClusterError, DevNode, Layout, NotThere
from quorum.devcluster.node_files import why_text
from quorum.devcluster.process import log_tail, pid_of, send, spawn
from quorum.devcluster.views import ASK_S, NodeView, ask_broker, is_serving, views

if TYPE_CHECKING:
    from metaquorum import AdminClient
    from service_kit.rpc.dial import Dialer

__all__ = ["Conflict", "DevCluster", "DevClusterError", "DevNode", "NodeView", "NotThere"]

UP_TIMEOUT_S: Final = 60.0
DOWN_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.05

Progress = Callable[[str], None]


class _NodeEnded(DevClusterError):
    """The process of `node` has ended while the cluster waited for it. The message holds the end of its log."""

    def __init__(self, node: DevNode) -> None:
        super().__init__(f"{node.name} has ended; the end of {node.log_path}:\n{log_tail(node)}")
        self.node = node


def _nothing_to_start(layout: Layout, left_out: Mapping[str, str]) -> str:
    if left_out:
        return "; ".join(f"{name} cannot be started: {why}" for name, why in left_out.items())
    return f"the cluster in {layout.directory} runs already; `quorumctl dev status` shows it, `quorumctl dev down` stops it"


def _silent(text: str) -> None:
    """Takes progress and shows nothing."""


class DevCluster:
    """See the file's head. Made by `create` or `load`."""

    def __init__(self, layout: Layout, progress: Progress = _silent) -> None:
        self.layout = layout
        self._progress = progress
        self._is_new = False

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        controllers: int = 3,
        brokers: int = 0,
        racks: int = 0,
        data_plane: str = "none",
        base_port: int | None = None,
        controller_settings: Mapping[str, object] | None = None,
        broker_settings: Mapping[str, object] | None = None,
        progress: Progress = _silent,
    ) -> Self:
        """Formats a new cluster in `directory`, which must be empty or absent. Starts no node.

        `data_plane`: `none`, or `partitions` for brokers that store and serve records.

        Raises:
            Conflict: the directory holds something, or ports cannot be had.
        """
        directory = directory.absolute()
        if (directory / layouts.CLUSTER_FILE).exists():
            raise Conflict(f"{directory} holds a cluster already")
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Conflict(f"{directory} is not empty, and what is in it is no cluster of ours: give another --dir")
        settings = {
            "controller": dict(controller_settings or {}),
            "broker": {layouts.DATA_PLANE: data_plane, **(broker_settings or {})},
        }
        layout = layouts.plan(directory, controllers, brokers, racks, base_port)._replace(settings=settings)
        was_there = directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        cluster = cls(layout, progress)
        cluster._is_new = True
        try:
            layouts.write(layout)
        except BaseException:
            cluster._remove(keep_directory=was_there)
            raise
        return cluster

    @classmethod
    def load(cls, directory: Path, progress: Progress = _silent) -> Self:
        """Loads the cluster in `directory`; its nodes may run or not.

        Raises:
            DevClusterError: there is none.
        """
        return cls(layouts.load(directory.absolute()), progress)

    # --- the nodes -------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[DevNode, ...]:
        return self.layout.nodes

    def node(self, name: str) -> DevNode:
        """Returns the node with this name, or with this node id.

        Raises:
            DevClusterError: there is none.
        """
        for node in self.nodes:
            if name in (node.name, str(node.node_id)):
                return node
        raise NotThere(f"there is no node {name!r}; there are {', '.join(node.name for node in self.nodes)}")

    def pid(self, name: str) -> int | None:
        """The node's pid; None if it does not run."""
        return pid_of(self.node(name))

    def running(self) -> list[DevNode]:
        """The nodes whose process runs."""
        return [node for node in self.nodes if pid_of(node) is not None]

    def client(self, timeout_s: float = 10.0) -> AdminClient:
        """A client of this cluster; to be used with `async with`."""
        from metaquorum import AdminClient

        endpoints = [node.endpoint for node in self.layout.controllers]
        return AdminClient(endpoints, self.layout.cluster_id, timeout_s)

    # --- all of them -----------------------------------------------------------------------------------------------

    async def up(self, timeout_s: float = UP_TIMEOUT_S) -> dict[str, str]:
        """Starts every stopped node, and waits until the controllers follow a leader and every broker is online.

        A problem of one node leaves this node out if the other controllers are a majority: a path that cannot be used, a data
        directory that was wiped or belongs to another node, a port that another process has, or a process that ends at once,
        perhaps because of its configuration. (A new cluster starts whole or not at all.) A missing config file is written anew.

        Returns the nodes that were left out: by name, the reason and the way back. An empty result means that all nodes are well.

        Raises:
            DevClusterError: the cluster runs already, no majority can be started, a port of a new cluster is taken, or time is
                up. The started nodes are stopped again, and the files of `create` are removed.
        """
        stopped = [node for node in self.nodes if pid_of(node) is None]
        why_not = {node: why for node, why in layouts.strays(self.layout).items() if node in stopped}
        if not self._is_new:
            why_not |= layouts.taken_ports(node for node in stopped if node not in why_not)
        for node in stopped:
            try:
                layouts.write_config(self.layout, node)
            except OSError as e:
                why_not[node] = why_text(e)
        self._check_majority(why_not)
        waiting = [node for node in stopped if node not in why_not]
        if not waiting:
            raise Conflict(_nothing_to_start(self.layout, self._left_out(why_not)))
        started: list[DevNode] = []
        try:
            if self._is_new:
                layouts.check_ports(waiting)
            for node in waiting:
                try:
                    spawn(node)
                except OSError as e:
                    if self._is_new:
                        raise
                    why_not[node] = why_text(e)
                else:
                    started.append(node)
                    self._progress(f"started {node.name} on {node.endpoint}")
            self._check_majority(why_not)
            await self._wait_for_others(timeout_s, why_not)
        except BaseException:
            await self._stop(started, 0.0)
            if self._is_new:
                self._remove()
            raise
        self._is_new = False  # it has run: a later failure removes nothing
        return self._left_out(why_not)

    async def _wait_for_others(self, timeout_s: float, why_not: dict[DevNode, str]) -> None:
        """Waits until the nodes that are not in `why_not` are healthy; adds a node to `why_not` whose process ends meanwhile."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + timeout_s
        while True:
            try:
                return await self.wait_until_healthy(max(0.0, deadline_s - now_s()), without=why_not)
            except _NodeEnded as e:
                if self._is_new or not self._has_majority({*why_not, e.node}):
                    raise
                self._progress(f"{e.node.name} has ended")
                why = f"its process, started with {e.node.config_path}, has ended"
                why_not[e.node] = f"{why}\nThe end of {e.node.log_path}:\n{log_tail(e.node)}"

    def _has_majority(self, without: Container[DevNode]) -> bool:
        controllers = self.layout.controllers
        return 2 * sum(node not in without for node in controllers) > len(controllers)

    def _check_majority(self, why_not: Mapping[DevNode, str]) -> None:
        if not self._has_majority(why_not):
            raise Conflict(
                f"{'; '.join(why_not.values())}. Without a majority of the controllers nothing was started: stop the other "
                "processes, or put the right directories there; for lost directories see `quorumctl quorum recover --help`"
            )

    def _left_out(self, why_not: Mapping[DevNode, str]) -> dict[str, str]:
        """By name, the reason, the way back, and below them the end of the log of a process that has ended."""
        running = next(node for node in self.layout.controllers if node not in why_not)
        texts = {}
        for node in (node for node in self.nodes if node in why_not):
            why, newline, log = why_not[node].partition("\n")
            texts[node.name] = f"{why}. {layouts.way_back(self.layout, node, running)}{newline}{log}"
        return texts

    async def down(self, timeout_s: float = DOWN_TIMEOUT_S) -> list[DevNode]:
        """Sends SIGTERM to the brokers, then to the controllers; sends SIGKILL to a process that still runs after `timeout_s`.

        A node counts as stopped if its files cannot be used. Returns the nodes that had to be killed.
        """
        for node in self.nodes:
            why = layouts.unusable(node)
            if why is not None and pid_of(node) is None:
                self._progress(f"{node.name} counts as stopped: {why}")
        killed = await self._stop(self.layout.brokers, timeout_s)
        return killed + await self._stop(self.layout.controllers, timeout_s)

    async def wait_until_healthy(
        self, timeout_s: float = UP_TIMEOUT_S, *, without: Container[DevNode] = frozenset()
    ) -> None:
        """Waits until every controller follows the leader and knows the high watermark, and every broker reports online.

        Each broker is asked for its own state: the controllers still report a broker online that was killed a moment ago. The
        nodes in `without` do not run and are not waited for.

        Raises:
            DevClusterError: time is up, or a node's process ended; the message holds the end of its log.
        """
        from service_kit.rpc.dial import Dialer

        said = ""
        nodes = [node for node in self.nodes if node not in without]
        try:
            async with asyncio.timeout(timeout_s), self.client(1.0) as client, Dialer() as dial:
                while (problem := await self._problem(nodes, client, dial)) is not None:
                    if problem != said:
                        said = problem
                        self._progress(f"waiting: {problem}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError as e:
            raise DevClusterError(f"not healthy after {round(timeout_s, 1):g} s: {said}") from e
        self._progress("healthy" if len(nodes) == len(self.nodes) else f"{len(nodes)} of {len(self.nodes)} nodes run")

    async def _problem(self, nodes: Sequence[DevNode], client: AdminClient, dial: Dialer) -> str | None:
        from metaquorum import AdminError

        for node in nodes:
            if pid_of(node) is None:
                raise _NodeEnded(node)
        try:
            for node in (node for node in nodes if node.role == "controller"):
                status = await client.describe_quorum(node.endpoint)
                if not status.leader.HasField("leader_id"):
                    return f"{node.name} follows no leader"
                if not status.HasField("high_watermark"):
                    return f"{node.name} does not know yet what is committed"
        except AdminError as e:
            if e.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                raise Conflict(f"another cluster answers on these ports: {e.message}") from e
            return " ".join(e.message.split())
        brokers = [node for node in nodes if node.role == "broker"]
        asked = [await ask_broker(dial(node.endpoint)) for node in brokers]
        missing = [node.name for node, status in zip(brokers, asked, strict=True) if not is_serving(status)]
        return f"{', '.join(missing)} not yet online" if missing else None

    # --- a single node ---------------------------------------------------------------------------------------------

    def start(self, name: str) -> int:
        """Starts one node and returns its pid; does not wait for the node's health.

        Raises:
            Conflict: the node runs already, or another process has its port.
            DevClusterError: its files cannot be used.
        """
        node = self.node(name)
        pid = pid_of(node)
        if pid is not None:
            raise Conflict(f"{node.name} runs already, as process {pid}")
        layouts.check_ports([node])
        why = layouts.unusable(node)
        if why is None:
            try:
                return spawn(node)
            except OSError as e:
                why = why_text(e)
        raise DevClusterError(f"{node.name} was not started: {why}. {layouts.repair(self.layout)}")

    async def wait_until_serving(self, name: str, timeout_s: float = UP_TIMEOUT_S) -> None:
        """Waits until the started node listens on its port.

        Raises:
            DevClusterError: its process has ended, or does not listen in time; the message holds the end of its log.
        """
        node = self.node(name)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if pid_of(node) is None:
                        text = f"{node.name} was not started: its process ended at once. The end of {node.log_path}:"
                        raise DevClusterError(f"{text}\n{log_tail(node)}")
                    if await layouts.listens(node):
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError as e:
            text = f"{node.name} runs, and does not listen on {node.endpoint} after {timeout_s:g} s. The end of {node.log_path}:"
            raise DevClusterError(f"{text}\n{log_tail(node)}") from e

    async def stop(self, name: str, timeout_s: float = DOWN_TIMEOUT_S) -> bool:
        """Stops one node in order (SIGTERM). False if it had to be killed after `timeout_s`."""
        return not await self._stop([self.node(name)], timeout_s)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to one node: SIGKILL, or SIGSTOP and SIGCONT to pause it.

        Raises:
            DevClusterError: it does not run.
        """
        node = self.node(name)
        if not send(node, number):
            raise DevClusterError(f"{node.name} does not run")

    async def wait_until_gone(self, name: str, timeout_s: float = DOWN_TIMEOUT_S) -> None:
        """Waits until the node's process has ended.

        Raises:
            TimeoutError: the process still runs after `timeout_s`.
        """
        node = self.node(name)
        async with asyncio.timeout(timeout_s):
            while pid_of(node) is not None:
                await asyncio.sleep(POLL_S)

    async def _stop(self, nodes: Iterable[DevNode], timeout_s: float) -> list[DevNode]:
        """Stops the nodes; returns the nodes that had to be killed."""
        stopping = [node for node in nodes if pid_of(node) is not None]
        for node in stopping:
            send(node, signal.SIGCONT)  # a paused process would never receive the SIGTERM
            send(node, signal.SIGTERM)
            self._progress(f"stopping {node.name}")
        left = await self._gone(stopping, timeout_s)
        for node in left:
            send(node, signal.SIGKILL)
            if timeout_s > 0:
                self._progress(f"{node.name} did not stop within {timeout_s:g} s and was killed")
        await self._gone(left, DOWN_TIMEOUT_S)
        for node in stopping:
            with contextlib.suppress(OSError):  # the file of a process that has ended does no harm
                node.pid_path.unlink()
        return left

    async def _gone(self, nodes: list[DevNode], timeout_s: float) -> list[DevNode]:
        """Waits for these processes to end; returns the processes that still run after `timeout_s`."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        left = nodes
        while left := [node for node in left if pid_of(node) is not None]:
            if asyncio.get_running_loop().time() >= deadline_s:
                break
            await asyncio.sleep(POLL_S)
        return left

    # --- the nodes' health ------------------------------------------------------------------------------------------

    async def views(self) -> list[NodeView]:
        """Asks every running node for its state; waits about a second for each, all at once."""
        async with self.client(ASK_S) as client:
            return await views(self.layout, client)

    def _remove(self, *, keep_directory: bool = False) -> None:
        """Removes what `create` made, and nothing else."""
        for node in self.nodes:
            shutil.rmtree(node.directory, ignore_errors=True)
        for name in (layouts.CLUSTER_FILE, f"{layouts.CLUSTER_FILE}.tmp"):
            (self.layout.directory / name).unlink(missing_ok=True)
        if not keep_directory and not any(self.layout.directory.iterdir()):
            self.layout.directory.rmdir()
