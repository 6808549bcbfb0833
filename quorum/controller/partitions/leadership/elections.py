"""Elections on request: an operator says which replica shall lead (Kafka's ElectLeaders, KIP-183 and KIP-460).

There are three types of elections. Example: orders-0 has the replicas 101, 102, 103.

    PREFERRED    Broker 101 was restarted and is in sync again; broker 102 leads. The first assigned replica, 101, leads again.
                 Placement spreads the first replicas evenly, so a cluster that is led by them is balanced (see `balancing`).
    DESIGNATED   Broker 102 leads, and its machine is slow. The operator names broker 103, which is in sync: broker 103 leads.
    UNCLEAN      The ISR is 101 alone, and the disk of broker 101 is lost. The partition has no leader, and no clean election can
                 give it one. The operator accepts that records may be lost. Broker 102, the first active replica, leads, alone in
                 the ISR and RECOVERING. The operator may name 103 instead, for example because its log is longer.

The first two are clean: a replica that is outside the ISR, or not active, is not elected. The third is only for a partition that
no replica in its ISR can lead. A partition whose election is refused does not change. A designated leader stays until the next
check of `balancing` finds that the preferred broker leads too little.

The controller decides a request slice by slice, each slice one batch, so that no turn is long. If another controller becomes
active between two slices, the client sends the request again. Partitions that were done get ELECTION_NOT_NEEDED, if nobody has
changed their leaders meanwhile.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import ADDING, ELR, ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import RECOVERING, PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.named_partitions import check_count, check_once, of_topic
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.partitions.target_replicas import former_of
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.election_commands import (
    ElectionResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.happenings import LeadersElected, first_few
from quorum.controller.protocol.topic_rules import Rejected


def elect_leaders(image: MetadataImage, command: ElectLeaders, view: BrokerView, config: ControllerConfig) -> Decision:
    """Decides the next slice of the partitions, each by itself. The reply of the last slice has all results.

    Raises:
        ControllerError: POLICY_VIOLATION for too many partitions, INVALID_REQUEST for a partition named twice, or for a type of
            election that needs a broker, or takes none. Nothing was done.
    """
    if not command.done:
        _check_request(command, config)
    now, later = command.partitions[: config.slice_changes_max], command.partitions[config.slice_changes_max :]
    changes: list[PartitionChange] = []
    results: list[ElectionResult] = []
    topic: TopicImage | None = None
    for place in now:
        if topic is None or topic.name != place.topic:
            topic = image.topic(place.topic)
        try:
            change = _elect(image, topic, place, view, command, config)
        except Rejected as e:
            results.append(ElectionResult(*place, e.code, e.message, _leader_of(topic, place)))
        else:
            assert change.leader is not None
            changes.append(change)
            results.append(ElectionResult(*place, leader_id=change.leader))
    done = (*command.done, *results)
    then = ElectLeaders(later, command.election_type, command.leader_id, done) if later else None
    return Decision(tuple(changes), ElectLeadersReply(results=done), then, _story(results, changes))


def _leader_of(topic: TopicImage | None, place: TopicPartition) -> NodeId:
    """The leader that a partition keeps; NO_LEADER, if it has none or does not exist."""
    state: PartitionState | None = None if topic is None else topic.state(place.partition)
    return NO_LEADER if state is None else state[LEADER]


def _story(results: list[ElectionResult], changes: list[PartitionChange]) -> tuple[LeadersElected, ...]:
    elected = [result for result in results if result.error is ErrorCode.NONE]
    named = first_few(f"{result.topic}-{result.partition}: {result.leader_id}" for result in elected)
    unclean = sum(change.leader_recovery_state == RECOVERING for change in changes)
    return (LeadersElected(len(elected), named, unclean),) if elected else ()


def _check_request(command: ElectLeaders, config: ControllerConfig) -> None:
    check_count(len(command.partitions), config)
    names_leader = command.leader_id != NO_LEADER
    if command.election_type is ElectionType.DESIGNATED and not names_leader:
        text = "an election of the type DESIGNATED needs leader_id, the broker that shall lead; nothing was done"
        raise ControllerError(ErrorCode.INVALID_REQUEST, text)
    if command.election_type is ElectionType.PREFERRED and names_leader:
        text = (
            "an election of the type PREFERRED takes no leader_id: DESIGNATED elects a given broker; nothing was done"
        )
        raise ControllerError(ErrorCode.INVALID_REQUEST, text)
    check_once(command.partitions)


def may_return_to_preferred(state: PartitionState, view: BrokerView) -> bool:
    """Tells whether the preferred replica does not lead, and a clean election would elect it."""
    preferred = state[REPLICAS][0]
    if state[LEADER] == preferred or preferred not in state[ISR]:
        return False
    return preferred in view.present(state, view.may_lead)


def _elect(
    image: MetadataImage,
    topic: TopicImage | None,
    place: TopicPartition,
    view: BrokerView,
    command: ElectLeaders,
    config: ControllerConfig,
) -> PartitionChange:
    """Raises Rejected: there is no such partition, or the election is not needed, or no replica may lead."""
    topic, state = of_topic(topic, place.partition)
    match command.election_type:
        case ElectionType.PREFERRED:
            leader = state[REPLICAS][0]
            unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            _check_clean(state, view, leader, f"broker {leader}, the preferred replica,", unavailable)
        case ElectionType.DESIGNATED:
            leader = command.leader_id
            _check_assigned(state, leader)
            _check_clean(state, view, leader, f"broker {leader}", ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        case ElectionType.UNCLEAN:
            leader = _uncleanly_elected(state, view, command.leader_id)
            rules = ElectionRules(image, config, topic.name)
            present = view.present(state, view.active)
            builder = PartitionChangeBuilder(topic.topic_id, place.partition, state, present, view.resting, rules)
            change = builder.led_uncleanly_by(leader).build()
            assert change is not None
            return change
    return PartitionChange(topic.topic_id, place.partition, leader=leader)


def _check_assigned(state: PartitionState, leader: NodeId) -> None:
    if leader not in state[REPLICAS]:
        assigned = ", ".join(map(str, state[REPLICAS]))
        text = f"broker {leader} has no replica of this partition; brokers {assigned} have"
        raise Rejected(ErrorCode.INVALID_REQUEST, text)


def _check_clean(state: PartitionState, view: BrokerView, leader: NodeId, who: str, unavailable: ErrorCode) -> None:
    if state[LEADER] == leader:
        raise Rejected(ErrorCode.ELECTION_NOT_NEEDED, f"{who} leads already")
    if leader not in state[ISR]:
        raise Rejected(unavailable, f"{who} is not in the ISR")
    if leader not in view.may_lead:
        why = "in maintenance" if leader in view.active else "fenced or shutting down"
        raise Rejected(unavailable, f"{who} is {why}")
    if leader not in view.present(state, view.may_lead):
        raise Rejected(unavailable, f"{who} has its replica in a log directory that is offline")


def _uncleanly_elected(state: PartitionState, view: BrokerView, wanted: NodeId) -> NodeId:
    """Returns the active replica that shall lead, although it may lack records: the wanted one, or the first assigned one."""
    if state[LEADER] != NO_LEADER:
        text = f"broker {state[LEADER]} leads; an unclean election is for partitions without a leader"
        raise Rejected(ErrorCode.ELECTION_NOT_NEEDED, text)
    if wanted != NO_LEADER:
        _check_assigned(state, wanted)
    candidates = (*former_of(state), *state[ADDING]) if wanted == NO_LEADER else (wanted,)
    present = view.present(state, view.active)
    safe = next((each for each in (*state[ISR], *state[ELR]) if each in present), None)
    if safe is not None:
        what = "in sync" if safe in state[ISR] else "an eligible leader"
        text = f"broker {safe} is {what} and active, and will lead without a loss in a moment"
        raise Rejected(ErrorCode.ELECTION_NOT_NEEDED, text)
    for usable in (present & view.may_lead, present):
        for each in candidates:
            if each in usable:
                return each
    named, kept_out = ", ".join(map(str, candidates)), [each for each in candidates if each in view.kept_out]
    advice = "start one"
    if kept_out:
        unfence = (
            f"`quorumctl brokers unfence {kept_out[0]}` lets broker {kept_out[0]}, which an operator has fenced, in"
        )
        advice = unfence if len(kept_out) == len(candidates) else f"start one, or {unfence}"
    text = f"of the brokers that may lead, {named}, none is active; {advice}"
    raise Rejected(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
