"""Transactions on entities, topics and configs: compare, and then do everything in one batch, or nothing.

All conditions see the image before the transaction. A condition that does not hold is an answer, not an error. An operation
that is not possible refuses the whole transaction, and the text names the operation by its place, if there are several.

    1  A worker reads ("task", "7") with the version 500, and the owner none.
    2  It sends: if ("task", "7") has the version 500, put ("task", "7") with its session as the owner, and create topic `task-7`.
    3  Nobody has written the task meanwhile: one batch has the topic, its partitions and the entity.
    4  Another worker has sent the same in step 2: the version is 512 now. This worker gets `failed`, and nothing is done.

No entity, topic or config resource is named twice, so no operation depends on another one, and all are decided on one image.
Operations on topics and configs are decided by the same functions as requests of their own. Their records come first:
configs, deletions, creations. A decision that would need several batches is refused.

The epoch of a session is the offset of its record, and an entity names the epoch of its owner. So an entity with a TTL names
an offset of its own batch. The image ends where the batch begins (`image.offset`), so the decision knows this offset. Replay
checks it.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.format.batch import BATCH_BYTES_MAX
from metadata_log.format.entity_names import EntityName, entity_name_problem, kind_problem
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import uuid_text
from metadata_log.format.records import (
    FROM_OFFSET,
    SESSION_CLOSED,
    SESSION_NAME_CHARS_MAX,
    SESSION_REPLACED,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    TOPIC_RESOURCE,
    ClientSession,
    EndClientSession,
    Entity,
    MetadataRecord,
    Owner,
    RemoveEntity,
)
from metadata_log.image.entity_index import is_live
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.entities.limits import Growth, limits_of
from quorum.controller.entities.schemas import Budget, check_value
from quorum.controller.entities.sessions import HIDDEN, is_hidden
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.protocol.commands import CommandReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import AlterConfigs, AlterConfigsReply, ConfigAlteration, ConfigResult
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.entity_commands import (
    CREATED_TOPICS_MAX,
    ENTITIES_LEVEL,
    OPERATIONS_MAX,
    DeleteEntity,
    DeleteTopic,
    FailedCondition,
    Operation,
    OperationResult,
    PutEntity,
    Transact,
    TransactReply,
    operation_place,
)
from quorum.controller.protocol.feature_gate import require_level
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.topic_commands import (
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    NewTopic,
    TopicResult,
)
from quorum.controller.topics.configs import alter_configs
from quorum.controller.topics.topic_commands import Topics


class Surroundings(NamedTuple):
    """What a transaction is decided by, besides the image."""

    topics: Topics
    view: BrokerView
    config: ControllerConfig
    rng: random.Random


def transact(image: MetadataImage, command: Transact, around: Surroundings) -> Decision:
    """Decides a transaction.

    Raises:
        ControllerError: nothing was done. UNSUPPORTED_VERSION, INVALID_REQUEST, POLICY_VIOLATION, INVALID_ENTITY,
        UNKNOWN_SESSION,
            RECORD_BATCH_TOO_LARGE, and the errors of requests about topics and configs.
    """
    require_level(image, ENTITIES_LEVEL, "a transaction on entities")
    _check_form(command)
    for index, condition in enumerate(command.conditions):
        found = image.entity(*condition.entity)
        if not condition.holds(found):
            return Decision((), TransactReply(failed=FailedCondition(index, found)))
    work = _Work(image, around, len(command.operations))
    work.topics_and_configs(command.operations)
    for index, operation in enumerate(command.operations):
        if isinstance(operation, PutEntity):
            work.put(index, operation)
        elif isinstance(operation, DeleteEntity):
            work.delete(index, operation.entity)
    work.growth.check()
    if len(work.records) > around.config.records_max:
        raise _several_batches(f"{len(work.records):,} records")
    results = tuple([work.results.get(index, OperationResult()) for index in range(len(command.operations))])
    reply = TransactReply(operations=results, record_count=len(work.records))
    return Decision(tuple(work.records), reply, happenings=tuple(work.happenings))


# --- the form ------------------------------------------------------------------------------------------------------


def _check_form(command: Transact) -> None:
    """Checks all that needs no image. Raises ControllerError."""
    operations, conditions = command.operations, command.conditions
    if not 1 <= len(operations) <= OPERATIONS_MAX:
        raise _bad(f"a transaction has 1 to {OPERATIONS_MAX} operations, not {len(operations)}")
    if len(conditions) > OPERATIONS_MAX:
        raise _bad(f"a transaction has at most {OPERATIONS_MAX} conditions, not {len(conditions)}")
    for index, condition in enumerate(conditions):
        _check_name(f"condition {index}: ", condition.entity)
    created = sum(isinstance(each, NewTopic) for each in operations)
    if created > CREATED_TOPICS_MAX:
        raise _bad(f"a transaction creates at most {CREATED_TOPICS_MAX} topics, not {created}")
    seen: dict[tuple[object, ...], int] = {}
    size = 0
    for index, operation in enumerate(operations):
        where = operation_place(index, len(operations))
        if isinstance(operation, PutEntity | DeleteEntity):
            _check_name(where, operation.entity)
        if isinstance(operation, PutEntity):
            size += len(operation.value)
            _check_put(where, operation)
        first = seen.setdefault(_named(operation), index)
        if first != index:
            raise _bad(f"operations {first} and {index} name the same thing; a transaction names each thing once")
    if size > BATCH_BYTES_MAX:
        raise ControllerError(
            ErrorCode.RECORD_BATCH_TOO_LARGE,
            f"the values have {size:,} bytes together, and a transaction is one batch of at most {BATCH_BYTES_MAX:,} bytes; "
            "nothing was done",
        )


def _check_name(where: str, name: EntityName) -> None:
    problem = kind_problem(name[0]) or entity_name_problem(name[1])
    if problem is not None:
        raise _bad(f"{where}{problem}")


def _check_put(where: str, put: PutEntity) -> None:
    if (put.owner is not None) + (put.ttl_ms != 0) + put.keep_owner > 1:
        raise _bad(f"{where}a put has one of owner, ttl_ms and keep_owner")
    if put.ttl_ms and not SESSION_TIMEOUT_MS_MIN <= put.ttl_ms <= SESSION_TIMEOUT_MS_MAX:
        limits = f"{SESSION_TIMEOUT_MS_MIN:,} to {SESSION_TIMEOUT_MS_MAX:,}"
        raise _bad(f"{where}ttl_ms is {limits}, not {put.ttl_ms:,}")


def _named(operation: Operation) -> tuple[object, ...]:
    """The thing that an operation names. The configs of a topic are the topic."""
    match operation:
        case PutEntity() | DeleteEntity():
            return ("entity", *operation.entity)
        case NewTopic() | DeleteTopic():
            return ("topic", operation.name)
        case ConfigAlteration():
            is_topic = operation.resource_type == TOPIC_RESOURCE
            return ("topic" if is_topic else operation.resource_type, operation.resource_name)


def _bad(text: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_REQUEST, f"{text}; nothing was done")


def _several_batches(what: str) -> ControllerError:
    text = (
        f"{what}: too much for one batch, and a transaction is one batch; nothing was done: send a request of its own"
    )
    return ControllerError(ErrorCode.POLICY_VIOLATION, text)


# --- the work ------------------------------------------------------------------------------------------------------


class _Work:
    """The records of one transaction, while they are made."""

    def __init__(self, image: MetadataImage, around: Surroundings, count: int) -> None:
        """`count`: how many operations the transaction has."""
        self._image = image
        self._count = count
        self._around = around
        self._budget = Budget()
        self.records: list[MetadataRecord] = []
        self.results: dict[int, OperationResult] = {}
        self.happenings: list[Happening] = []
        self.growth = Growth(image)

    def _where(self, index: int) -> str:
        return operation_place(index, self._count)

    # --- topics and configs ---

    def topics_and_configs(self, operations: Sequence[Operation]) -> None:
        """Decides the operations that have requests of their own, and takes their records."""
        image, around = self._image, self._around
        alterations = {i: each for i, each in enumerate(operations) if isinstance(each, ConfigAlteration)}
        deleted = {i: each.name for i, each in enumerate(operations) if isinstance(each, DeleteTopic)}
        created = {i: each for i, each in enumerate(operations) if isinstance(each, NewTopic)}
        if alterations:
            self._take([*alterations], alter_configs(image, AlterConfigs(tuple(alterations.values())), around.config))
        if deleted:
            self._take([*deleted], around.topics.delete(image, DeleteTopics(tuple(deleted.values()))))
        if created:
            self._take([*created], around.topics.create(image, CreateTopics(tuple(created.values())), around.view))

    def _take(self, places: Sequence[int], decision: Decision) -> None:
        """Takes a decision about the operations at `places`, if it has no errors and is one batch."""
        if decision.then is not None or decision.transaction:
            raise _several_batches(self._where(places[0]).removesuffix(": ") or "the operation")
        reply: CommandReply = decision.reply
        assert isinstance(reply, CreateTopicsReply | DeleteTopicsReply | AlterConfigsReply)
        results: Sequence[TopicResult | ConfigResult] = reply.results
        for place, result in zip(places, results, strict=True):
            if result.error is not ErrorCode.NONE:
                raise ControllerError(result.error, f"{self._where(place)}{result.message}; nothing was done")
            if isinstance(reply, CreateTopicsReply):
                assert isinstance(result, TopicResult)
                self.results[place] = OperationResult(topic_id=result.topic_id)
        self.records += decision.records
        self.happenings += decision.happenings

    # --- entities ---

    def put(self, index: int, put: PutEntity) -> None:
        """Writes one entity, after the session of its own if it has a TTL, and before the end of an earlier one."""
        image, kind = self._image, put.entity[0]
        declared = image.entity_kinds.get(kind)
        limit = limits_of(declared).value_bytes
        if len(put.value) > limit:
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._where(index)}the value has {len(put.value):,} bytes; kind {kind} allows {limit:,}; nothing was done",
            )
        if declared is not None and declared.schema:
            problem = check_value(declared.schema, put.value, self._budget)
            if problem is not None:
                text = f"{self._where(index)}the schema of kind {kind} refuses the value: {problem}; nothing was done"
                raise ControllerError(ErrorCode.INVALID_ENTITY, text)
        old = image.entity(*put.entity)
        owner = self._owner_of(index, put, old)
        record = Entity(*put.entity, put.value, owner, FROM_OFFSET if old is None else old.created)
        self.results[index] = OperationResult(place=len(self.records))
        self.records.append(record)
        self.growth.exchange(old, record)
        if old is not None and old.owner != owner:
            self._end_hidden(old.owner, SESSION_REPLACED)

    def _owner_of(self, index: int, put: PutEntity, old: Entity | None) -> Owner | None:
        if put.keep_owner:
            if old is None:
                raise _bad(f"{self._where(index)}keep_owner is set, and there is no entity {put.entity}")
            return old.owner
        if put.ttl_ms:
            return self._open_hidden(put)
        if put.owner is not None:
            self._check_live(index, put.owner)
        return put.owner

    def _check_live(self, index: int, owner: Owner) -> None:
        sessions = self._image.client_sessions
        session = None if owner.session_id is None else sessions.get(owner.session_id)
        if is_live(owner, sessions, self._image.brokers) and not (session is not None and is_hidden(session)):
            return
        who = f"broker {owner.broker_id}" if owner.session_id is None else f"session {uuid_text(owner.session_id)}"
        raise ControllerError(
            ErrorCode.UNKNOWN_SESSION,
            f"{self._where(index)}{who} of epoch {owner.epoch} is not open; nothing was done: open a session",
        )

    def _open_hidden(self, put: PutEntity) -> Owner:
        """Opens a session for one entity with a TTL."""
        session_id = self._around.rng.randbytes(16)
        name = f"ttl {put.entity[0]}/{put.entity[1]}"[:SESSION_NAME_CHARS_MAX]
        owner = Owner(session_id, None, self._image.offset + len(self.records))
        self.records.append(ClientSession(session_id, name, HIDDEN, put.ttl_ms))
        self.growth.sessions += 1
        return owner

    def delete(self, index: int, name: EntityName) -> None:
        """Deletes one entity, with the session of its own if it has a TTL."""
        old = self._image.entity(*name)
        if old is None:
            return
        self.results[index] = OperationResult(old.version)
        self.records.append(RemoveEntity(*name))
        self.growth.exchange(old, None)
        self._end_hidden(old.owner, SESSION_CLOSED)

    def _end_hidden(self, owner: Owner | None, reason: str) -> None:
        """Ends the session of an entity that had a TTL and has it no more."""
        if owner is None or owner.session_id is None:
            return
        session = self._image.client_sessions.get(owner.session_id)
        if session is not None and is_hidden(session):
            self.records.append(EndClientSession(owner.session_id, owner.epoch, reason))
            self.growth.sessions -= 1
