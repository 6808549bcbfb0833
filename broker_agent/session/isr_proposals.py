"""What the leader of partitions proposes where no data plane does: replicas that are active belong into the ISR (KIP-497).

A broker that was away comes back outside of all ISRs, and only a partition's leader may ask for it to be let in again: the leader
alone knows who has the data. Where nothing is replicated (`broker.data.plane: none`) there is no data to have, and every replica
whose broker is registered, unfenced and not shutting down is as good as any other:

    orders-0, replicas 101,102,103, led by 102, ISR 102,103      101 is registered anew, and unfenced in the next image
    102 proposes the ISR 101,102,103                             as of just these epochs: compare and set at the controller
    the controller grants it                                     and the next image has it

*One request in flight*, and none while this broker may serve nobody, or has not applied its own registration: what it knows may
be old, and the controller would refuse it. The partitions are walked in slices, each at most one request, however many there are.

*Nothing is proposed twice for one image.* After an answer the walk goes on when the image has reached what was granted. A refused
proposal was judged by an image that is out of date, and the next image brings another walk. A controller that is behind this
broker (NOT_CONTROLLER) or did not answer is asked again after a pause that doubles.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.partition_state import (
    ISR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY_STATE,
    REPLICAS,
    PartitionState,
)
from metadata_log.format.records import RECOVERED
from metadata_log.image.metadata_image import MetadataImage

Place: TypeAlias = tuple[Uuid, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class ProposalLimits:
    """How much at once, and how often."""

    proposals_max: int = 1_000
    """Partitions in one request: as many as the controller changes in one slice of its own walks."""
    looked_at_max: int = 5_000
    """Partitions, and topics of others, in one step of a walk: a few milliseconds."""
    pause_ms: int = 100
    """From one step to the next."""
    backoff_ms: int = 100
    backoff_max_ms: int = 5_000
    timeout_ms: int = 5_000
    """For an answer."""


class IsrProposal(NamedTuple):
    """A partition's ISR as its leader would have it, made from the state with these epochs. The leader has recovered."""

    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[NodeId, int], ...]
    """In the order of the assignment; each broker with the epoch of the registration that this broker has seen."""


class ProposalResult(NamedTuple):
    """What the controller says of one proposal; with NONE it was granted."""

    topic_id: Uuid
    partition: int
    code: ErrorCode
    message: str


class IsrProposals:
    """What one broker has to propose. Pure: `next` gives a request, and each is to be followed by `answered` or `failed`."""

    def __init__(self, broker_id: NodeId, limits: ProposalLimits = ProposalLimits()) -> None:
        self.limits = limits
        self._broker_id = broker_id
        self._broker_epoch: int | None = None
        """Of the registration that all below belongs to."""
        self._in_flight = False
        self._failures = 0
        self._not_before_ms = 0
        self._is_due = False
        """Something may be left to propose, and only time keeps it back."""
        self._not_below: Offset = 0
        """Where what was granted last stands: an image below would bring it up again."""
        self._walk: Iterator[Place | None] | None = None
        self._walk_image: MetadataImage | None = None
        """The image when the last walk began; one that is over need not be repeated for the same."""

    def next(self, image: MetadataImage, broker_epoch: int | None, now_ms: int) -> tuple[IsrProposal, ...]:
        """What to ask now, judged by `image`; may be nothing. `broker_epoch`: None where this broker may serve nobody."""
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
        self._is_due = self._walk is not None and not found
        return found

    def next_deadline_ms(self) -> int | None:
        """When to ask `next` again at the latest; None where only an answer, or another image or state, brings something."""
        return self._not_before_ms if self._is_due else None

    def answered(self, offset: Offset, results: tuple[ProposalResult, ...], now_ms: int) -> None:
        """The controller has answered for each; what it granted stands below `offset`."""
        if any(result.code is ErrorCode.NOT_CONTROLLER for result in results):
            self.failed(now_ms)  # it knows less than this broker: another image is not what is missing
            return
        self._in_flight = False
        self._failures = 0
        self._not_below = offset

    def failed(self, now_ms: int) -> None:
        """There was no answer, or a refusal of the whole request: all is judged again after a while."""
        self._in_flight = False
        limits = self.limits
        self._not_before_ms = now_ms + min(limits.backoff_ms << min(self._failures, 16), limits.backoff_max_ms)
        self._failures += 1
        self._is_due = True
        self._walk = self._walk_image = None

    def _begin_anew(self, broker_epoch: int) -> None:
        """Another registration, maybe in another history, where offsets mean something else."""
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
                found += _proposal(*place, state, active)
        return tuple(found)


def _places(image: MetadataImage, broker_id: NodeId) -> Iterator[Place | None]:
    """The partitions of the topics that live on the broker too; None for each other topic, so that passing it counts."""
    for topic in image.topics_by_id.unordered_values():
        if not topic.has_replica_on(broker_id):
            yield None
            continue
        for partition in range(topic.partition_count):
            yield topic.topic_id, partition


def _proposal(
    topic_id: Uuid, partition: int, state: PartitionState, active: Mapping[NodeId, int]
) -> Iterator[IsrProposal]:
    """The proposal for a partition that this broker leads, if there is one to make. `active` has this broker, too."""
    isr = tuple((replica, active[replica]) for replica in state[REPLICAS] if replica in active)
    if state[RECOVERY_STATE] == RECOVERED and all(replica in state[ISR] for replica, _ in isr):
        return
    yield IsrProposal(topic_id, partition, state[LEADER_EPOCH], state[PARTITION_EPOCH], isr)
