"""ISR proposals of a broker without a data plane: its agent asks to add every active replica to the ISR (KIP-497).

A broker that was away comes back outside of all ISRs. Only a partition's leader may ask to add it again, because only the leader
knows which replicas have the data. Without replicated data (`broker.data.plane: none`) every replica is as good as any other if
its broker is registered, unfenced and not shutting down, and its log directory is online:

    1. orders-0 has the replicas 101,102,103; its leader is 102, its ISR 102,103. Broker 101 registers and is unfenced.
    2. Broker 102 sees the image with the unfenced 101, and proposes the ISR 101,102,103. The proposal names the epochs in that
       image: the controller accepts it only if they are still current.
    3. The controller grants the proposal, and the next image has the ISR 101,102,103.

*One request is in flight at a time.* No request is sent while this broker must not serve clients or has not applied its own
registration: its image may be old, and the controller would refuse the request. The walk over the partitions has slices, and
each slice makes at most one request.

*The agent proposes nothing twice for one image.* After an answer the walk continues once the image has reached the granted
changes. The controller refuses a proposal that was made from an old image; the next image starts another walk. If a controller is
behind this broker (NOT_CONTROLLER) or does not answer, the agent asks again after a pause that doubles each time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.partition_state import (
    DIRECTORIES,
    ISR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY_STATE,
    REPLICAS,
    PartitionState,
)
from metadata_log.format.records import RECOVERED
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage

Place: TypeAlias = tuple[Uuid, int]
"""Topic id and partition number."""


@dataclass(frozen=True, slots=True)
class ProposalLimits:
    """Limits of the size and the frequency of requests."""

    proposals_max: int = 1_000
    """Maximum number of partitions in one request: as many as the controller changes in one slice of its own walks."""
    looked_at_max: int = 5_000
    """Maximum number of partitions, and topics of other brokers, in one step of a walk: a few milliseconds of work."""
    pause_ms: int = 100
    """How long to wait between two steps."""
    backoff_ms: int = 100
    backoff_max_ms: int = 5_000
    timeout_ms: int = 5_000
    """How long to wait for an answer."""


class IsrMember(NamedTuple):
    """A replica in a proposed ISR, with the epoch of its registration in the image."""

    broker_id: NodeId
    broker_epoch: int


class IsrProposal(NamedTuple):
    """A new ISR for a partition, proposed by its leader from the state with these epochs. The leader has recovered."""

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    """The members in the order of the assignment."""


class ProposalResult(NamedTuple):
    """The controller's answer to one proposal; NONE means that it was granted."""

    topic_id: Uuid
    partition: int
    code: ErrorCode
    message: str


