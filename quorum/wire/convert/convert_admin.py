"""Translates between protobuf and AdminService's changes: commands and their replies. Decides nothing.

`convert_reads` has the answers of the reads.
"""

from collections.abc import Iterable, Sequence

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.topic_names import TOPIC_NAME_CHARS_MAX, topic_name_problem
from quorum.controller.protocol.commands import FenceBrokerReply, UnregisterBrokerReply
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.election_commands import (
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.mode_commands import BrokerModeReply
from quorum.controller.protocol.topic_commands import (
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
from quorum.wire.convert.errors import BadMessage, item_error

ENTRIES_MAX = 10_000
"""Maximum number of topics, partitions, configs, resources or operations in one request. More would not fit into one decision."""
REPLICAS_MAX = 300_000
"""Maximum number of replicas in the assignments of one request: 10,000 partitions with 30 replicas each."""

_OPERATIONS = {
    admin_pb2.ConfigOperation.SET: ConfigOperationKind.SET,
    admin_pb2.ConfigOperation.DELETE: ConfigOperationKind.DELETE,
    admin_pb2.ConfigOperation.APPEND: ConfigOperationKind.APPEND,
    admin_pb2.ConfigOperation.SUBTRACT: ConfigOperationKind.SUBTRACT,
}


def at_most(count: int, what: str, limit: int = ENTRIES_MAX) -> None:
    """Raises BadMessage if a request names more than `limit`."""
    if count > limit:
        raise BadMessage(f"{count} {what} in one request; at most {limit}: send several requests")


def countable(topics: Iterable[admin_pb2.NewTopic | admin_pb2.NewPartitions]) -> None:
    """Counts the lists of a request before they are translated, and raises BadMessage if they are too many.

    Example: a request of 4 MB with 1,900,000 empty replica lists. Their translation would hold the event loop for a second,
    and a leader that answers nobody for so long loses its leadership.
    """
    at_most(sum(len(each.assignment) for each in topics), "partitions in assignments")
    check_replicas(sum(len(replicas.broker_ids) for each in topics for replicas in each.assignment))


def nameable(names: Iterable[str], field: str) -> None:
    """Raises BadMessage for a name that no topic can have. An answer repeats each name, and must fit into one message."""
    for i, name in enumerate(names):
        size = len(name.encode())
        if size > TOPIC_NAME_CHARS_MAX:
            raise BadMessage(f"{field}[{i}] has {size} bytes; a topic name has at most {TOPIC_NAME_CHARS_MAX}")


def repeated(name: str) -> str:
    """Returns a request's name as the answer repeats it: whole, or cut after as many bytes as the longest topic name has.

    Example: CreateTopics with `orders` and a name of 3.9 MB. The answer says that `orders` was created, so it must fit into a
    message.
    """
    data = name.encode()
    return name if len(data) <= TOPIC_NAME_CHARS_MAX else data[:TOPIC_NAME_CHARS_MAX].decode(errors="ignore")


def check_new_topics(command: CreateTopics) -> None:
    """Checks a whole request that was translated in pieces, as the translation checks each piece."""
    at_most(sum([len(each.configs) for each in command.topics]), "configs")
    check_assignments(command)


def check_assignments(command: CreateTopics | CreatePartitions) -> None:
    """Checks the assignments of a whole request, as `countable`."""
    at_most(sum([len(each.assignment) for each in command.topics]), "partitions in assignments")
    check_replicas(sum([sum(map(len, each.assignment)) for each in command.topics]))


def check_replicas(count: int) -> None:
    """Raises BadMessage if a request names more than REPLICAS_MAX replicas."""
    if count > REPLICAS_MAX:
        raise BadMessage(f"{count} replicas in one request; at most {REPLICAS_MAX}: send several requests")


def check_alterations(command: AlterConfigs) -> None:
    """Checks the operations of a whole request."""
    at_most(sum([len(each.operations) for each in command.alterations]), "operations")


# --- mutations -----------------------------------------------------------------------------------------------------


def from_create_topics(message: admin_pb2.CreateTopicsRequest) -> CreateTopics:
    at_most(len(message.topics), "topics")
    at_most(sum(len(each.configs) for each in message.topics), "configs")
    countable(message.topics)
    return CreateTopics(tuple(new_topic_of(each) for each in message.topics), message.validate_only)


def check_new_topic(message: admin_pb2.NewTopic) -> None:
    """Counts the lists of one new topic, as `countable`. Raises BadMessage."""
    at_most(len(message.configs), "configs")
    countable((message,))


def new_topic_of(message: admin_pb2.NewTopic) -> NewTopic:
    """Returns the topic. The caller has counted its lists."""
    return NewTopic(
        name=message.name,
        partitions=message.partitions if message.HasField("partitions") else DEFAULT_COUNT,
        replication_factor=message.replication_factor if message.HasField("replication_factor") else DEFAULT_COUNT,
        assignment=_assignment(message.assignment),
        configs=tuple((entry.key, entry.value) for entry in message.configs),
    )


def _assignment(lists: Iterable[admin_pb2.ReplicaList]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.broker_ids) for each in lists)


def to_create_topics_response(reply: CreateTopicsReply) -> admin_pb2.CreateTopicsResponse:
    return admin_pb2.CreateTopicsResponse(offset=reply.offset, results=_results(reply.results))


def from_create_partitions(message: admin_pb2.CreatePartitionsRequest) -> CreatePartitions:
    at_most(len(message.topics), "topics")
    countable(message.topics)
    topics = tuple(NewPartitions(each.name, each.total_count, _assignment(each.assignment)) for each in message.topics)
    return CreatePartitions(topics, message.validate_only)


def to_create_partitions_response(reply: CreatePartitionsReply) -> admin_pb2.CreatePartitionsResponse:
    return admin_pb2.CreatePartitionsResponse(offset=reply.offset, results=_results(reply.results))


def from_delete_topics(message: admin_pb2.DeleteTopicsRequest) -> DeleteTopics:
    at_most(len(message.names), "topics")
    nameable(message.names, "names")
    return DeleteTopics(tuple(message.names))


def to_delete_topics_response(reply: DeleteTopicsReply) -> admin_pb2.DeleteTopicsResponse:
    return admin_pb2.DeleteTopicsResponse(offset=reply.offset, results=_results(reply.results))


def _results(results: Sequence[TopicResult]) -> list[admin_pb2.TopicResult]:
    return [
        admin_pb2.TopicResult(
            name=repeated(result.name),
            error=item_error(result.error, result.message, len(results)),
            topic_id=result.topic_id,
            partitions=result.partitions,
            replication_factor=result.replication_factor,
        )
        for result in results
    ]


def from_alter_configs(message: admin_pb2.IncrementalAlterConfigsRequest) -> AlterConfigs:
    at_most(len(message.alterations), "resources")
    at_most(sum(len(each.operations) for each in message.alterations), "operations")
    return AlterConfigs(tuple(alteration_of(each) for each in message.alterations), message.validate_only)


def alteration_of(message: admin_pb2.ConfigAlteration) -> ConfigAlteration:
    """Returns the alteration. Raises BadMessage for an operation of an unknown kind."""
    operations: list[ConfigOperation] = []
    for each in message.operations:
        kind = _OPERATIONS.get(each.kind)
        if kind is None:
            raise BadMessage(f"config operation {each.kind}; this release knows {len(_OPERATIONS)}")
        operations.append(ConfigOperation(kind, each.key, each.value))
    return ConfigAlteration(message.resource.resource_type, message.resource.name, tuple(operations))


def to_alter_configs_response(reply: AlterConfigsReply) -> admin_pb2.IncrementalAlterConfigsResponse:
    return admin_pb2.IncrementalAlterConfigsResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ConfigResult(
                resource=admin_pb2.ConfigResource(resource_type=each.resource_type, name=repeated(each.resource_name)),
                error=item_error(each.error, each.message, len(reply.results)),
            )
            for each in reply.results
        ],
    )


