"""The laws of snapshots and applied records (R13, S1 to S6).

A node's image at an offset equals the history's image at this offset, whatever the node built the image from: its own
decisions, records, its own snapshot, or another node's. A log may begin only at the end of a snapshot on the same disk.

Example: controllers 1 and 3 both write a snapshot ending at 200. One byte differs. The law S3 Deterministic is broken.
"""

import hashlib
from typing import TYPE_CHECKING

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape
from metadata_log.image.metadata_image import Provenance
from metadata_log.image.replay import Replay
from snapshots.reader import read_snapshot
from tests.sim.history import History
from tests.sim.laws.broken import LawBroken, hold

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import SimController


class SnapshotLaws:
    """Checks a controller after each of its events."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._applied: dict[tuple[NodeId, int], Offset] = {}
        self._snapshots: dict[OffsetAndEpoch, bytes] = {}
        self._newest: dict[tuple[NodeId, int], OffsetAndEpoch] = {}
        self._seen: dict[NodeId, LogShape] = {}

    def observe(self, controller: "SimController") -> None:
        self._check_applied(controller)
        self._check_snapshots(controller)

    def _check_applied(self, controller: "SimController") -> None:
        node = controller.node
        assert node is not None
        key, applied, image = (controller.node_id, controller.boot), node.state.applied, node.state.committed
        before = self._applied.get(key, 0)
        if applied == before:
            return
        law, who, skips = "R13 StateMachineSafety", f"c{key[0]}", self._history.skips
        stands = node.state.poison is not None and skips.may_stand_at(node.state.poison.batch, node.commit_target)
        hold(node.state.stopped is None or stands, "M7 EveryRecordFits", f"{who}: {node.state.stopped}")
        is_anew = applied < before and skips.may_go_back(before, applied)
        hold(applied > before or is_anew, law, f"{who} went back from {before} to {applied}")
        shape = controller.log.shape
        on_disk = max(shape.flushed_end, shape.start.offset)
        hold(applied <= on_disk, "R13 AppliedIsDurable", f"{who} applied {applied}; on its disk is {on_disk}")
        hold(applied <= self._history.end, law, f"{who} applied {applied}; committed is {self._history.end}")
        self._applied[key] = applied
        same = self._history.agrees(image.provenance.offset, image.digest_bytes)
        hold(same, law, f"{who} at {image.provenance.offset} has another state than the history")

    def about_to_install(self, controller: "SimController", end: OffsetAndEpoch) -> None:
        """Called before a complete download replaces the controller's log."""
        who, known = f"c{controller.node_id}", controller.believed_high_watermark or 0
        hold(not controller.core.is_leading, "S6 LeaderNeverLoads", f"{who} leads and installs snapshot {end}")
        hold(end.offset >= known, "S6 StaleIgnored", f"{who} installs snapshot {end}; it knows {known} as committed")

    def _check_snapshots(self, controller: "SimController") -> None:
        shape, who = controller.log.shape, f"c{controller.node_id}"
        if self._seen.get(controller.node_id) is shape:
            return
        self._seen[controller.node_id] = shape
        start, newest = shape.start, shape.snapshot
        key = controller.node_id, controller.boot
        if newest is None:
            hold(start.offset == 0, "S2 LogStart", f"{who}'s log starts at {start} without a snapshot")
            return
        hold(
            newest.offset >= start.offset,
            "S2 LogStart",
            f"{who}'s log starts at {start}, its snapshot ends at {newest}",
        )
        before = self._newest.get(key)
        if newest == before:
            return
        hold(before is None or newest > before, "S5 NewestValid", f"{who} went from snapshot {before} back to {newest}")
        self._newest[key] = newest
        hold(
            newest.offset <= self._history.end, "S1 SnapshotBelowHW", f"{who}'s snapshot ends at {newest}, uncommitted"
        )
        hold(controller.snapshot_is_durable(newest), "S2 LogStart", f"{who} stands on snapshot {newest}, not durable")
        self._check_contents(controller, newest)

    def _check_contents(self, controller: "SimController", end: OffsetAndEpoch) -> None:
        digest = hashlib.sha256(controller.snapshot_bytes(end)).digest()
        known = self._snapshots.setdefault(end, digest)
        if known is not digest:
            hold(
                known == digest,
                "S3 Deterministic",
                f"c{controller.node_id}'s snapshot {end} differs from another node's",
            )
            return
        who = f"c{controller.node_id}'s snapshot {end}"
        inside = self._history.is_inside_transaction(end.offset)
        hold(not inside, "S7 OutsideOfTransactions", f"{who} ends inside of a transaction")
        try:
            contents = read_snapshot(controller.metadata, end)
            held = Replay().load_snapshot(contents.records, Provenance(*end, contents.meta.timestamp_ms))
        except LogFormatError as e:
            raise LawBroken("S1 SnapshotEqualsReplay", f"{who} cannot be loaded: {e}") from e
        right = self._history.digest_at(end.offset)
        hold(contents.digest == right, "S1 SnapshotEqualsReplay", f"{who} tells of another state")
        # Checks the records themselves, not the footer's digest, nor the reader's interpretation.
        hold(held.digest_bytes == right, "S1 SnapshotEqualsReplay", f"{who} holds another state than it tells of")
        chain = self._history.chain_at(end.offset)
        hold(contents.meta.chain == chain, "S1 SnapshotEqualsReplay", f"{who} tells of another history")
