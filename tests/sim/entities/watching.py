"""The watches of a simulated node: production's verdicts, plans and filters (`watches.core`), over its own log and image.

A stream is open while its client's messages reach the node, and as long as this life of the node lasts. Example:

    1  Client w0 asks controller 2 to go on at 44. Controller 2 has applied 40 only: the verdict is to wait.
    2  Controller 2 applies up to 52. The stream shows what w0's filter names of [44, 52), and w0 is at 52.
    3  Controller 2 dies. w0 hears nothing for a while, and asks broker 101 to go on at 52.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.store.log import Log
from tests.sim.nodes.brokers import SimBroker
from tests.sim.nodes.controllers import SimController
from watches.core import log_plan, position
from watches.core.changes import Change, changes_of
from watches.core.filters import Filter
from watches.core.position import Place, Position, Reset, ResetReason, Wait
from watches.core.state import state_of

GENERATION = 0
READ_BYTES = 1 << 20
WAIT_LOOKS = 40
PART_EVENTS = 3
"""How many events a message has. Most transactions take several messages."""

SimNode: TypeAlias = SimController | SimBroker


class Message(NamedTuple):
    """A message of a stream."""

    position: Position | None
    """Set in the last message of a batch, or of a state."""
    events: tuple[Change, ...]
    reset: ResetReason | None


def image_of(node: SimNode) -> MetadataImage | None:
    """The newest image that the node may show; None: the node serves no watches now."""
    if isinstance(node, SimController):
        return None if node.node is None or node.paused else node.node.state.committed
    return node.store.image if node.may_serve() and not node.paused else None


def log_of(node: SimNode) -> Log:
    """The log of a node that is up."""
    return node.log if isinstance(node, SimController) else node.store._open_log.disk


class StreamEnded(Exception):
    """The stream cannot go on here. The client goes on at another node."""


class Stream:
    """One watch at one node."""

    def __init__(self, node: SimNode, shown: Filter, since: Position | None, send: Callable[[Message], None]) -> None:
        self._node = node
        self._boot = node.boot
        self.shown = shown
        self._since = since
        self._send = send
        self._at: Position | None = None
        """Everything below is sent; None: the stream has not begun."""
        self._waits = 0

    def look(self) -> None:
        """Sends what is new.

        Raises:
            StreamEnded: see above.
        """
        image = image_of(self._node)
        if image is None or self._node.boot != self._boot:
            raise StreamEnded
        try:
            if self._at is None:
                self._begin(image)
            elif image.offset > self._at.offset:
                self._go_on(image)
        except CorruptLog as e:
            raise StreamEnded from e

    def _position(self, offset: Offset) -> Position:
        log = log_of(self._node)
        chain, epoch = log.chain_at(offset), log.shape.epoch_below(offset)
        if chain is None or epoch is None:
            raise StreamEnded
        return Position(GENERATION, offset, epoch, chain)

    def _begin(self, image: MetadataImage) -> None:
        since, log = self._since, log_of(self._node)
        if image.offset > log.end or image.offset < log.start.start.offset:
            raise StreamEnded
        if since is None:
            self._reset(ResetReason.NO_POSITION, image)
            return
        verdict = position.verdict(since, GENERATION, self._place(since.offset, image.offset))
        if isinstance(verdict, Wait):
            self._waits += 1
            if self._waits > WAIT_LOOKS:
                raise StreamEnded
        elif isinstance(verdict, Reset):
            self._reset(verdict.reason, image)
        else:
            self._at = since
            self._go_on(image)

    def _place(self, offset: Offset, end: Offset) -> Place:
        log = log_of(self._node)
        start = log.start.start.offset
        is_inside = start <= offset <= end
        epoch = log.shape.epoch_below(offset) if is_inside else None
        chain = log.chain_at(offset) if is_inside else None
        last_epoch = log.shape.epoch_below(end)
        assert last_epoch is not None, "the image ends inside of the log"
        return Place(start, end, last_epoch, epoch, chain, log.skipped())

    def _reset(self, reason: ResetReason, image: MetadataImage) -> None:
        """Sends the state that the filter names."""
        self._at = self._position(image.offset)
        self._send_parts([*state_of(image, self.shown)], self._at, reason)

    def _go_on(self, image: MetadataImage) -> None:
        """Sends the changes up to the image, batch by batch."""
        assert self._at is not None
        log = log_of(self._node)
        if not log.start.start.offset <= self._at.offset <= image.offset <= log.end:
            raise StreamEnded  # the log was trimmed meanwhile, or the node loads an older image
        batches: list[Batch] = []
        at = self._at.offset
        while at < image.offset:
            batches += log.read(at, READ_BYTES, image.offset)
            if at == batches[-1].end_offset:
                raise StreamEnded
            at = batches[-1].end_offset
        self._show(batches, image)

    def _show(self, batches: Sequence[Batch], image: MetadataImage) -> None:
        skips = log_of(self._node).skipped()
        plan = log_plan.plan_of(batches, skips)
        names = {**{topic.topic_id: topic.name for topic in image.topics()}, **plan.names}
        events: list[Change] = []
        for batch in batches:
            if not batch.is_control and not plan.drops(batch):
                events += self._shown_of(batch, plan, names)
            if plan.may_stop_at(batch.end_offset):
                after = Position(GENERATION, batch.end_offset, batch.epoch, batch.chain)
                self._send_parts(events, after, None)
                self._at, events = after, []

    def _shown_of(self, batch: Batch, plan: log_plan.LogPlan, names: dict[Uuid, str]) -> list[Change]:
        found = changes_of(decode_batch(batch), batch.base_offset, lambda topic_id: names[topic_id], plan.hides)
        return [each for each in found if self.shown.shows(each.subject)]

    def _send_parts(self, events: Sequence[Change], after: Position, reset: ResetReason | None) -> None:
        first, *others = [tuple(events[at : at + PART_EVENTS]) for at in range(0, len(events), PART_EVENTS)] or [()]
        parts = [first, *others]
        for part in parts[:-1]:
            self._send(Message(None, part, reset))
        self._send(Message(after, parts[-1], reset))
