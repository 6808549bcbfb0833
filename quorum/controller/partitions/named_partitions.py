"""The partitions that a request names: the checks of the whole request, and the lookup of each partition.

Operators name a partition by the name of its topic, brokers by the id of its topic. Example:

    1  Broker 101 leads orders-0, and decides to propose an ISR. Meanwhile an operator deletes `orders`, and creates it again.
    2  The proposal of broker 101 has the old id: UNKNOWN_TOPIC_ID. By its name it would change the new topic.
    3  An operator who elects a leader of orders-0 means the topic that has this name now.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Uuid, id_shown
from metadata_log.format.partition_state import PartitionState
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.topic_rules import Rejected

P = TypeVar("P", bound=Hashable)


def check_count(named: int, config: ControllerConfig) -> None:
    """Raises ControllerError(POLICY_VIOLATION) if one request must not name so many partitions."""
    limit = config.partitions_per_request_max
    if named > limit:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request names {named:,} partitions; at most {limit:,} are allowed; nothing was done",
        )


def check_once(places: Sequence[tuple[str, int]]) -> None:
    """Raises ControllerError(INVALID_REQUEST) if a topic and partition is named twice."""
    twice = named_twice(places)
    if twice is not None:
        topic, partition = twice
        text = f"partition {partition} of topic {topic!r} is named twice; nothing was done"
        raise ControllerError(ErrorCode.INVALID_REQUEST, text)


def named_twice(places: Sequence[P]) -> P | None:
    """Returns the first place that stands in the request more than once; None if there is none."""
    if len(set(places)) == len(places):
        return None
    return next(place for place, times in Counter(places).items() if times > 1)


def of_topic(topic: TopicImage | None, partition: int) -> tuple[TopicImage, PartitionState]:
    """Returns the topic, and the state of the partition. Raises Rejected(UNKNOWN_TOPIC_OR_PARTITION)."""
    if topic is None:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    state = topic.state(partition)
    if state is None:
        count = topic.partition_count
        text = f"the topic has {count} partitions, 0 to {count - 1}"
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return topic, state


def of_topic_id(image: MetadataImage, topic_id: Uuid, partition: int) -> tuple[TopicImage, PartitionState]:
    """Returns the topic, and the state of the partition. Raises Rejected: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION."""
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {id_shown(topic_id)}")
    state = topic.state(partition)
    if state is None:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has no partition {partition}: it has {topic.partition_count}",
        )
    return topic, state
