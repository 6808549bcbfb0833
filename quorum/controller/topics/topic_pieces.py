"""The records of new topics and of new partitions, in pieces: each piece is little work, and a request may have any number.

A request of one batch takes all its pieces in one decision, a larger request takes some pieces in each slice of its transaction.
The records are the same. Example with pieces of 250 records:
    1. a request creates `orders` with 600 partitions, and `sales` with 0 partitions;
    2. the first piece is the Topic record of `orders` and the partitions 0 to 249, the next two are the other partitions;
    3. the last piece is empty: `sales` gets INVALID_PARTITIONS in its own result.

All checks of a topic come before its first record, and see the image before the request. In a transaction this image stays
right, because nothing else is decided meanwhile.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID, NodeId, Uuid
from metadata_log.format.records import RECOVERED, TOPIC_RESOURCE, Config, MetadataRecord, Partition, RemoveTopic, Topic
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.target_replicas import target_of
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.pieces import Piece
from quorum.controller.protocol.policy import NewPartitionsRequest, NewTopicRequest
from quorum.controller.protocol.topic_commands import (
    DEFAULT_COUNT,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from quorum.controller.protocol.topic_rules import (
    Rejected,
    check_assignment,
    check_counts,
    check_policy,
    check_replication_factor,
)
from quorum.controller.topics.configs import check_topic_configs
from quorum.controller.topics.taken_names import TakenNames

PIECE_RECORDS: Final = 250
"""Maximum number of partitions in a piece: about 1 ms of work."""
TOPIC_COST: Final = 5
"""The cost of looking at a topic, in records."""


class TopicPieces:
    """Makes the pieces of the requests about topics. The results of the topics go into a list of the caller."""

    def __init__(self, config: ControllerConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._step = min(PIECE_RECORDS, config.transaction_slice_records)

    def partitions(self, topic: NewTopic) -> int:
        """How many partitions a new topic gets, without a look at an assignment."""
        return self._config.default_partitions if topic.partitions == DEFAULT_COUNT else topic.partitions

    # --- create ----------------------------------------------------------------------------------------------------

    def created(
        self, image: MetadataImage, command: CreateTopics, view: BrokerView, results: list[TopicResult]
    ) -> Iterator[Piece]:
        """The pieces of new topics."""
        named = Counter(topic.name for topic in command.topics)
        names = TakenNames(image)
        for topic in command.topics:
            try:
                if named[topic.name] > 1:
                    raise _named_twice(topic.name, named[topic.name])
                yield from names.check(topic.name)
                yield from self._create_one(image, topic, view, results, validate_only=command.validate_only)
                names.take(topic.name)
            except Rejected as e:
                results.append(_refused(image, topic.name, e))
                yield Piece([], TOPIC_COST)

    def _create_one(
        self,
        image: MetadataImage,
        topic: NewTopic,
        view: BrokerView,
        results: list[TopicResult],
        *,
        validate_only: bool,
    ) -> Iterator[Piece]:
        name = topic.name
        check_counts(name, topic.partitions, topic.replication_factor)
        check_topic_configs(name, topic.configs, image.config_definitions)
        if topic.assignment:
            count, replication_factor = len(topic.assignment), len(topic.assignment[0])
            yield from self._check_assignment(image, name, topic.assignment, view, 0, replication_factor)
            _check_no_other_counts(topic)
        else:
            count = self.partitions(topic)
            replication_factor = topic.replication_factor
            if replication_factor == DEFAULT_COUNT:
                replication_factor = self._config.default_replication_factor
            check_replication_factor(name, replication_factor, *view.capacity)
        request = NewTopicRequest(name, count, replication_factor, dict(topic.configs))
        check_policy(self._config.policy.check_new_topic(request), f"topic {name!r}")
        if validate_only:
            results.append(TopicResult(name, partitions=count, replication_factor=replication_factor))
            yield Piece([], TOPIC_COST)
            return
        placed = self._placed(topic.assignment, view, count, replication_factor)
        first = next(placed)
        topic_id = self._new_topic_id(image)
        head: list[MetadataRecord] = [Topic(name, topic_id)]
        head += [Config(TOPIC_RESOURCE, name, key, value) for key, value in topic.configs]
        head += _new_partitions(topic_id, 0, first, view, image.first_epoch)
        results.append(TopicResult(name, topic_id=topic_id, partitions=count, replication_factor=replication_factor))
        yield Piece(head, len(head) + TOPIC_COST)
        yield from _partition_pieces(topic_id, len(first), placed, view, image.first_epoch)

    def _new_topic_id(self, image: MetadataImage) -> Uuid:
        while True:
            topic_id = self._rng.randbytes(16)
            if topic_id != ZERO_UUID and image.topic_by_id(topic_id) is None:
                return topic_id

    # --- grow ------------------------------------------------------------------------------------------------------

    def grown(
        self, image: MetadataImage, command: CreatePartitions, view: BrokerView, results: list[TopicResult]
    ) -> Iterator[Piece]:
        """The pieces of new partitions."""
        named = Counter(grow.name for grow in command.topics)
        for grow in command.topics:
            try:
                if named[grow.name] > 1:
                    raise _named_twice(grow.name, named[grow.name])
                yield from self._grow_one(image, grow, view, results, validate_only=command.validate_only)
            except Rejected as e:
                results.append(TopicResult(grow.name, e.code, e.message))
                yield Piece([], TOPIC_COST)

    def _grow_one(
        self,
        image: MetadataImage,
        grow: NewPartitions,
        view: BrokerView,
        results: list[TopicResult],
        *,
        validate_only: bool,
    ) -> Iterator[Piece]:
        name = grow.name
        topic = image.topic(name)
        if topic is None:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        have = topic.partition_count
        new = grow.total_count - have
        if new <= 0:
            problem = f"it has {have} already" if new == 0 else f"it has {have}, and partitions can't be taken away"
            raise Rejected(
                ErrorCode.INVALID_PARTITIONS, f"topic {name!r} is to have {grow.total_count} partitions, but {problem}"
            )
        state = topic.state(0)
        assert state is not None
        replication_factor = len(target_of(state))
        if grow.assignment:
            if len(grow.assignment) != new:
                raise Rejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"topic {name!r} gets {new} new partitions, but the assignment is for {len(grow.assignment)}",
                )
            yield from self._check_assignment(image, name, grow.assignment, view, have, replication_factor)
        else:
            check_replication_factor(name, replication_factor, *view.capacity)
        growth = NewPartitionsRequest(name, have, grow.total_count)
        check_policy(self._config.policy.check_new_partitions(growth), f"topic {name!r}")
        results.append(
            TopicResult(
                name, topic_id=topic.topic_id, partitions=grow.total_count, replication_factor=replication_factor
            )
        )
        yield Piece([], TOPIC_COST)
        if not validate_only:
            placed = self._placed(grow.assignment, view, new, replication_factor)
            yield from _partition_pieces(topic.topic_id, have, placed, view, image.first_epoch)

    # --- both ------------------------------------------------------------------------------------------------------

    def _check_assignment(
        self,
        image: MetadataImage,
        name: str,
        assignment: Sequence[tuple[NodeId, ...]],
        view: BrokerView,
        first_partition: int,
        replication_factor: int,
    ) -> Iterator[Piece]:
        """Checks piece by piece. Raises Rejected(INVALID_REPLICA_ASSIGNMENT)."""
        for first in range(0, len(assignment), self._step):
            some = assignment[first : first + self._step]
            check_assignment(
                name,
                some,
                image.brokers.__contains__,
                view.may_lead,
                first_partition=first_partition + first,
                replication_factor=replication_factor,
            )
            yield Piece([], len(some))

    def _placed(
        self, assignment: Sequence[tuple[NodeId, ...]], view: BrokerView, count: int, replication_factor: int
    ) -> Iterator[Sequence[tuple[NodeId, ...]]]:
        """The replicas of `count` partitions, as assigned by the request or placed now."""
        for first in range(0, count, self._step):
            size = min(self._step, count - first)
            yield assignment[first : first + size] or view.placer.place(size, replication_factor)


def deleted(image: MetadataImage, command: DeleteTopics, results: list[TopicResult]) -> Iterator[Piece]:
    """The pieces of deletions of topics: a record each, which takes all partitions along."""
    named = Counter(command.names)
    for name in command.names:
        topic = image.topic(name)
        records: list[MetadataRecord] = []
        if named[name] > 1:
            rejected = _named_twice(name, named[name])
            results.append(TopicResult(name, rejected.code, rejected.message))
        elif topic is None:
            results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"))
        else:
            records = [RemoveTopic(name, topic.topic_id)]
            results.append(TopicResult(name, topic_id=topic.topic_id, partitions=topic.partition_count))
        yield Piece(records, TOPIC_COST)


def _partition_pieces(
    topic_id: Uuid, first: int, placed: Iterator[Sequence[tuple[NodeId, ...]]], view: BrokerView, epoch: int
) -> Iterator[Piece]:
    for some in placed:
        yield Piece([*_new_partitions(topic_id, first, some, view, epoch)], len(some))
        first += len(some)


def _new_partitions(
    topic_id: Uuid, first: int, placed: Sequence[tuple[NodeId, ...]], view: BrokerView, epoch: int
) -> Iterator[Partition]:
    active, may_lead = view.active, view.may_lead
    everybody_may_lead = len(may_lead) == len(view.brokers)
    for number, replicas in enumerate(placed, first):
        isr, leader = replicas, replicas[0]
        if not everybody_may_lead:
            isr = tuple([replica for replica in replicas if replica in active])
            leader = next(replica for replica in isr if replica in may_lead)
        yield Partition(topic_id, number, replicas, isr, (), (), leader, RECOVERED, epoch, epoch)


# --- checks --------------------------------------------------------------------------------------------------------


def _named_twice(name: str, times: int) -> Rejected:
    """The refusal of a topic that the request names several times."""
    return Rejected(ErrorCode.INVALID_REQUEST, f"topic {name[:60]!r} is named {times} times in this request")


def _refused(image: MetadataImage, name: str, rejected: Rejected) -> TopicResult:
    """Makes the result of a refused topic. For a topic that exists it describes that topic, which saves a second request."""
    topic = image.topic(name) if rejected.code is ErrorCode.TOPIC_ALREADY_EXISTS else None
    if topic is None:
        return TopicResult(name, rejected.code, rejected.message)
    first = topic.state(0)
    assert first is not None
    return TopicResult(
        name, rejected.code, rejected.message, topic.topic_id, topic.partition_count, len(target_of(first))
    )


def _check_no_other_counts(topic: NewTopic) -> None:
    counts = (
        ("partitions", topic.partitions, len(topic.assignment)),
        ("replication factor", topic.replication_factor, len(topic.assignment[0])),
    )
    for what, said, assigned in counts:
        if said not in (DEFAULT_COUNT, assigned):
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name!r}: {what} is {said}, but the assignment has {assigned}: leave it at -1 beside an assignment",
            )
