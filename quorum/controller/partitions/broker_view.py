"""The rights of brokers: to be in an ISR, to lead, to get new replicas. Computed once for each change of registrations or modes.

                                        in an ISR   leads                            gets new replicas
    online                              yes         yes                              yes
    fenced, shutting down, or barred    no          no                               if no broker is left that is online
    in maintenance, or being drained    yes         if no other member of the ISR    no
                                                    can lead
    fenced by an operator               no          no                               no

Example. An operator drains broker 7.
    1  The controller *rests* broker 7: elections choose others from now on. Slice by slice, its leaderships move.
    2  The last batch has the mode. Broker 7 stays in the ISRs, so that nothing is under-replicated.
    3  The ISR of orders-0 is broker 7 alone: broker 7 still leads orders-0, because a drain causes no outage. When broker 8
       enters the ISR, the same record makes broker 8 the leader.

A replica in an offline log directory may do none of the first two, however its broker is (`present`). A directory is offline if
it is not in the broker's registration, or if the broker has just reported its failure (`lost_directories`).
"""

import random
from collections.abc import Mapping, Set
from typing import Final

from metadata_log.format.ids import UNASSIGNED_DIRECTORY, NodeId, Uuid
from metadata_log.format.partition_state import DIRECTORIES, REPLICAS, NodeIds, PartitionState
from metadata_log.format.records import FENCED_MODE, MAINTENANCE_MODE, STATE_REASONS, FeatureRange
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.placement import Placer, UsableBroker

_NOBODY: Final[frozenset[NodeId]] = frozenset()
_NOTHING: Final[Mapping[NodeId, frozenset[Uuid]]] = {}


def reads_reasons(features: tuple[FeatureRange, ...]) -> bool:
    """True if a broker that supports `features` can read the reason in a record that changes a broker's state."""
    return any(feature.name == STATE_REASONS and feature.max_level >= 1 for feature in features)


class BrokerView:
    """The brokers of one image, with the soft state of one controller."""

    __slots__ = (
        "_online",
        "_placer",
        "_reads_reasons",
        "_rng",
        "active",
        "barred",
        "brokers",
        "drained",
        "failing",
        "kept_out",
        "may_lead",
        "modes",
        "resting",
    )

    def __init__(
        self,
        image: MetadataImage,
        barred: frozenset[NodeId],
        drained: frozenset[NodeId],
        rng: random.Random,
        failing: Mapping[NodeId, frozenset[Uuid]] = _NOTHING,
    ) -> None:
        self.brokers = image.brokers
        self.modes = image.broker_modes
        self.drained = drained
        """Brokers that are being drained over several batches: they have no mode yet."""
        self.barred = barred
        """Brokers that are being fenced over several batches: still unfenced, but the controller gives them nothing."""
        self.active = frozenset(
            broker.broker_id
            for broker in image.brokers.unordered_values()
            if not broker.fenced and not broker.in_controlled_shutdown and broker.broker_id not in barred
        )
        """The brokers that may be in an ISR: registered, unfenced, not shutting down, and not barred."""
        self.kept_out = frozenset(each.broker_id for each in self.modes.unordered_values() if each.mode == FENCED_MODE)
        """The brokers that an operator has fenced: they stay fenced, whatever they say."""
        self.resting = drained | {
            each.broker_id for each in self.modes.unordered_values() if each.mode == MAINTENANCE_MODE
        }
        """The brokers in maintenance, or on the way there. An active one leads only if no other member of the ISR can."""
        self.may_lead = self.active - self.resting
        """The brokers that elections choose from, before all others."""
        self.failing = failing
        """The log directories that a broker has lost, and that its registration still has."""
        self._online: frozenset[tuple[NodeId, Uuid]] | None = None
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
    def online_directories(self) -> frozenset[tuple[NodeId, Uuid]]:
        """Each broker with each of its online log directories. UNASSIGNED_DIRECTORY is online on every broker."""
        if self._online is None:
            self._online = frozenset(
                (broker.broker_id, directory)
                for broker in self.brokers.unordered_values()
                for directory in (UNASSIGNED_DIRECTORY, *broker.log_dirs)
                if directory not in self.failing.get(broker.broker_id, ())
            )
        return self._online

    def present(self, state: PartitionState, brokers: Set[NodeId]) -> Set[NodeId]:
        """Those of `brokers` whose replica of the partition is not in an offline log directory."""
        return self.present_in(state[REPLICAS], state[DIRECTORIES], brokers) if state[DIRECTORIES] else brokers

    def present_in(self, replicas: NodeIds, directories: tuple[Uuid, ...], brokers: Set[NodeId]) -> Set[NodeId]:
        """Those of `brokers` that have no replica among `replicas`, or have it in an online one of `directories`."""
        online = self.online_directories
        offline = [each[0] for each in zip(replicas, directories, strict=True) if each not in online]
        return brokers - frozenset(offline) if offline else brokers

    @property
    def capacity(self) -> tuple[int, int, int]:
        """The number of brokers that take new replicas, of those among them that are online, and of all registered brokers."""
        return self.placer.broker_count, self.placer.online_count, len(self.brokers)

    @property
    def placer(self) -> Placer:
        """The placer, made for the first partition that is placed: often the brokers change many times before."""
        if self._placer is None:
            self._placer = Placer(
                [
                    UsableBroker(broker.broker_id, broker.rack, broker.broker_id in self.active)
                    for broker in self.brokers.values()
                    if broker.broker_id not in self.kept_out and broker.broker_id not in self.resting
                ],
                self._rng,
            )
        return self._placer


class BrokerViews:
    """Keeps the last view, because registrations and modes change seldom."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._last: BrokerView | None = None
        self._barred: frozenset[NodeId] = _NOBODY
        self._drained: frozenset[NodeId] = _NOBODY
        self._failing: Mapping[NodeId, frozenset[Uuid]] = _NOTHING

    def of(self, image: MetadataImage) -> BrokerView:
        """The view of `image`; O(1) while brokers and modes are the same objects."""
        last = self._last
        if (
            last is None
            or last.brokers is not image.brokers
            or last.modes is not image.broker_modes
            or last.barred is not self._barred
            or last.drained is not self._drained
            or last.failing is not self._failing
        ):
            last = self._last = BrokerView(image, self._barred, self._drained, self._rng, self._failing)
        return last

    def bar(self, broker_id: NodeId) -> None:
        """Makes the broker inactive, even if its registration says unfenced."""
        self._barred = self._barred | {broker_id}

    def unbar(self, broker_id: NodeId) -> None:
        """Lets the registration decide again."""
        if broker_id in self._barred:
            self._barred = self._barred - {broker_id}

    def rest(self, broker_id: NodeId) -> None:
        """Lets elections and placement choose other brokers, even if the broker has no mode yet."""
        self._drained = self._drained | {broker_id}

    def unrest(self, broker_id: NodeId) -> None:
        """Lets the mode decide again."""
        if broker_id in self._drained:
            self._drained = self._drained - {broker_id}

    def fail(self, broker_id: NodeId, directories: frozenset[Uuid]) -> None:
        """Takes log directories of the broker for offline, even if its registration has them. None: the registration decides."""
        others = {each: failed for each, failed in self._failing.items() if each != broker_id}
        self._failing = {**others, broker_id: directories} if directories else others

    def reset(self) -> None:
        self._barred = _NOBODY
        self._drained = _NOBODY
        self._failing = _NOTHING
        self._last = None
