"""The laws of watches (W1, W2): a watch shows exactly the committed changes that its filter names, or a state that is true.

The laws have their own list of the changes of each committed batch, made from the records alone, and the image at each boundary.

Example: watch w0 of the kind "lock" is at 40. The batch [40, 43) writes a lock at 41, and the transaction [43, 50) is aborted.

    1. A message "43" with the lock at 41 is right. Without the lock, with the lock twice, or with the position 42, it is not.
    2. A message "50" without events is right. An event of the transaction breaks W1.
    3. A RESET at 50 must have every lock of the image at 50, and no other.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metadata_log.format.codec import UnknownRecord, decode_batch
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    AbortTransaction,
    BeginTransaction,
    ClientSession,
    Config,
    EndTransaction,
    Entity,
    Record,
    RegisterBroker,
    Topic,
)
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from tests.sim.history import History, Step
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.entities.watching import SimNode
    from watches.core.changes import Change
    from watches.core.filters import Filter
    from watches.core.position import Position, ResetReason

_OF_TOPICS = ("Topic", "RemoveTopic", "Partition", "PartitionChange", "EpochsRaised", "ClearElr")
_OF_BROKERS = ("RegisterBroker", "UnregisterBroker", "BrokerRegistrationChange", "BrokerMode")
_OF_SESSIONS = ("ClientSession", "EndClientSession")
_OTHERS = (
    "EntityKind",
    "RemoveEntityKind",
    "RegisterController",
    "FeatureLevel",
    "ClientQuota",
    "ProducerIds",
    "AccessControlEntry",
    "RemoveAccessControlEntry",
    "EpochFloor",
)


class _Shown(NamedTuple):
    """A change, as the laws know it."""

    offset: Offset
    record: Record
    topic: str
    """The name of the topic that it is about; empty for other changes."""


class WatchLaws:
    """Checks every whole batch and every state that reaches a watch."""

    def __init__(
        self, history: History, states_at: Container[Offset] | None = None, shown: "Filter | None" = None
    ) -> None:
        """`states_at`: the positions of all states that will be checked; None: not known, so the laws keep every image.
        `shown`: what all watches show together; None: everything.
        """
        self._history = history
        self._states_at = states_at
        self._shown = shown
        self._changes: list[_Shown] = []
        self._open: list[_Shown] | None = None
        """The changes of the transaction that is open."""
        self.boundaries: list[Offset] = [0]
        """The batch boundaries outside of transactions, in order: a watch may stop there."""
        self._images: dict[Offset, MetadataImage] = {0: EMPTY_IMAGE}
        """The images at these boundaries, as far as they are needed."""
        self._names: dict[Uuid, str] = {}

    # --- the log ---------------------------------------------------------------------------------------------------

    def committed(self, step: Step) -> None:
        """Notes a newly committed batch."""
        if not step.batch.is_control:
            for offset, record in enumerate(decode_batch(step.batch), step.batch.base_offset):
                self._note(offset, record)
        if self._open is None:
            if self._states_at is None or step.batch.end_offset in self._states_at:
                self._images[step.batch.end_offset] = step.after
            self.boundaries.append(step.batch.end_offset)

    def _note(self, offset: Offset, record: Record | UnknownRecord) -> None:
        if isinstance(record, BeginTransaction):
            self._open = []
        elif isinstance(record, EndTransaction):
            self._changes += self._open or ()
            self._open = None
        elif isinstance(record, AbortTransaction):
            self._open = None
        elif not isinstance(record, UnknownRecord):
            if isinstance(record, Topic):
                self._names[record.topic_id] = record.name
            into = self._changes if self._open is None else self._open
            change = _Shown(offset, _filled_in(record, offset), self._topic_of(record))
            if self._shown is None or _is_shown(change, self._shown):
                into.append(change)

    def _topic_of(self, record: Record) -> str:
        if isinstance(record, Config):
            return record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        if type(record).__name__ not in _OF_TOPICS:
            return ""
        name = getattr(record, "name", None) or getattr(record, "topic_name", None)
        topic_id = getattr(record, "topic_id", None)
        return str(name) if name else self._names.get(topic_id or b"", "")

    # --- watches ---------------------------------------------------------------------------------------------------

    def opened(self, node: "SimNode", since: "Position | None") -> None:
        """Called when a stream was opened at a node."""

    def not_of_another_history(self, name: str, is_other: bool, reset: "ResetReason | None") -> None:
        """A position that no history has is answered with a state."""
        hold(not is_other or reset is not None, "W2 OtherHistory", f"{name} goes on at a position of another history")

    def continued(
        self, who: str, shown: "Filter", since: "Position | None", until: "Position", events: "Sequence[Change]"
    ) -> None:
        """Checks the changes between two positions."""
        assert since is not None, "a watch without a position begins with a state"
        self._check_position(who, until)
        hold(until.offset >= since.offset, "W1 Exact", f"{who} goes back from {since.offset} to {until.offset}")
        first = bisect_left(self._changes, since.offset, key=lambda each: each.offset)
        last = bisect_left(self._changes, until.offset, key=lambda each: each.offset)
        wanted = [(each.offset, each.record) for each in self._changes[first:last] if _is_shown(each, shown)]
        given = [(each.offset, each.record) for each in events]
        where = f"{who} from {since.offset} to {until.offset}"
        hold(_typed(given) == _typed(wanted), "W1 Exact", f"{where} shows {given}; the log has {wanted}")

    def reset(
        self,
        who: str,
        shown: "Filter",
        position: "Position",
        events: "Sequence[Change]",
        reason: "ResetReason",
    ) -> None:
        """Checks a state."""
        self._check_position(who, position)
        image = self._images.get(position.offset)
        hold(image is not None, "W2 TrueReset", f"{who} has a state at {position.offset}, where no watch may stop")
        assert image is not None
        wanted = Counter(_typed((0, record) for record in _state(image, shown)))
        given = Counter(_typed((0, each.record) for each in events))
        text = f"{who}: {reason.name} at {position.offset}, lacks {wanted - given}, and has {given - wanted} besides"
        hold(given == wanted, "W2 TrueReset", text)

    def _check_position(self, who: str, position: "Position") -> None:
        history, offset = self._history, position.offset
        hold(offset <= history.end, "W1 Committed", f"{who} is told of {offset}; committed is {history.end}")
        place = bisect_left(self.boundaries, offset)
        is_boundary = place < len(self.boundaries) and self.boundaries[place] == offset
        hold(is_boundary, "W1 WholeBatches", f"{who} is at {offset}, inside of a batch")
        same = offset == 0 or (position.chain, position.epoch) == (
            history.chain_at(offset),
            history.epoch_below(offset),
        )
        hold(same, "W1 Position", f"{who} has another chain or epoch at {offset} than the history")


def _typed(records: Iterable[tuple[Offset, Record]]) -> list[tuple[Offset, str, Record]]:
    """With their types: records of two types with equal fields are equal tuples."""
    return [(offset, type(record).__name__, record) for offset, record in records]


def _filled_in(record: Record, offset: Offset) -> Record:
    match record:
        case Entity(created=created):
            return record._replace(created=offset if created < 0 else created, version=offset)
        case RegisterBroker(broker_epoch=epoch):
            return record._replace(broker_epoch=offset if epoch < 0 else epoch)
        case ClientSession():
            return record._replace(epoch=offset)
    return record


def _is_shown(change: _Shown, shown: "Filter") -> bool:
    record: Any = change.record
    kind = type(record).__name__
    if kind in ("Entity", "RemoveEntity"):
        return any(
            each.kind in ("", record.kind) and record.name.startswith(each.name_prefix) for each in shown.entities
        )
    if kind == "Config":
        if record.resource_type == BROKER_RESOURCE:
            return _is_broker_shown(record.resource_name, shown)
        return _is_topic_shown(change.topic, shown) if record.resource_type == TOPIC_RESOURCE else shown.others
    if kind in _OF_TOPICS:
        return _is_topic_shown(change.topic, shown)
    if kind in _OF_BROKERS:
        return _is_broker_shown(str(record.broker_id), shown)
    if kind in _OF_SESSIONS:
        return shown.sessions
    return kind in _OTHERS and shown.others


def _is_topic_shown(name: str, shown: "Filter") -> bool:
    return shown.all_topics or (name in shown.topics if name else bool(shown.topics))


def _is_broker_shown(name: str, shown: "Filter") -> bool:
    """A config of all brokers is shown with all brokers."""
    return shown.all_brokers or name in map(str, shown.brokers)


def _state(image: MetadataImage, shown: "Filter") -> Iterator[Record]:
    """The canonical records that the filter names, of all of them."""
    names = {topic.topic_id: topic.name for topic in image.topics()}
    for record in image.canonical_records():
        topic = ""
        if isinstance(record, Config):
            topic = record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        elif type(record).__name__ in _OF_TOPICS:
            topic = names[getattr(record, "topic_id")]  # noqa: B009
        if _is_shown(_Shown(0, record, topic), shown):
            yield record
