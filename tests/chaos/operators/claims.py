"""Claims: each answer to an operator is a list of statements about the metadata at the answer's offset.

A change claims its effect, and a read claims all that it has shown. The judge replays the committed log, and asks each claim at
its offset (`tests.chaos.judge.operator_witness`). So one rule finds a lost change and a wrong read. Example:

    1. Operator 2 drains broker 103, and is answered at offset 900: `ModeOf(103, "maintenance")`.
    2. Operator 3 lists the brokers, and sees no mode, as of offset 950: `ModeOf(103, "")`.
    3. If no batch from 900 to 950 ends the mode, one of the two claims is false at its offset: the second, or, if the log has no
       mode at 900, the first.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import (
    ADDING,
    ELR,
    ISR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    REMOVING,
    REPLICAS,
    PartitionState,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.modes import mode_of
from quorum.controller.features.updates import level_of_feature
from quorum.controller.partitions.target_replicas import is_reassigning, target_of

NO_MODE_WORD: Final = ""


class PartitionCount(NamedTuple):
    """The topic has so many partitions; 0: there is no such topic."""

    topic: str
    partitions: int

    def contradiction(self, image: MetadataImage) -> str | None:
        topic = image.topic(self.topic)
        return differs(self.partitions, 0 if topic is None else topic.partition_count)


class LeaderOf(NamedTuple):
    """The broker leads the partition."""

    topic: str
    partition: int
    leader: NodeId

    def contradiction(self, image: MetadataImage) -> str | None:
        state = _state(image, self.topic, self.partition)
        return differs(self.leader, None if state is None else state[LEADER])


class TargetOf(NamedTuple):
    """The partition has these replicas, or is on its way to them. None: no reassignment is in progress."""

    topic: str
    partition: int
    target: tuple[NodeId, ...] | None

    def contradiction(self, image: MetadataImage) -> str | None:
        state = _state(image, self.topic, self.partition)
        if self.target is None:
            is_moving = state is not None and is_reassigning(state)
            return "the log says that a reassignment is in progress" if is_moving else None
        return differs(self.target, None if state is None else target_of(state))


class PartitionSeen(NamedTuple):
    """A read has shown the partition like this."""

    topic: str
    partition: int
    leader: NodeId
    epochs: tuple[int, int]
    """The leader epoch and the partition epoch."""
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    moves: tuple[tuple[NodeId, ...], tuple[NodeId, ...]] = ((), ())
    """The adding and the removing replicas."""

    @classmethod
    def of(cls, topic: str, partition: int, state: PartitionState) -> "PartitionSeen":
        """The claim that is true of the state."""
        epochs = state[LEADER_EPOCH], state[PARTITION_EPOCH]
        moves = state[ADDING], state[REMOVING]
        return cls(topic, partition, state[LEADER], epochs, state[REPLICAS], state[ISR], state[ELR], moves)

    def contradiction(self, image: MetadataImage) -> str | None:
        state = _state(image, self.topic, self.partition)
        if state is None:
            return "the log has no such partition"
        return differs(self, PartitionSeen.of(self.topic, self.partition, state))


class ModeOf(NamedTuple):
    """An operator has given the broker this mode, as a word; empty: none."""

    broker_id: NodeId
    word: str

    def contradiction(self, image: MetadataImage) -> str | None:
        mode = mode_of(image, self.broker_id)
        return differs(self.word, NO_MODE_WORD if mode is None else mode.word)


class LevelOf(NamedTuple):
    """The feature has this level; 0: it is off."""

    feature: str
    level: int

    def contradiction(self, image: MetadataImage) -> str | None:
        return differs(self.level, level_of_feature(image, self.feature))


class SettingOf(NamedTuple):
    """The config has this value on the resource itself; None: it is not set there."""

    resource_type: int
    name: str
    key: str
    value: str | None

    def contradiction(self, image: MetadataImage) -> str | None:
        values: Mapping[str, str] = image.config(self.resource_type, self.name)
        return differs(self.value, values.get(self.key))


class Claim(Protocol):
    """A statement about an image."""

    def contradiction(self, image: MetadataImage) -> str | None:
        """What the image has instead; None: the claim is true."""


def _state(image: MetadataImage, name: str, partition: int) -> PartitionState | None:
    topic = image.topic(name)
    return None if topic is None else topic.state(partition)


def differs(claimed: object, found: object) -> str | None:
    return None if claimed == found else f"the log says {found}"


def leader_or_none(message: object) -> NodeId:
    """The leader in an answer, where the field is unset if nobody leads."""
    return int(message.leader_id) if message.HasField("leader_id") else NO_LEADER  # type: ignore[attr-defined]
