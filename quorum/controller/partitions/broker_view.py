"""The active brokers, and the placement of new replicas: computed once for each change of the registrations."""

import random
from typing import Final

from metadata_log.format.ids import NodeId
from metadata_log.format.records import STATE_REASONS, FeatureRange
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.placement import Placer, UsableBroker

_NOBODY: Final[frozenset[NodeId]] = frozenset()


def reads_reasons(features: tuple[FeatureRange, ...]) -> bool:
    """True if a broker that supports `features` can read the reason in a record that changes a broker's state."""
    return any(feature.name == STATE_REASONS and feature.max_level >= 1 for feature in features)


class BrokerView:
    """The brokers that may lead and be in an ISR: registered, unfenced, not shutting down, and not barred."""

    __slots__ = ("_placer", "_reads_reasons", "_rng", "active", "barred", "brokers")

    def __init__(self, image: MetadataImage, barred: frozenset[NodeId], rng: random.Random) -> None:
        self.brokers = image.brokers
        self.barred = barred
        """Brokers that are being fenced over several batches: still unfenced, but the controller gives them nothing."""
        self.active = frozenset(
            broker.broker_id
            for broker in image.brokers.unordered_values()
            if not broker.fenced and not broker.in_controlled_shutdown and broker.broker_id not in barred
        )
        self._rng = rng
        self._placer: Placer | None = None
        self._reads_reasons: bool | None = None

    @property
    def all_read_reasons(self) -> bool:
        """True if every registered broker can read the reason in a record that changes a broker's state."""
        if self._reads_reasons is None:
            self._reads_reasons = all(reads_reasons(broker.features) for broker in self.brokers.unordered_values())
        return self._reads_reasons

    @property
    def placer(self) -> Placer:
        """The placer, made for the first partition that is placed: often the brokers change many times before."""
        if self._placer is None:
            self._placer = Placer(
                [
                    UsableBroker(broker.broker_id, broker.rack, broker.broker_id in self.active)
                    for broker in self.brokers.values()
                ],
                self._rng,
            )
        return self._placer


class BrokerViews:
    """Keeps the last view, because registrations change seldom."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._last: BrokerView | None = None
        self._barred: frozenset[NodeId] = _NOBODY

    def of(self, image: MetadataImage) -> BrokerView:
        """The view of `image.brokers`; O(1) while they are the same object."""
        last = self._last
        if last is None or last.brokers is not image.brokers or last.barred is not self._barred:
            last = self._last = BrokerView(image, self._barred, self._rng)
        return last

    def bar(self, broker_id: NodeId) -> None:
        """Makes the broker inactive, even if its registration says unfenced."""
        self._barred = self._barred | {broker_id}

    def unbar(self, broker_id: NodeId) -> None:
        """Lets the registration decide again."""
        if broker_id in self._barred:
            self._barred = self._barred - {broker_id}

    def reset(self) -> None:
        self._barred = _NOBODY
        self._last = None
