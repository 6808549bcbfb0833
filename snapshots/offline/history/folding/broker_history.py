"""The states of the brokers over time, and the values of `min.insync.replicas`: a small pass on the driver, before the large one.

    records of brokers, of their modes, and of configs, by offset
        -> rows of `broker_states`
        -> the timelines that each task of the large pass gets

An interval of a broker ends when its state, reason, mode, process or epoch changes. A broker has no interval before its first
registration. A broker that was removed has an interval with the state `unregistered`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Offset, uuid_text
from metadata_log.format.records import (
    FENCED_MODE,
    MAINTENANCE_MODE,
    NO_MODE,
    TOPIC_RESOURCE,
    BrokerMode,
    MetadataRecord,
    RegisterBroker,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage
from snapshots.offline.history.folding.first_state import in_first_state
from snapshots.offline.history.folding.intervals import closed, opened
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.folding.timelines import (
    CLUSTER,
    FENCED,
    MIN_ISR_KEY,
    ONLINE,
    REGISTERED,
    STOPPING,
    UNREGISTERED,
    BrokerState,
    BrokerTimeline,
    MinIsrTimeline,
    Resource,
)
from snapshots.offline.history.tables import Row

ENTITIES: Final = ("broker", "broker-mode", "config")
"""The kinds of entities whose records this pass takes."""
_MODES: Final = {NO_MODE: "none", FENCED_MODE: "fenced", MAINTENANCE_MODE: "maintenance"}


Placed = tuple[Offset, MetadataRecord]


class StepRecords(NamedTuple):
    """The records of one step, each with its offset."""

    step: Step
    records: tuple[Placed, ...]


def state_of(broker: RegisterBroker) -> str:
    """Return the state of a registered broker."""
    if not broker.fenced:
        return STOPPING if broker.in_controlled_shutdown else ONLINE
    return REGISTERED if broker.reason == REGISTERED else FENCED


class BrokerHistory:
    """The pass over the brokers. Call `load`, then `step` for each step; `rows` are the closed intervals, `open` the others."""

    def __init__(self) -> None:
        self._image: MetadataImage = EMPTY_IMAGE
        self.open: dict[NodeId, Row] = {}
        self.registered_at_begin = 0
        self.registered_changes: list[tuple[int, int]] = []
        """The times (ms) at which brokers were registered (+1) and unregistered (-1)."""
        self._states: dict[NodeId, list[tuple[Offset, BrokerState]]] = {}
        self._values: dict[Resource, list[tuple[Step, str | None]]] = {}

    @property
    def registered(self) -> int:
        """The number of registered brokers."""
        return len(self._image.brokers)

    def load(self, records: Iterable[Placed], open_rows: Iterable[Row], begin: Step, *, goes_on: bool) -> None:
        """Begin with the state at `begin`. `goes_on`: the tables of an earlier run end there, with these open intervals."""
        delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
        with in_first_state("the brokers and configs"):
            for place, record in records:
                delta.replay(record, place)
        self._image = delta.finish(NOWHERE)
        self.registered_at_begin = len(self._image.brokers)
        self.open = {row["broker_id"]: row for row in open_rows}
        for broker in self._image.brokers.values():
            if not goes_on:
                self.open[broker.broker_id] = self._opened(broker.broker_id, begin, began_before=True)
        for broker_id in self.open:
            self._states[broker_id] = [(0, self._state(broker_id))]
        for resource, config in self._image.configs.items():
            if MIN_ISR_KEY in config:
                self._values[resource] = [(begin._replace(offset=0), config[MIN_ISR_KEY])]

    def step(self, each: StepRecords) -> Iterator[Row]:
        """Apply the records of one step; return the intervals that end."""
        before, delta = self._image, MetadataDelta(self._image, kind=DeltaKind.FOLDING)
        for offset, record in each.records:
            delta.replay(record, offset)
        self._image = delta.finish(NOWHERE)
        modes = {record.broker_id for _, record in each.records if isinstance(record, BrokerMode)}
        for broker_id in sorted(delta.changed.brokers | modes):
            yield from self._broker_changed(before, broker_id, each.step)
        for resource in sorted(delta.changed.config_resources):
            self._config_changed(before, resource, each.step)

    def timelines(self) -> tuple[BrokerTimeline, MinIsrTimeline]:
        """Return the timelines so far."""
        states = {broker_id: tuple(changes) for broker_id, changes in self._states.items()}
        values = {resource: tuple(changes) for resource, changes in self._values.items()}
        return BrokerTimeline(states), MinIsrTimeline(values)

    # --- inside ---

    def _broker_changed(self, before: MetadataImage, broker_id: NodeId, step: Step) -> Iterator[Row]:
        old, new = before.brokers.get(broker_id), self._image.brokers.get(broker_id)
        if (old is None) is not (new is None):
            self.registered_changes.append((step.time_ms, 1 if old is None else -1))
        row, known = self._opened(broker_id, step, began_before=False), self.open.get(broker_id)
        if known is None and new is None:
            return
        if known is not None and _same(known, row):
            return
        if known is not None:
            yield closed(known, step)
        self.open[broker_id] = row
        self._states.setdefault(broker_id, []).append((step.offset, self._state(broker_id)))

    def _config_changed(self, before: MetadataImage, resource: Resource, step: Step) -> None:
        is_ours = resource == CLUSTER or resource[0] == TOPIC_RESOURCE
        value = self._image.configs.get(resource, {}).get(MIN_ISR_KEY)
        if is_ours and before.configs.get(resource, {}).get(MIN_ISR_KEY) != value:
            self._values.setdefault(resource, []).append((step, value))

    def _state(self, broker_id: NodeId) -> BrokerState:
        broker, mode = self._image.brokers.get(broker_id), self._image.broker_modes.get(broker_id)
        shown = _MODES[NO_MODE if mode is None else mode.mode]
        if broker is None:
            return BrokerState(UNREGISTERED, "", shown)
        return BrokerState(state_of(broker), broker.reason, shown)

    def _opened(self, broker_id: NodeId, step: Step, *, began_before: bool) -> Row:
        broker, state = self._image.brokers.get(broker_id), self._state(broker_id)
        return opened(
            step, began_before=began_before, broker_id=broker_id,
            broker_epoch=None if broker is None else broker.broker_epoch,
            incarnation_id=None if broker is None else uuid_text(broker.incarnation_id),
            state=state.state, reason=state.reason or None, mode=state.mode,
            principal=None if began_before else step.principal,
        )  # fmt: skip


def _same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    names = ("broker_epoch", "incarnation_id", "state", "reason", "mode")
    return all(one[name] == other[name] for name in names)
