"""The metadata as inputs of `ReplicaManager`: brokers, configs of topics, assignments.

1. The image at 200 comes. `take` tells which brokers may be in ISRs.
2. The assignments of the image at 200 come from the feed, in slices. Before the first assignment of a topic the manager gets
   the config of the topic, and before all, the epoch of this broker's registration.
3. A config changes at 210. `take` tells the topics whose config differs now.

*A lease comes back only with the assignments that came meanwhile.* Otherwise a stale leader could answer with a fresh lease:

1. Broker 101 leads orders-0, and is stopped (SIGSTOP). Its session ends, and broker 102 leads at offset 300.
2. Broker 101 wakes, fetches everything below 310, and is unfenced: it has a lease again.
3. The assignment of offset 300 is still on its way to the manager, which believes that it leads orders-0. A fetch that has waited
   since step 1 must not be answered: `has_caught_up` is false until the manager has all assignments below 310.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from broker_agent.data_plane.topic_configs import TopicConfigs, of_broker
from broker_agent.partitions.effects import Effects
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.partitions.throttle import UNLIMITED
from broker_agent.publishing.assignment_feed import AssignmentFeed
from broker_agent.publishing.assignments import ResumePoint, WholeSet
from broker_agent.publishing.publishers import ImageUpdate
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage

ASSIGNMENTS_SLICE: Final = 50
"""How many assignments are carried out in one turn."""
TOPICS_SLICE: Final = 200
"""How many topics are configured in one turn."""


LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


class RegisteredBroker(Protocol):
    """The view of the agent that this file needs."""

    @property
    def broker_id(self) -> NodeId: ...

    @property
    def broker_epoch(self) -> int | None: ...

    @property
    def image(self) -> MetadataImage: ...

    def may_serve(self) -> bool: ...


class MetadataInputs:
    """The metadata of one broker, on its way to the manager."""

    def __init__(
        self,
        broker: RegisteredBroker,
        manager: ReplicaManager,
        feed: AssignmentFeed,
        carry_out: Callable[[Effects], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._feed = feed
        self._carry_out = carry_out
        self._now_ms = now_ms
        self._configs = TopicConfigs()
        self._rates = (UNLIMITED, UNLIMITED)
        self._registered_as: int | None = None
        self._carried_out: ResumePoint | None = None
        """The manager has the assignments of the image at this point."""
        self._needed: ResumePoint | None = None
        """The end of the last image that came while this broker might not serve."""

    @property
    def has_caught_up(self) -> bool:
        """True if the manager knows all assignments that came while this broker had no lease."""
        done, needed = self._carried_out, self._needed
        if done is None or needed is None:
            return needed is None
        return (
            done.generation == needed.generation and done.offset >= needed.offset
        )  # offsets begin anew in a generation

    def note(self, update: ImageUpdate) -> None:
        """Notes an image at its swap, before the broker can have a lease for it. A subscriber of `Publishers`."""
        point, needed = ResumePoint(update.generation, update.after.offset), self._needed
        is_behind = needed is not None and (point.generation != needed.generation or point.offset < needed.offset)
        if is_behind or not self._broker.may_serve():
            self._needed = point

    async def take(self, update: ImageUpdate) -> None:
        """Takes brokers and configs of an image. A subscriber of `Publishers`."""
        if update.changes.brokers:
            self._carry_out(self._manager.brokers_changed(_candidates(update.after), self._now_ms()))
        self._throttle(update.after)
        for topic_id in update.changes.deleted_topics:
            self._configs.forget(topic_id)
            self._manager.topic_forgotten(topic_id)
        for index, topic_id in enumerate(self._configs.changed_topics(update)):
            self._configure(update.after, topic_id)
            if index % TOPICS_SLICE == TOPICS_SLICE - 1:
                await asyncio.sleep(0)

    def _configure(self, image: MetadataImage, topic_id: Uuid) -> None:
        config = self._configs.news_of(image, topic_id, self._broker.broker_id)
        if config is not None:
            self._carry_out(self._manager.topic_configured(topic_id, config, self._now_ms()))

    def _throttle(self, image: MetadataImage) -> None:
        """Takes the rates of throttled replication (KIP-73), which an operator sets for a reassignment."""
        values = of_broker(image, self._broker.broker_id)
        rates = (int(values.get(LEADER_RATE, UNLIMITED)), int(values.get(FOLLOWER_RATE, UNLIMITED)))
        if rates != self._rates:
            self._rates = rates
            self._carry_out(self._manager.throttle(*rates, self._now_ms()))

    async def follow_assignments(self) -> None:
        """Carries out the assignments of the broker, until it has left."""
        point: ResumePoint | None = None
        while True:
            reading = self._feed.read(point)
            if reading is None or not reading[0]:
                if reading is not None:
                    self._carried_out = reading[1]
                if self._feed.has_ended:
                    return
                await self._feed.changed()
                continue
            news, point = reading
            rest = iter(news)
            while some := tuple(islice(rest, ASSIGNMENTS_SLICE)):
                self._register()
                image = self._broker.image
                for topic_id in {each.topic_id for each in some if not isinstance(each, WholeSet)}:
                    self._configure(image, topic_id)
                self._carry_out(self._manager.assign(some, self._now_ms()))
                await asyncio.sleep(0)
            self._carried_out = point

    def _register(self) -> None:
        epoch = self._broker.broker_epoch
        if epoch is not None and epoch != self._registered_as:
            self._registered_as = epoch
            self._manager.registered(epoch)


def _candidates(image: MetadataImage) -> dict[NodeId, int]:
    """The brokers that may be in an ISR, with their broker epochs."""
    return {
        each.broker_id: each.broker_epoch
        for each in image.brokers.unordered_values()
        if not (each.fenced or each.in_controlled_shutdown)
    }
