"""The network between controllers: a TCP proxy in front of each, for each of the others, that does what the matrix says.

    controller 1 --connects--> proxy 1->2 --connects--> controller 2
                 bytes 1->2 ------------->
                 <------------- bytes 2->1

Each controller is configured to reach the others by its own proxies. The faults of bytes are told by *direction*: those
from 1 to 2 are on two connections, as requests on the one that 1 made and as answers on the one that 2 made.

A proxy behind which nobody listens must refuse, as the daemon's own closed port would, because the fast failover of
production code lives on that. So when the far side has gone, the proxy closes its own port *before* it closes the near side,
and opens it again when the daemon is back.
"""

import asyncio
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 << 10
LOOK_AGAIN_S: Final = 0.05
_PORTS: Final = range(20_000, 32_000)
"""Below the range that the kernel gives to outgoing connections, so that a port that is closed for a while stays ours."""


def free_port(dice: random.Random, taken: Iterable[int]) -> int:
    """A port that nobody listens on."""
    refused = set(taken)
    while True:
        port = dice.choice(_PORTS)
        if port in refused:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                probe.listen(1)
            except OSError:
                continue
            return port


@dataclass
class Direction:
    """The faults of bytes from one node to another."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: they are held, and come when it is set again."""
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    """0: as fast as it goes."""

    def __post_init__(self) -> None:
        self.open.set()

    async def pass_on(self, count: int) -> None:
        """Returns when `count` bytes may go on."""
        await self.open.wait()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.bytes_per_s:
            await asyncio.sleep(count / self.bytes_per_s)
        await self.open.wait()


class Network:
    """All directions, and the proxies. `start` before use, `close` after."""

    def __init__(self, ports: dict[int, int], dice: random.Random) -> None:
        """`ports`: node id -> where it listens."""
        self.pairs = [(near, far) for near in ports for far in ports if near != far]
        self.directions = {pair: Direction() for pair in self.pairs}
        taken = list(ports.values())
        self.links: dict[tuple[int, int], Link] = {}
        for near, far in self.pairs:
            port = free_port(dice, taken)
            taken.append(port)
            forth, back = self.directions[near, far], self.directions[far, near]
            self.links[near, far] = Link(port, ports[far], forth, back)

    async def start(self) -> None:
        for link in self.links.values():
            await link.start()

    async def close(self) -> None:
        self.heal()
        ending = [task for link in self.links.values() for task in link.let_go()]
        await asyncio.gather(*ending, return_exceptions=True)

    def views(self, node_id: int) -> list[str]:
        """`controller.quorum.voters` for this node."""
        return [f"{far}@{HOST}:{link.port}" for (near, far), link in self.links.items() if near == node_id]

    def heal(self) -> None:
        """Everything flows, at full speed; connections that were made dead stay dead."""
        for direction in self.directions.values():
            direction.open.set()
            direction.delay_s = direction.bytes_per_s = 0.0
        for link in self.links.values():
            link.refuses = link.swallows = False


class Link:
    """One proxy: listens at `port` for one node, and connects on to `target`, another's port."""

    def __init__(self, port: int, target: int, forth: Direction, back: Direction) -> None:
        self.port = port
        self.refuses = False
        """Nobody gets a connection, and those that there are break: a firewall that rejects."""
        self.swallows = False
        """Connections come about, and nothing arrives on them, then or later: half open."""
        self._target = target
        self._forth = forth
        self._back = back
        self._server: asyncio.Server | None = None
        self._near: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        await asyncio.gather(*self.let_go(), return_exceptions=True)

    def let_go(self) -> list[asyncio.Task[None]]:
        """Closes all that is open, at once, for whoever waits may be cancelled; gives the tasks that are about to end."""
        self._is_closed = True
        self._stop_listening()
        ending = [*self._tasks, *([] if self._keeper is None else [self._keeper])]
        for task in ending:
            task.cancel()
        return ending

    async def _keep(self) -> None:
        """Listens while the target does."""
        while True:
            if self.refuses:
                self._stop_listening()
                self._break_all()
            elif self._server is None and await self._target_listens():
                # In two steps: cancelled within one that serves at once, it would be open, and nobody's.
                self._server = await asyncio.start_server(
                    self._accepted, HOST, self.port, reuse_address=True, start_serving=False
                )
                await self._server.start_serving()
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _target_listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self._target)
        except OSError:
            return False
        writer.close()
        return True

    def _stop_listening(self) -> None:
        """Accepts nothing from now on; the port is closed in the loop's next round.

        A server that is closed one round after it has accepted a connection loses it: asyncio (3.11) makes the transport in a
        task of its own, which finds the server closed, and leaves the socket to the garbage collector, which complains.
        """
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener)
        loop.call_soon(self._server.close)  # behind the tasks of what was accepted
        self._server = None

    def _break_all(self) -> None:
        for writer in self._near:
            writer.transport.abort()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task of our own: asyncio's would complain aloud of being cancelled."""
        if self._is_closed:  # asyncio had begun to accept it before the port was closed
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))

        def ended(task: asyncio.Task[None]) -> None:
            """Not in the task itself: one that is cancelled before its first step does nothing at all."""
            self._tasks.discard(task)
            self._near.discard(writer)
            writer.transport.abort()

        self._tasks.add(task)
        self._near.add(writer)
        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        except OSError:
            self._stop_listening()
            return
        dead = asyncio.Event()
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, self._forth, dead)),
            asyncio.create_task(self._pump(far_reader, writer, self._back, dead)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()  # before the first await: this task may be cancelled in it
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        if not await self._target_listens():
            self._stop_listening()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction, dead: asyncio.Event
    ) -> None:
        """`dead`: one byte of this connection was swallowed, in either direction; from then on all are, in both."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                if self.swallows:
                    dead.set()
                if dead.is_set():
                    continue
                await direction.pass_on(len(data))
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the connection broke, which is an end like any other
        await direction.open.wait()  # nor does the news of an end get through a cut