class IsrProposals:
    """One broker's proposals. Pure: the caller sends each request of `next`, and then calls `answered` or `failed`."""

    def __init__(self, broker_id: NodeId, limits: ProposalLimits = ProposalLimits()) -> None:
        self.limits = limits
        self._broker_id = broker_id
        self._broker_epoch: int | None = None
        """The broker epoch that all fields below belong to."""
        self._in_flight = False
        self._failures = 0
        self._not_before_ms = 0
        self._is_due = False
        """True if a proposal may be left to make and only time keeps it back."""
        self._not_below: Offset = 0
        """The offset of the last granted change. An image below it would propose the same change again."""
        self._walk: Iterator[Place | None] | None = None
        self._walk_image: MetadataImage | None = None
        """The image at the start of the last walk: a finished walk is not repeated for the same image."""

    def next(self, image: MetadataImage, broker_epoch: int | None, now_ms: int) -> tuple[IsrProposal, ...]:
        """Returns the next request, made from `image`; it may be empty. `broker_epoch` is None if this broker must not serve."""
        self._is_due = False
        if self._in_flight or broker_epoch is None:
            return ()
        if broker_epoch != self._broker_epoch:
            self._begin_anew(broker_epoch)
        me = image.brokers.get(self._broker_id)
        if me is None or me.broker_epoch != broker_epoch or me.fenced:
            return ()
        if image.offset < self._not_below or (self._walk is None and image is self._walk_image):
            return ()
        if now_ms < self._not_before_ms:
            self._is_due = True
            return ()
        if self._walk is None:
            self._walk, self._walk_image = _places(image, self._broker_id), image
        found = self._step(self._walk, image)
        self._not_before_ms = now_ms + self.limits.pause_ms
        self._in_flight = bool(found)
        # A walk that ends under a newer image than it began with has to be repeated, also if no further image comes: broker 101
        # became active between two steps, and the first step, 5,000 partitions, did not propose 101.
        self._is_due = not found and (image is not self._walk_image or self._walk is not None)
        return found

    def next_deadline_ms(self) -> int | None:
        """The latest time for the next call of `next`; None if only an answer or another image can bring a proposal."""
        return self._not_before_ms if self._is_due else None

    def answered(self, offset: Offset, results: tuple[ProposalResult, ...], now_ms: int) -> None:
        """Notes the controller's answer; every granted change is below `offset`."""
        if any(result.code is ErrorCode.NOT_CONTROLLER for result in results):
            self.failed(now_ms)  # the controller is behind this broker, so waiting for another image would not help
            return
        self._in_flight = False
        self._failures = 0
        self._not_below = offset

    def failed(self, now_ms: int) -> None:
        """Notes that the whole request had no answer or was refused; a new walk starts after a pause."""
        self._in_flight = False
        limits = self.limits
        self._not_before_ms = now_ms + min(limits.backoff_ms << min(self._failures, 16), limits.backoff_max_ms)
        self._failures += 1
        self._is_due = True
        self._walk = self._walk_image = None

    def _begin_anew(self, broker_epoch: int) -> None:
        """Starts again for another registration, possibly in another history with other offsets."""
        self._broker_epoch = broker_epoch
        self._not_below = 0
        self._walk = self._walk_image = None

    def _step(self, walk: Iterator[Place | None], image: MetadataImage) -> tuple[IsrProposal, ...]:
        active = {
            broker.broker_id: broker.broker_epoch
            for broker in image.brokers.unordered_values()
            if broker.broker_id == self._broker_id or not (broker.fenced or broker.in_controlled_shutdown)
        }
        found: list[IsrProposal] = []
        for _ in range(self.limits.looked_at_max):
            if len(found) == self.limits.proposals_max:
                break
            try:
                place = next(walk)
            except StopIteration:
                self._walk = None
                break
            topic = None if place is None else image.topic_by_id(place[0])
            if place is None or topic is None:
                continue
            state = topic.state(place[1])
            if state is not None and state[LEADER] == self._broker_id:
                found += _proposal(*place, state, _present(image, state, active))
        return tuple(found)


def _places(image: MetadataImage, broker_id: NodeId) -> Iterator[Place | None]:
    """The partitions of the topics with replicas on the broker. Each other topic yields None, so that it counts as a step."""
    for topic in image.topics_by_id.unordered_values():
        if not topic.has_replica_on(broker_id):
            yield None
            continue
        for partition in range(topic.partition_count):
            yield topic.topic_id, partition


def _present(image: MetadataImage, state: PartitionState, active: dict[NodeId, int]) -> dict[NodeId, int]:
    """The active brokers without those whose replica is in an offline log directory."""
    if not state[DIRECTORIES]:
        return active
    offline = offline_replicas(image.brokers, state[REPLICAS], state[DIRECTORIES])
    return {broker_id: epoch for broker_id, epoch in active.items() if broker_id not in offline}


def _proposal(
    topic_id: Uuid, partition: int, state: PartitionState, active: Mapping[NodeId, int]
) -> Iterator[IsrProposal]:
    """The proposal for a partition that this broker leads, if one is needed. `active` includes this broker."""
    isr = tuple(IsrMember(replica, active[replica]) for replica in state[REPLICAS] if replica in active)
    if state[RECOVERY_STATE] == RECOVERED and all(member.broker_id in state[ISR] for member in isr):
        return
    yield IsrProposal(topic_id, partition, state[LEADER_EPOCH], state[PARTITION_EPOCH], isr)