def from_elect_leaders(message: admin_pb2.ElectLeadersRequest) -> ElectLeaders:
    try:
        election_type = ElectionType(message.election_type)
    except ValueError:
        text = (
            f"election type {message.election_type}: this release knows PREFERRED (0), UNCLEAN (1) and DESIGNATED (2)"
        )
        raise BadMessage(f"{text}; nothing was done") from None
    at_most(len(message.topics), "topics")
    at_most(sum(len(each.partitions) for each in message.topics), "partitions")
    for each in message.topics:
        if (problem := topic_name_problem(each.topic)) is not None:
            raise BadMessage(f"{problem}; nothing was done")
    return ElectLeaders(
        tuple(TopicPartition(each.topic, partition) for each in message.topics for partition in each.partitions),
        election_type,
        message.leader_id if message.HasField("leader_id") else NO_LEADER,
    )


def to_elect_leaders_response(reply: ElectLeadersReply) -> admin_pb2.ElectLeadersResponse:
    return admin_pb2.ElectLeadersResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ElectionResult(
                topic=each.topic,
                partition=each.partition,
                error=item_error(each.error, each.message, len(reply.results)),
                leader_id=None if each.leader_id == NO_LEADER else each.leader_id,
            )
            for each in reply.results
        ],
    )


def to_mutation_response(
    reply: FenceBrokerReply | UnregisterBrokerReply | BrokerModeReply,
) -> admin_pb2.MutationResponse:
    return admin_pb2.MutationResponse(offset=reply.offset)
