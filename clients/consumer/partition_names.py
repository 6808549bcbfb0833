"""The check of what a program names as a partition, before anybody is asked.

Example: `assign(["t1"])` would otherwise mean partition "1" of topic "t", and nobody would say so.
"""

from typing import Any

from clients.metadata.cluster import TopicPartition
from metadata_log.format.topic_names import is_text


def parse_partition(given: Any) -> TopicPartition:
    """Return the partition. Raises ValueError if `given` is no topic with a number."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, partition = given
        if is_text(topic) and type(partition) is int and partition >= 0:
            return TopicPartition(topic, partition)
    raise ValueError(f'{given!r:.80} is no partition: give a topic and a number, such as ("orders", 0)')
