"""Topics: creation, growth and deletion. Errors are per topic; the other topics of one request take effect together.

A new partition starts with epochs 0. Its ISR is its online replicas, and its leader is the first of these that may lead. Topic
ids are random, so that no id is ever used twice.

Example. A request creates orders, and sales with 0 partitions. Topic orders is created in one batch with all its partitions.
Topic sales gets INVALID_PARTITIONS in its own result. If orders is to have 20,000 partitions, it is created in one transaction
of twenty-one batches instead, if the level of metadata.version allows transactions.
"""

import random
from collections.abc import Iterable, Sequence

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import MetadataRecord
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.protocol.commands import CommandReply, FollowUpReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision, allows_transactions
from quorum.controller.protocol.happenings import Happening, PartitionsAdded, TopicsCreated, TopicsDeleted, first_few
from quorum.controller.protocol.topic_commands import (
    ContinueTopics,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    TopicResult,
)
from quorum.controller.topics.taken_names import lookups_cost
from quorum.controller.topics.topic_pieces import TOPIC_COST, TopicPieces, deleted


class Topics:
    """Decides the commands about topics."""

    def __init__(self, config: ControllerConfig, rng: random.Random) -> None:
        self._config = config
        self._pieces = TopicPieces(config, rng)

    # --- create and grow -------------------------------------------------------------------------------------------

    def create(self, image: MetadataImage, command: CreateTopics, view: BrokerView) -> Decision:
        """Creates topics. Raises ControllerError(POLICY_VIOLATION) if the request as a whole is too large."""
        counts = (len(topic.assignment) or self._pieces.partitions(topic) for topic in command.topics)
        config_count = sum(len(topic.configs) for topic in command.topics)
        is_large = self._is_large(image, counts, topic_count=len(command.topics), config_count=config_count)
        is_large = is_large or (allows_transactions(image) and self._is_costly(command))
        results: list[TopicResult] = []
        pieces = self._pieces.created(image, command, view, results)
        return self._next(ContinueTopics(command, image, pieces, results), is_large=is_large)

    def create_partitions(self, image: MetadataImage, command: CreatePartitions, view: BrokerView) -> Decision:
        """Adds partitions to topics. Raises ControllerError(POLICY_VIOLATION) if the request as a whole is too large."""
        counts = (grow.total_count - _partition_count(image, grow.name) for grow in command.topics)
        is_large = self._is_large(image, counts, topic_count=0, config_count=0)
        results: list[TopicResult] = []
        pieces = self._pieces.grown(image, command, view, results)
        return self._next(ContinueTopics(command, image, pieces, results), is_large=is_large)

    def _is_large(
        self, image: MetadataImage, partition_counts: Iterable[int], *, topic_count: int, config_count: int
    ) -> bool:
        """True if the request is decided slice by slice, as one transaction. Raises ControllerError(POLICY_VIOLATION)."""
        config = self._config
        may_be_large = allows_transactions(image)
        limit = config.partitions_per_transaction_max if may_be_large else config.partitions_per_request_max
        partitions = sum(max(0, count) for count in partition_counts)
        if partitions > limit:
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"the request asks for {partitions:,} partitions; at most {limit:,} are allowed in one request; "
                f"nothing was done",
            )
        needed = partitions + topic_count + config_count
        records_max = config.transaction_records_max if may_be_large else config.records_max
        if needed > records_max:
            whole = "transaction" if may_be_large else "batch"
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"the request needs {needed:,} records ({partitions:,} partitions, {topic_count:,} topics, "
                f"{config_count:,} configs); it is one atomic {whole}, which holds at most {records_max:,}; "
                f"nothing was done: send several requests",
            )
        return may_be_large and needed > config.one_batch_records_max

    def _is_costly(self, command: CreateTopics) -> bool:
        """True if the looks at many new topics would make one batch as long as too many records do."""
        room = self._config.one_batch_records_max - TOPIC_COST * (len(command.topics) - 1)
        return room < 0 or (len(command.topics) > 1 and sum(lookups_cost(each.name) for each in command.topics) > room)

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
        results: list[TopicResult] = []
        pieces = deleted(image, command, results)
        cost = TOPIC_COST * (len(command.names) - 1)
        is_large = allows_transactions(image) and cost > self._config.one_batch_records_max
        return self._next(ContinueTopics(command, image, pieces, results), is_large=is_large)

    # --- slices ----------------------------------------------------------------------------------------------------

    def go_on(self, rest: ContinueTopics) -> Decision:
        """Decides the next slice of a large request. The reply of the last slice has the results of all topics."""
        return self._next(rest, is_large=True)

    def _next(self, rest: ContinueTopics, *, is_large: bool) -> Decision:
        command = rest.command
        only_validates = not isinstance(command, DeleteTopics) and command.validate_only
        transaction = type(command).__name__ if is_large and not only_validates else ""
        records: list[MetadataRecord] = []
        cost = 0
        for piece in rest.pieces:
            records += piece.records
            cost += piece.cost
            if is_large and cost >= self._config.transaction_slice_records:
                return Decision(tuple(records), FollowUpReply(), rest, transaction=transaction)
        reply, story = _finished(rest)
        has_written = not only_validates and any(result.error is ErrorCode.NONE for result in rest.results)
        return Decision(tuple(records), reply, happenings=story if has_written else (), transaction=transaction)


def _finished(rest: ContinueTopics) -> tuple[CommandReply, tuple[Happening, ...]]:
    """The reply to a request whose last slice is decided, and its story."""
    results = tuple(rest.results)
    counts = [result.partitions for result in results]
    match rest.command:
        case CreateTopics():
            return CreateTopicsReply(results=results), _story(TopicsCreated, results, counts)
        case DeleteTopics():
            return DeleteTopicsReply(results=results), _story(TopicsDeleted, results, counts)
        case CreatePartitions():
            added = [result.partitions - _partition_count(rest.before, result.name) for result in results]
            return CreatePartitionsReply(results=results), _story(PartitionsAdded, results, added)


def _story(
    kind: type[TopicsCreated] | type[PartitionsAdded] | type[TopicsDeleted],
    results: Sequence[TopicResult],
    partitions: Sequence[int],
) -> tuple[Happening, ...]:
    """Makes the happening of the topics without an error. `partitions`: the number of partitions for each result."""
    good = [(result.name, count) for result, count in zip(results, partitions, strict=True) if not result.error]
    return (kind(len(good), sum(count for _, count in good), first_few(name for name, _ in good)),)


def _partition_count(image: MetadataImage, name: str) -> int:
    topic = image.topic(name)
    return 0 if topic is None else topic.partition_count
