"""Preferred leaders: each partition goes back to the first replica of its assignment (Kafka's ElectLeaders, KIP-183).

Placement spreads the first replicas evenly over the brokers, so a cluster whose partitions are all led by their preferred
replicas is balanced. Restarts undo the balance, because the controller takes no leadership away from a healthy leader:

    orders-0, replicas 101,102,103      led by 101
    101 is stopped                      led by 102, ISR 102,103
    101 is back and in sync             led by 102, ISR 101,102,103
    an election on request              led by 101, one leader epoch higher

The election is clean: a preferred replica that is outside the ISR, or not active, is not elected, and its partition does not
change. The controller decides a request slice by slice, each slice one batch, so that no turn is long. If another controller
becomes active between two slices, the client sends the request again; partitions that were done get ELECTION_NOT_NEEDED.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.partition_state import ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.election_commands import (
    ElectionResult,
    ElectPreferredLeaders,
    ElectPreferredLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.happenings import LeadersElected, first_few
from quorum.controller.protocol.topic_rules import Rejected


def elect_preferred_leaders(
    image: MetadataImage, command: ElectPreferredLeaders, view: BrokerView, config: ControllerConfig
) -> Decision:
    """Decides the next slice of the partitions, each by itself. The reply of the last slice has all results.

    Raises:
        ControllerError: POLICY_VIOLATION for too many partitions, INVALID_REQUEST for a partition named twice. Nothing was done.
    """
    if not command.done:
        _check_request(command.partitions, config)
    now, later = command.partitions[: config.slice_changes_max], command.partitions[config.slice_changes_max :]
    changes: list[PartitionChange] = []
    results: list[ElectionResult] = []
    topic: TopicImage | None = None
    for place in now:
        if topic is None or topic.name != place.topic:
            topic = image.topic(place.topic)
        try:
            change = _elect(topic, place, view)
        except Rejected as e:
            results.append(ElectionResult(*place, e.code, e.message))
        else:
            assert change.leader is not None
            changes.append(change)
            results.append(ElectionResult(*place, leader_id=change.leader))
    done = (*command.done, *results)
    then = ElectPreferredLeaders(later, done) if later else None
    return Decision(tuple(changes), ElectPreferredLeadersReply(results=done), then, _story(results))


def _story(results: list[ElectionResult]) -> tuple[LeadersElected, ...]:
    elected = [result for result in results if result.error is ErrorCode.NONE]
    named = first_few(f"{result.topic}-{result.partition}: {result.leader_id}" for result in elected)
    return (LeadersElected(len(elected), named),) if elected else ()


def _check_request(places: tuple[TopicPartition, ...], config: ControllerConfig) -> None:
    limit = config.partitions_per_request_max
    if len(places) > limit:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request names {len(places):,} partitions; at most {limit:,} are allowed; nothing was done",
        )
    seen: set[TopicPartition] = set()
    for place in places:
        if place in seen:
            raise ControllerError(
                ErrorCode.INVALID_REQUEST,
                f"partition {place.partition} of topic {place.topic!r} is named twice; nothing was done",
            )
        seen.add(place)


def may_return_to_preferred(state: PartitionState, view: BrokerView) -> bool:
    """Tells whether the preferred replica does not lead, and a clean election would elect it."""
    preferred = state[REPLICAS][0]
    return state[LEADER] != preferred and preferred in state[ISR] and preferred in view.active


def _elect(topic: TopicImage | None, place: TopicPartition, view: BrokerView) -> PartitionChange:
    """Raises Rejected: no such partition, or its preferred replica leads already, or cannot."""
    if topic is None:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    state: PartitionState | None = topic.state(place.partition)
    if state is None:
        count = topic.partition_count
        text = f"the topic has {count} partitions, 0 to {count - 1}"
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    preferred = state[REPLICAS][0]
    who = f"broker {preferred}, the preferred replica,"
    if state[LEADER] == preferred:
        raise Rejected(ErrorCode.ELECTION_NOT_NEEDED, f"{who} leads already")
    if preferred not in state[ISR]:
        raise Rejected(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"{who} is not in the ISR")
    if preferred not in view.active:
        raise Rejected(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"{who} is fenced or shutting down")
    return PartitionChange(topic.topic_id, place.partition, leader=preferred)
