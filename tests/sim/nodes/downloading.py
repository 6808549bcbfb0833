"""A simulated broker's download of a snapshot: what `broker_agent.client` does over gRPC, over the simulator's network."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_agent.session.lifecycle import Applied, Input, SnapshotFailed
from metadata_log.format.errors import LogFormatError
from metadata_log.format.fetch_size import FetchSize
from metadata_log.format.ids import OffsetAndEpoch
from snapshots.store import SnapshotNotFound
from tests.sim.nodes.controllers import SimController

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker

PATIENCE_MS = 3_000.0
"""After so long without a piece it is given up."""


class Download:
    """Piece by piece, from whoever was asked last; whatever breaks it off, the session asks anew."""

    def __init__(
        self, broker: "SimBroker", source: SimController, snapshot: OffsetAndEpoch, report: Callable[[Input], None]
    ) -> None:
        config = broker.cluster.options.session_config()
        self._broker, self._source, self._snapshot, self._report = broker, source, snapshot, report
        self._network, self._cluster, self._boot = broker.cluster.network, broker.cluster, broker.boot
        self._timeout_ms = config.request_timeout_ms
        self._pieces = FetchSize(config.piece_bytes_min, config.max_bytes, config.request_timeout_ms)
        self._position = self._asks = 0
        self._over = False
        self._came_ms = self._cluster.now_ms

    @property
    def _is_wanted(self) -> bool:
        return not self._over and self._broker.is_up and self._broker.boot == self._boot

    def ask(self) -> None:
        """Asks for the next piece, or once more for one that is too late."""
        self._asks += 1
        number, position, max_bytes, asked_ms = self._asks, self._position, self._pieces.bytes, self._cluster.now_ms

        def late() -> None:
            if not self._is_wanted or number != self._asks:
                return
            self._pieces.start_small()
            if self._cluster.now_ms - self._came_ms > PATIENCE_MS:
                self._finish(SnapshotFailed("no piece within the time"))
            else:
                self.ask()

        def take(size: int, data: bytes) -> None:
            if self._is_wanted and number == self._asks:
                self._came_ms = self._cluster.now_ms
                self._pieces.came(len(data), round(asked_ms), round(self._cluster.now_ms))
                self._broker.guarded(lambda: self._take(size, data))

        def serve() -> None:
            node = self._source.node
            if node is None or self._source.paused:
                return
            try:
                size, data = node.snapshotter.store.read_chunk(self._snapshot, position, max_bytes)
            except (SnapshotNotFound, OSError) as e:
                reason = str(e)
                self._network.carry(self._source.name, self._broker.name, lambda: self._finish(SnapshotFailed(reason)))
            else:
                forger, name, metadata = self._cluster.forger, self._broker.name, self._source.metadata
                piece = forger.piece(name, metadata, self._snapshot, position, size, data)
                self._network.carry(self._source.name, name, lambda: take(*piece), content_bytes=len(data))

        self._network.carry(self._broker.name, self._source.name, serve)
        self._cluster.schedule(self._timeout_ms, late)

    def _take(self, size: int, data: bytes) -> None:
        store = self._broker.store
        if not data:
            self._finish(SnapshotFailed("nothing comes next, and it is not whole"))
            return
        store.write_part(self._snapshot, self._position, data)
        self._position += len(data)
        if self._position < size:
            self.ask()
            return
        try:
            store.install(self._snapshot)
        except LogFormatError as e:
            self._finish(SnapshotFailed(str(e)))
            return
        self._cluster.coverage["snapshot loaded by a broker"] += 1
        self._finish(Applied(store.position))

    def _finish(self, happened: Input) -> None:
        if not self._is_wanted:
            return
        self._over = True
        broken_off = isinstance(happened, SnapshotFailed) and self._position > 0
        self._cluster.coverage["snapshot download broken off"] += broken_off
        self._report(happened)
