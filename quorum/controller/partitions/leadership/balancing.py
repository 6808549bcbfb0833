"""Balancing: leaderships go back to the preferred replicas by themselves (Kafka's `auto.leader.rebalance.enable`).

Every restart of a broker moves its leaderships to other brokers, and a broker that is back leads nothing. Example: brokers 101,
102 and 103 are each the preferred leader of 20 partitions.

    1  Broker 101 is restarted. Brokers 102 and 103 lead 30 partitions each, and broker 101 leads none.
    2  Broker 101 is in sync again. Within `leader.imbalance.check.interval.seconds` the active controller counts: of the 20
       partitions that prefer broker 101, other brokers lead 20, which is 100 %.
    3  100 % is more than `leader.imbalance.per.broker.percentage`, so the controller elects broker 101 for all 20 of them.

A check is two walks over all partitions, slice by slice: the first walk counts, and the second walk elects. A partition counts
only if its preferred replica may lead it now, because it is active and in the ISR. Counter-example: broker 101 stays away, and
others lead all its 20 partitions. A share of 100 % would make every check walk twice, and no walk could change anything.

The progress is soft state. The next active controller begins with a check after one interval. A change that the two walks miss,
because it came between them, is found by the next check.
"""

from collections import Counter
from typing import TypeAlias

from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import REPLICAS
from metadata_log.format.records import PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerView, BrokerViews
from quorum.controller.partitions.leadership.elections import may_return_to_preferred
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.commands import FollowUpReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.happenings import NAMED_MAX, LeadersBalanced

_Parts: TypeAlias = tuple[object, object, object]
"""The versions of the topics, the brokers and the modes of brokers in an image: nothing else decides a check."""


def _parts(image: MetadataImage) -> _Parts:
    return image.topics_by_id.version, image.brokers.version, image.broker_modes.version


def _are_same(some: _Parts, others: _Parts) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


class Balancing:
    """The periodic check of one active controller. `due` says when to call `step`, and each call takes one slice."""

    def __init__(self, config: ControllerConfig, views: BrokerViews) -> None:
        self._config = config
        self._views = views
        self._next_ms: int | None = None
        """The time of the next check; None if this controller is not active, or never balances."""
        self._checked: _Parts | None = None
        """The parts of the image that the last check found balanced. While they are the same, no check is needed."""
        self._reset()

    def _reset(self) -> None:
        self._walk: PartitionWalk | None = None
        self._began: _Parts | None = None
        """The parts of the image at the begin of this check."""
        self._preferring: Counter[NodeId] = Counter()
        """For each broker the number of partitions that prefer it."""
        self._returnable: Counter[NodeId] = Counter()
        """For each broker the number of partitions that prefer it, are not led by it, and could be."""
        self._elected: frozenset[NodeId] | None = None
        """The brokers that get their partitions back; None while the first walk counts."""
        self._moved = 0
        self._first: tuple[str, ...] = ()

    def begin(self, now_ms: int) -> None:
        """Begins a leadership. The first check follows after one interval."""
        self._reset()
        self._checked = None
        self._rest(now_ms)

    def end(self) -> None:
        """Ends a leadership."""
        self._reset()
        self._next_ms = None

    def _rest(self, now_ms: int) -> None:
        is_on = self._config.auto_leader_rebalance
        self._next_ms = now_ms + self._config.leader_imbalance_check_interval_ms if is_on else None

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next slice; None: never."""
        return 0 if self._walk is not None else self._next_ms

    def is_due(self, image: MetadataImage, now_ms: int) -> bool:
        """Tells whether `step` has work to do. A check of an image that was found balanced is left out."""
        if self._walk is not None:
            return True
        if self._next_ms is None or now_ms < self._next_ms:
            return False
        if self._checked is not None and _are_same(self._checked, _parts(image)):
            self._rest(now_ms)
            return False
        return True

    def step(self, image: MetadataImage, now_ms: int) -> Decision:
        """Takes the next slice of a check; begins a check if none is under way."""
        if self._walk is None:
            self._walk, self._began = PartitionWalk(image, None, now_ms), _parts(image)
        if self._elected is None:
            return self._count(image, self._walk, now_ms)
        return self._elect(image, self._walk, self._elected, now_ms)

    def _count(self, image: MetadataImage, walk: PartitionWalk, now_ms: int) -> Decision:
        view = self._views.of(image)

        def count(visited: Visited) -> None:
            preferred = visited.state[REPLICAS][0]
            self._preferring[preferred] += 1
            self._returnable[preferred] += may_return_to_preferred(visited.state, view)

        walk.step(image, count, self._config, now_ms)
        if walk.is_done:
            limit = self._config.leader_imbalance_percentage
            over = [each for each, count in self._returnable.items() if 100 * count > limit * self._preferring[each]]
            self._elected = frozenset(over)
            self._walk = PartitionWalk(image, None, now_ms)
            if not over:
                self._checked = self._began
                self._finish(now_ms)
        return Decision((), FollowUpReply())

    def _elect(self, image: MetadataImage, walk: PartitionWalk, elected: frozenset[NodeId], now_ms: int) -> Decision:
        view: BrokerView = self._views.of(image)

        def elect(visited: Visited) -> PartitionChange | None:
            topic, partition, state, _ = visited
            preferred = state[REPLICAS][0]
            if preferred not in elected or not may_return_to_preferred(state, view):
                return None
            if len(self._first) < NAMED_MAX:
                self._first += (f"{topic.name}-{partition}: {preferred}",)
            return PartitionChange(topic.topic_id, partition, leader=preferred)

        changes = tuple(walk.step(image, elect, self._config, now_ms))
        self._moved += len(changes)
        told: tuple[LeadersBalanced, ...] = ()
        if walk.is_done:
            told = (LeadersBalanced(self._moved, len(elected), self._first),) if self._moved else ()
            self._finish(now_ms)
        return Decision(changes, FollowUpReply(), happenings=told)

    def _finish(self, now_ms: int) -> None:
        self._reset()
        self._rest(now_ms)
