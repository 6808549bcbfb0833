"""Topics: creation, growth and deletion. Errors are per topic; the other topics of one request are one atomic batch.

A new partition starts with epochs 0. Its ISR is its online replicas, and its leader is the first of these. Topic ids are
random, so that no id is ever used twice.

Example. A request creates orders, and sales with 0 partitions. Topic orders is created in one batch with all its partitions.
Topic sales gets INVALID_PARTITIONS in its own result.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID, NodeId, Uuid
from metadata_log.format.records import RECOVERED, TOPIC_RESOURCE, Config, MetadataRecord, Partition, RemoveTopic, Topic
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.target_replicas import target_of
from quorum.controller.protocol.commands import (
    DEFAULT_COUNT,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.happenings import (
    Happening,
    PartitionsAdded,
    TopicsCreated,
    TopicsDeleted,
    first_few,
)
from quorum.controller.protocol.topic_rules import (
    Rejected,
    check_assignment,
    check_counts,
    check_name,
    check_replication_factor,
    collision_key,
)
from quorum.controller.topics.configs import check_topic_configs

_VARIANTS_MAX = 8
"""Maximum number of separators in a name whose colliding names are looked up one by one: 2 ** 8 look-ups."""


class Topics:
    """Decides the commands about topics."""

    def __init__(self, config: ControllerConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng

    # --- create ----------------------------------------------------------------------------------------------------

    def create(self, image: MetadataImage, command: CreateTopics, view: BrokerView) -> Decision:
        """Creates topics. Raises ControllerError(POLICY_VIOLATION) if the request as a whole is too large."""
        self._check_size(
            (len(topic.assignment) or self._partitions(topic) for topic in command.topics),
            topic_count=len(command.topics),
            config_count=sum(len(topic.configs) for topic in command.topics),
        )
        named = Counter(topic.name for topic in command.topics)
        taken: dict[str, str] = {}
        """Collision key -> name, for the topics of this request that have no error."""
        records: list[MetadataRecord] = []
        results: list[TopicResult] = []
        for topic in command.topics:
            try:
                if named[topic.name] > 1:
                    raise _named_twice(topic.name, named[topic.name])
                _check_new_name(image, topic.name, taken)
                result, new_records = self._create_one(image, topic, view, validate_only=command.validate_only)
            except Rejected as e:
                results.append(_refused(image, topic.name, e))
                continue
            taken[collision_key(topic.name)] = topic.name
            results.append(result)
            records += new_records
        story = _story(TopicsCreated, results, [result.partitions for result in results]) if records else ()
        return Decision(tuple(records), CreateTopicsReply(results=tuple(results)), happenings=story)

    def _partitions(self, topic: NewTopic) -> int:
        return self._config.default_partitions if topic.partitions == DEFAULT_COUNT else topic.partitions

    def _check_size(self, partition_counts: Iterable[int], *, topic_count: int, config_count: int) -> None:
        limit = self._config.partitions_per_request_max
        partitions = sum(max(0, count) for count in partition_counts)
        if partitions > limit:
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"the request asks for {partitions:,} partitions; at most {limit:,} are allowed in one request; "
                f"nothing was done",
            )
        needed = partitions + topic_count + config_count
        if needed > self._config.records_max:
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"the request needs {needed:,} records ({partitions:,} partitions, {topic_count:,} topics, "
                f"{config_count:,} configs); it is one atomic batch, which holds at most {self._config.records_max:,}; "
                f"nothing was done: send several requests",
            )

    def _create_one(
        self, image: MetadataImage, topic: NewTopic, view: BrokerView, *, validate_only: bool
    ) -> tuple[TopicResult, list[MetadataRecord]]:
        name = topic.name
        check_counts(name, topic.partitions, topic.replication_factor)
        check_topic_configs(name, topic.configs)
        if topic.assignment:
            count, replication_factor = _check_manual(image, topic, view)
        else:
            count = self._partitions(topic)
            replication_factor = topic.replication_factor
            if replication_factor == DEFAULT_COUNT:
                replication_factor = self._config.default_replication_factor
            check_replication_factor(name, replication_factor, len(image.brokers), len(view.active))
        if validate_only:
            return TopicResult(name, partitions=count, replication_factor=replication_factor), []
        placed = list(topic.assignment) or view.placer.place(count, replication_factor)
        topic_id = self._new_topic_id(image)
        records: list[MetadataRecord] = [Topic(name, topic_id)]
        records += [Config(TOPIC_RESOURCE, name, key, value) for key, value in topic.configs]
        records += _new_partitions(topic_id, 0, placed, view)
        result = TopicResult(name, topic_id=topic_id, partitions=count, replication_factor=replication_factor)
        return result, records

    def _new_topic_id(self, image: MetadataImage) -> Uuid:
        while True:
            topic_id = self._rng.randbytes(16)
            if topic_id != ZERO_UUID and image.topic_by_id(topic_id) is None:
                return topic_id

    # --- grow ------------------------------------------------------------------------------------------------------

    def create_partitions(self, image: MetadataImage, command: CreatePartitions, view: BrokerView) -> Decision:
        """Adds partitions to topics. Raises ControllerError(POLICY_VIOLATION) if the request as a whole is too large."""
        self._check_size(
            (grow.total_count - _partition_count(image, grow.name) for grow in command.topics),
            topic_count=0,
            config_count=0,
        )
        named = Counter(grow.name for grow in command.topics)
        records: list[MetadataRecord] = []
        results: list[TopicResult] = []
        for grow in command.topics:
            try:
                if named[grow.name] > 1:
                    raise _named_twice(grow.name, named[grow.name])
                result, new_records = self._grow_one(image, grow, view)
            except Rejected as e:
                results.append(TopicResult(grow.name, e.code, e.message))
                continue
            results.append(result)
            records += new_records
        reply = CreatePartitionsReply(results=tuple(results))
        if command.validate_only or not records:
            return Decision((), reply)
        added = [result.partitions - _partition_count(image, result.name) for result in results]
        return Decision(tuple(records), reply, happenings=_story(PartitionsAdded, results, added))

    def _grow_one(
        self, image: MetadataImage, grow: NewPartitions, view: BrokerView
    ) -> tuple[TopicResult, list[MetadataRecord]]:
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
        first = topic.state(0)
        assert first is not None
        replication_factor = len(target_of(first))
        if grow.assignment:
            if len(grow.assignment) != new:
                raise Rejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"topic {name!r} gets {new} new partitions, but the assignment is for {len(grow.assignment)}",
                )
            check_assignment(
                name,
                grow.assignment,
                image.brokers.__contains__,
                view.active,
                first_partition=have,
                replication_factor=replication_factor,
            )
            placed = list(grow.assignment)
        else:
            check_replication_factor(name, replication_factor, len(image.brokers), len(view.active))
            placed = view.placer.place(new, replication_factor)
        result = TopicResult(
            name, topic_id=topic.topic_id, partitions=grow.total_count, replication_factor=replication_factor
        )
        return result, list(_new_partitions(topic.topic_id, have, placed, view))

    # --- delete ----------------------------------------------------------------------------------------------------

    def delete(self, image: MetadataImage, command: DeleteTopics) -> Decision:
        """Deletes topics. Raises ControllerError: TOPIC_DELETION_DISABLED, POLICY_VIOLATION."""
        if not self._config.topic_deletion_enabled:
            raise ControllerError(
                ErrorCode.TOPIC_DELETION_DISABLED, "topics can't be deleted here: delete.topic.enable is false"
            )
        if len(command.names) > self._config.records_max:
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"the request deletes {len(command.names):,} topics; at most {self._config.records_max:,} are allowed in "
                f"one request; nothing was done",
            )
        named = Counter(command.names)
        records: list[MetadataRecord] = []
        results: list[TopicResult] = []
        for name in command.names:
            topic = image.topic(name)
            if named[name] > 1:
                rejected = _named_twice(name, named[name])
                results.append(TopicResult(name, rejected.code, rejected.message))
            elif topic is None:
                results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"))
            else:
                records.append(RemoveTopic(name, topic.topic_id))
                results.append(TopicResult(name, topic_id=topic.topic_id, partitions=topic.partition_count))
        story = _story(TopicsDeleted, results, [result.partitions for result in results]) if records else ()
        return Decision(tuple(records), DeleteTopicsReply(results=tuple(results)), happenings=story)


def _story(
    kind: type[TopicsCreated] | type[PartitionsAdded] | type[TopicsDeleted],
    results: Sequence[TopicResult],
    partitions: Sequence[int],
) -> tuple[Happening, ...]:
    """Makes the happening of the topics without an error. `partitions`: the number of partitions for each result."""
    good = [(result.name, count) for result, count in zip(results, partitions, strict=True) if not result.error]
    return (kind(len(good), sum(count for _, count in good), first_few(name for name, _ in good)),)


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


def _named_twice(name: str, times: int) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, f"topic {name[:60]!r} is named {times} times in this request")


def _partition_count(image: MetadataImage, name: str) -> int:
    topic = image.topic(name)
    return 0 if topic is None else topic.partition_count


def _check_new_name(image: MetadataImage, name: str, taken: dict[str, str]) -> None:
    check_name(name)
    if name in image.topic_ids:
        raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    other = taken.get(collision_key(name)) or _colliding(image, name)
    if other is not None:
        raise Rejected(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} collides with {other!r}: metrics can't tell '.' from '_'",
        )


def _colliding(image: MetadataImage, name: str) -> str | None:
    """Returns a topic whose name differs only in '.' and '_'; None if there is none."""
    key = collision_key(name)
    separators = key.count("_")
    if separators > _VARIANTS_MAX:
        names = (topic.name for topic in image.topics_by_id.unordered_values())
        return min((other for other in names if collision_key(other) == key), default=None)
    return next((other for other in _variants(key, separators) if other in image.topic_ids), None)


def _variants(key: str, separators: int) -> Iterator[str]:
    if separators:
        parts = key.split("_")
        for choice in product("._", repeat=separators):
            yield "".join(part + separator for part, separator in zip(parts, (*choice, ""), strict=True))


def _check_manual(image: MetadataImage, topic: NewTopic, view: BrokerView) -> tuple[int, int]:
    name, assignment = topic.name, topic.assignment
    check_assignment(name, assignment, image.brokers.__contains__, view.active)
    counts = (
        ("partitions", topic.partitions, len(assignment)),
        ("replication factor", topic.replication_factor, len(assignment[0])),
    )
    for what, said, assigned in counts:
        if said not in (DEFAULT_COUNT, assigned):
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"topic {name!r}: {what} is {said}, but the assignment has {assigned}: leave it at -1 beside an assignment",
            )
    return len(assignment), len(assignment[0])


def _new_partitions(
    topic_id: Uuid, first: int, placed: list[tuple[NodeId, ...]], view: BrokerView
) -> Iterator[Partition]:
    active = view.active
    everybody_is_active = view.placer.online_count == view.placer.broker_count
    for number, replicas in enumerate(placed, first):
        isr = replicas if everybody_is_active else tuple([replica for replica in replicas if replica in active])
        yield Partition(topic_id, number, replicas, isr, (), (), isr[0], RECOVERED, 0, 0)
