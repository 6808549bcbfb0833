"""A leader's proposal for the ISR of its partitions: compare and set (KIP-497).

Example. Broker 101 leads orders-0 in leader epoch 5, partition epoch 9, with the ISR 101,102.
    1  Broker 101 proposes the ISR 101,102,103 for the epochs 5 and 9. The epochs are the current ones: the controller writes the
       change, and the partition epoch is 10.
    2  The answer is lost, and 101 sends the same proposal again. Its result is the current state: a retry, granted again.
    3  Broker 101 proposes another ISR for the epochs 5 and 9: INVALID_UPDATE_VERSION. Broker 101 must read the new state first.

A proposal may complete a reassignment (`target_replicas`). If the proposing leader is no replica of the target, the controller
writes the change, and answers NEW_LEADER_ELECTED: the leader must read the new state before it proposes again.

A broker that has lost a peer may propose ten thousand ISRs at once. The controller judges them slice by slice, each slice one
batch, so that no turn is long. If another controller becomes active between two slices, the broker reads the new states, and
proposes again.

The order of the checks is part of the protocol: each error code tells the leader another way of being out of date. If the request
has a higher epoch than this controller's image, a later controller must exist, and this one is deposed: NOT_CONTROLLER.
"""

from dataclasses import replace
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import (
    ISR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY_STATE,
    REPLICAS,
    PartitionState,
    merge,
)
from metadata_log.format.records import RECOVERED, RECOVERING, PartitionChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.named_partitions import of_topic_id
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.partitions.reassignment.reassignments import finished_story
from quorum.controller.protocol.commands import (
    ANY_BROKER_EPOCH,
    AlterPartition,
    AlterPartitionReply,
    PartitionAlteration,
    PartitionAlterationResult,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.happenings import NAMED_MAX, IsrGrown, IsrShrunk
from quorum.controller.protocol.topic_rules import Rejected

_COST: Final = 3
"""How many changes of another slice take as long as the judgement of one proposal."""


def alter_partitions(
    image: MetadataImage, command: AlterPartition, view: BrokerView, config: ControllerConfig
) -> Decision:
    """Judges the next slice of the partitions, each by itself. The granted changes of a slice are one batch, and the reply of the
    last slice has all results. The caller has checked the broker's epoch.

    Raises:
        ControllerError: POLICY_VIOLATION, for too many partitions in one request.
    """
    if len(command.partitions) > config.records_max:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request alters {len(command.partitions):,} partitions; at most {config.records_max:,} are allowed",
        )
    changes: list[PartitionChange] = []
    results: list[PartitionAlterationResult] = []
    told = _IsrStory(image)
    begin = len(command.done)
    end = begin + max(1, config.slice_changes_max // _COST)
    altered: set[tuple[bytes, int]] = {(each.topic_id, each.partition) for each in command.partitions[:begin]}
    for alteration in command.partitions[begin:end]:
        place = (alteration.topic_id, alteration.partition)
        try:
            if place in altered:
                raise Rejected(ErrorCode.INVALID_REQUEST, f"partition {place[1]} is altered twice in this request")
            altered.add(place)
            state, change = _alter(image, command, alteration, view, config)
        except Rejected as e:
            results.append(PartitionAlterationResult(*place, e.code, e.message))
            continue
        if change is not None:
            changes.append(change)
            told.note(change, state[ISR])
            state = merge(state, change)
            if change.leader not in (None, command.broker_id):
                text = (
                    f"the change was made, and broker {change.leader} leads now: the change completed a reassignment, or "
                    f"broker {command.broker_id} is in maintenance"
                )
                results.append(PartitionAlterationResult(*place, ErrorCode.NEW_LEADER_ELECTED, text))
                continue
        results.append(
            PartitionAlterationResult(
                *place,
                leader_id=state[LEADER],
                leader_epoch=state[LEADER_EPOCH],
                partition_epoch=state[PARTITION_EPOCH],
                isr=state[ISR],
                leader_recovery_state=state[RECOVERY_STATE],
            )
        )
    done = (*command.done, *results)
    then = replace(command, done=done) if end < len(command.partitions) else None
    story = (*told.happenings(command.broker_id), *finished_story(image, changes))
    return Decision(tuple(changes), AlterPartitionReply(results=done), then, story)


class _IsrStory:
    """Counts the partitions whose ISR one request shrinks, and those whose ISR it grows. A swap of replicas does both."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._counts = [0, 0]
        self._named: tuple[list[str], list[str]] = ([], [])

    def note(self, change: PartitionChange, before: tuple[int, ...]) -> None:
        """Counts one change of a partition whose ISR was `before`."""
        after = before if change.isr is None else change.isr
        for index, happens in enumerate((set(before) - set(after), set(after) - set(before))):
            if happens:
                self._counts[index] += 1
                if len(self._named[index]) < NAMED_MAX:
                    self._named[index].append(self._text(change, before, after))

    def _text(self, change: PartitionChange, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        topic = self._image.topic_by_id(change.topic_id)
        assert topic is not None
        return f"{topic.name}-{change.partition}: {','.join(map(str, before))} -> {','.join(map(str, after))}"

    def happenings(self, broker_id: NodeId) -> tuple[IsrShrunk | IsrGrown, ...]:
        """The story: at most one happening of each kind."""
        shrunk, grown = self._counts
        return (
            *((IsrShrunk(broker_id, shrunk, tuple(self._named[0])),) if shrunk else ()),
            *((IsrGrown(broker_id, grown, tuple(self._named[1])),) if grown else ()),
        )


def _alter(
    image: MetadataImage,
    command: AlterPartition,
    alteration: PartitionAlteration,
    view: BrokerView,
    config: ControllerConfig,
) -> tuple[PartitionState, PartitionChange | None]:
    topic, state = of_topic_id(image, alteration.topic_id, alteration.partition)
    isr = tuple(member.broker_id for member in alteration.new_isr)
    if _is_retry(image, state, command, alteration):
        return state, None
    _check_epochs(state, command, alteration)
    _check_isr(state, alteration, isr)
    _check_members(image, state, alteration, view)
    rules = ElectionRules(image, config, topic.name)
    present = view.present(state, view.active | {command.broker_id})
    builder = PartitionChangeBuilder(alteration.topic_id, alteration.partition, state, present, view.resting, rules)
    return state, builder.with_isr(isr, alteration.leader_recovery_state).build()


def _is_retry(
    image: MetadataImage, state: PartitionState, command: AlterPartition, alteration: PartitionAlteration
) -> bool:
    """True if the proposal asks for the current state, from the state just before (KAFKA-14144), and names the current processes.

    A late proposal that names an earlier process of a member is no retry: meanwhile the leader has seen the current process, and
    has proposed the same ISR again (KIP-903).
    """
    return (
        state[LEADER] == command.broker_id
        and state[LEADER_EPOCH] == alteration.leader_epoch
        and state[PARTITION_EPOCH] == alteration.partition_epoch + 1
        and state[ISR] == tuple(member.broker_id for member in alteration.new_isr)
        and state[RECOVERY_STATE] == alteration.leader_recovery_state
        and all(
            member.broker_epoch in (ANY_BROKER_EPOCH, image.brokers[member.broker_id].broker_epoch)
            for member in alteration.new_isr
        )
    )


def _check_epochs(state: PartitionState, command: AlterPartition, alteration: PartitionAlteration) -> None:
    leader_epoch, partition_epoch = state[LEADER_EPOCH], state[PARTITION_EPOCH]
    said = f"the request has leader epoch {alteration.leader_epoch} and partition epoch {alteration.partition_epoch}"
    have = f"here they are {leader_epoch} and {partition_epoch}"
    if alteration.leader_epoch > leader_epoch or alteration.partition_epoch > partition_epoch:
        raise Rejected(ErrorCode.NOT_CONTROLLER, f"{said}, {have}: a later controller must have written them")
    if alteration.leader_epoch < leader_epoch:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"{said}, {have}: the partition has another leadership now")
    if state[LEADER] != command.broker_id:
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"broker {command.broker_id} does not lead the partition; {state[LEADER]} does"
        )
    if alteration.partition_epoch < partition_epoch:
        raise Rejected(ErrorCode.INVALID_UPDATE_VERSION, f"{said}, {have}: the partition has changed meanwhile")


def _check_isr(state: PartitionState, alteration: PartitionAlteration, isr: tuple[int, ...]) -> None:
    problem: str | None = None
    if len(set(isr)) != len(isr):
        problem = f"the ISR {list(isr)} names a broker twice"
    elif not set(isr) <= set(state[REPLICAS]):
        problem = f"the ISR {list(isr)} is not a subset of the replicas {list(state[REPLICAS])}"
    elif state[LEADER] not in isr:
        problem = f"the ISR {list(isr)} lacks the leader {state[LEADER]}"
    elif alteration.leader_recovery_state not in (RECOVERED, RECOVERING):
        problem = f"there is no leader recovery state {alteration.leader_recovery_state}"
    elif alteration.leader_recovery_state == RECOVERING and state[RECOVERY_STATE] == RECOVERED:
        problem = "a leader that has recovered can't go back to recovering"
    elif alteration.leader_recovery_state == RECOVERING and len(isr) > 1:
        problem = f"the ISR {list(isr)} has more than the leader while that is recovering"
    if problem is not None:
        raise Rejected(ErrorCode.INVALID_REQUEST, problem)


def _check_members(
    image: MetadataImage, state: PartitionState, alteration: PartitionAlteration, view: BrokerView
) -> None:
    """Checks that each new member is active, in the incarnation that the leader saw, and that its log directory is online. A
    departing leader may stay (M3), but not one whose own directory has failed."""
    present = view.present(state, frozenset(state[REPLICAS]))
    for broker_id, broker_epoch in ((member.broker_id, member.broker_epoch) for member in alteration.new_isr):
        broker: RegisterBroker | None = image.brokers.get(broker_id)
        problem: str | None = None
        if broker is None:
            problem = "is not registered"
        elif broker_epoch not in (ANY_BROKER_EPOCH, broker.broker_epoch):
            problem = f"is registered with epoch {broker.broker_epoch}, and not {broker_epoch}"
        elif broker_id not in view.active and broker_id != state[LEADER]:
            problem = "is fenced or shutting down"
        elif broker_id not in present:
            problem = "has its replica in a log directory that is offline"
        if problem is not None:
            raise Rejected(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} can't be in the ISR: it {problem}")
