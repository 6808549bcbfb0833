"""The clocks of the machine and the way to the other controllers, as a node's event loop needs them.

Both are Protocols, so that a test runs three controllers in one process, or with slow peers. The real ones are
`service_kit.process.clock.RealClock` and `quorum.wire.peers.peers.Peers`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import PeerRequest, PeerResponse


class Clock(Protocol):
    """The clocks of the machine.

    now_ms      never goes back, and counts the time that the machine was suspended
    elapsed_us  for durations: finer than `now_ms`, and counted from another moment
    cpu_us      CPU time of the calling thread
    wall_ms     the time of day
    """

    def now_ms(self) -> int: ...

    def elapsed_us(self) -> int: ...

    def cpu_us(self) -> int: ...

    def wall_ms(self) -> int: ...


class Peers(Protocol):
    """The way to the other controllers (`quorum.wire.peers.peers` is the real one)."""

    def send(
        self,
        destination: NodeId,
        request: PeerRequest,
        timeout_ms: int,
        on_response: Callable[[PeerResponse], None],
        on_failure: Callable[[Failure], None],
    ) -> None: ...

    def set_endpoints(self, endpoints: Mapping[NodeId, Endpoint], last_named: Mapping[NodeId, Endpoint]) -> None:
        """Sets the addresses of the controllers. `last_named`: earlier ones, for controllers without a newer address."""
        ...

    def on_peer_refused(self, listener: Callable[[NodeId], None]) -> None:
        """Calls `listener` when the stream to a peer broke and the peer's host refused a new connection."""
        ...

    async def close(self) -> None: ...
