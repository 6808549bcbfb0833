"""A broker says in which of its log directories its replicas are (AssignReplicasToDirs, KIP-858).

The controller records the directories in the partition, one for each replica, in the order of the replicas. A partition of which
no broker has said anything has none.

Example. Broker 101 has the directories A and B, and leads orders-0 with the replicas 101,102.
    1  Broker 101 says: my replica of orders-0 is in A. The record has the directories A and *unassigned*.
    2  Broker 101 loses A. The controller takes its replicas in A out of the ISRs, and broker 102 leads (`lost_directories`).
    3  Broker 101 has copied the replica to B, and says so: the replica may be elected again, and may enter the ISR.

*A replica whose directory has failed before step 1* was assigned nowhere, so the loss of A would not touch it. Then the broker
assigns the replica to LOST_DIRECTORY, which is never online: the controller takes this replica out at once. A directory that is
not in the broker's registration is refused (LOG_DIR_NOT_FOUND): a wrong id must not take a sound replica out of service.

The controller decides a request slice by slice, each slice one batch, so that no turn is long.
"""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, NodeId, Uuid, id_shown
from metadata_log.format.partition_state import DIRECTORIES, ELR, ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import PartitionChange
from metadata_log.format.records.levels import FIELD_LEVELS
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.named_partitions import named_twice, of_topic_id
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.partitions.reassignment.reassignments import finished_story
from quorum.controller.partitions.replica_moves import ReplicaMoves
from quorum.controller.protocol.brokers.broker_happenings import ReplicasAssigned
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.directory_commands import (
    ASSIGNMENTS_MAX,
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    DirectoryAssignment,
    DirectoryAssignmentResult,
)
from quorum.controller.protocol.feature_gate import require_level
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.topic_rules import Rejected

_LEVEL: Final = FIELD_LEVELS[PartitionChange]["directories"]
"""The level of `metadata.version` from which on partitions have directories."""


def assign_replicas(
    image: MetadataImage, command: AssignReplicasToDirs, view: BrokerView, config: ControllerConfig
) -> Decision:
    """Decides the next slice of the replicas, each by itself. The caller has checked the broker's epoch.

    Raises:
        ControllerError: POLICY_VIOLATION for too many replicas, INVALID_REQUEST for a partition named twice,
            UNSUPPORTED_VERSION at the first level of metadata.version. Nothing was done.
    """
    require_level(image, _LEVEL, "an assignment of replicas to log directories")
    if not command.done:
        _check_request(command)
    size = config.slice_changes_max
    now, later = command.assignments[:size], command.assignments[size:]
    changes: list[PartitionChange] = []
    has_lost = False
    results: list[DirectoryAssignmentResult] = []
    for wanted in now:
        try:
            change = _assign(image, command.broker_id, wanted, view, config)
        except Rejected as e:
            results.append(DirectoryAssignmentResult(wanted.topic_id, wanted.partition, e.code, e.message))
            continue
        results.append(DirectoryAssignmentResult(wanted.topic_id, wanted.partition))
        if change is not None:
            changes.append(change)
            has_lost |= wanted.directory == LOST_DIRECTORY and change.isr is not None
    done = (*command.done, *results)
    then = AssignReplicasToDirs(command.broker_id, command.broker_epoch, later, done) if later else None
    story = _story(
        image, command.broker_id, changes, StateReason.LOG_DIRECTORIES_LOST if has_lost else StateReason.CAUGHT_UP
    )
    return Decision(tuple(changes), AssignReplicasToDirsReply(results=done), then, story)


def _check_request(command: AssignReplicasToDirs) -> None:
    if len(command.assignments) > ASSIGNMENTS_MAX:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request assigns {len(command.assignments):,} replicas; at most {ASSIGNMENTS_MAX:,} are allowed; "
            f"nothing was done",
        )
    twice = named_twice([(topic_id, partition) for topic_id, partition, _ in command.assignments])
    if twice is not None:
        text = f"partition {twice[1]} of topic {id_shown(twice[0])} is named twice; nothing was done"
        raise ControllerError(ErrorCode.INVALID_REQUEST, text)


def _assign(
    image: MetadataImage, broker_id: NodeId, wanted: DirectoryAssignment, view: BrokerView, config: ControllerConfig
) -> PartitionChange | None:
    """Returns the change; None if the directory is recorded already. Raises Rejected."""
    topic, state = _found(image, broker_id, wanted)
    _check_directory(broker_id, wanted.directory, view)
    replicas = state[REPLICAS]
    directories = list(state[DIRECTORIES] or (UNASSIGNED_DIRECTORY,) * len(replicas))
    place = replicas.index(broker_id)
    if directories[place] == wanted.directory:
        return None
    directories[place] = wanted.directory
    recorded = tuple(directories)
    # A leader that is shutting down leads on until another can (`shutdowns`): this change alone must not end its leadership.
    present = view.present_in(replicas, recorded, view.active | {state[LEADER]})
    rules = ElectionRules(image, config, topic.name)
    builder = PartitionChangeBuilder(topic.topic_id, wanted.partition, state, present, view.resting, rules)
    builder.with_directories(recorded)
    if wanted.directory == LOST_DIRECTORY and (broker_id in state[ISR] or broker_id in state[ELR]):
        builder.leaving(broker_id)
    return builder.build()


def _found(image: MetadataImage, broker_id: NodeId, wanted: DirectoryAssignment) -> tuple[TopicImage, PartitionState]:
    topic, state = of_topic_id(image, wanted.topic_id, wanted.partition)
    if broker_id not in state[REPLICAS]:
        raise Rejected(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {broker_id} has no replica of {topic.name}-{wanted.partition}; the replicas are {list(state[REPLICAS])}",
        )
    return topic, state


def _check_directory(broker_id: NodeId, directory: Uuid, view: BrokerView) -> None:
    if directory == UNASSIGNED_DIRECTORY:
        raise Rejected(ErrorCode.INVALID_REQUEST, "the directory of all zeros stands for a replica without a directory")
    if directory != LOST_DIRECTORY and (broker_id, directory) not in view.online_directories:
        raise Rejected(
            ErrorCode.LOG_DIR_NOT_FOUND,
            f"broker {broker_id} has no online log directory {id_shown(directory)}; the replica stays where it was recorded. If "
            f"the directory has failed, assign the replica to the lost directory",
        )


def _story(
    image: MetadataImage, broker_id: NodeId, changes: list[PartitionChange], reason: StateReason
) -> tuple[Happening, ...]:
    if not changes:
        return ()
    moves = ReplicaMoves()
    moves.add(image, [change for change in changes if change.isr is not None or change.leader is not None])
    moved = moves.take(broker_id, reason)
    return (ReplicasAssigned(broker_id, len(changes)), *moved, *finished_story(image, changes))
