"""The nodes that stand in the way of a level: registered brokers, fenced or not, and voters.

A fenced broker counts, because it replays the log again when it is back. A voter counts with a registration that names its
directory: the registration of a former disk says nothing about the process that runs now. A controller without a vote does not
count, because the registration of a removed controller stays for ever.
"""

from collections.abc import Iterator, Sequence

from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import FeatureRange
from metadata_log.image.metadata_image import MetadataImage


def in_the_way(image: MetadataImage, voters: Sequence[ReplicaKey], name: str, level: int) -> list[str]:
    """Says for each node that does not support the level what it supports instead."""
    return [*_brokers(image, name, level), *_voters(image, voters, name, level)]


def _brokers(image: MetadataImage, name: str, level: int) -> Iterator[str]:
    for broker in image.brokers.values():
        problem = _problem(broker.features, name, level)
        if problem is not None:
            yield f"broker {broker.broker_id} {problem}"


def _voters(image: MetadataImage, voters: Sequence[ReplicaKey], name: str, level: int) -> Iterator[str]:
    for voter in sorted(voters):
        registered = image.controllers.get(voter.node_id)
        if registered is None or registered.incarnation_id != voter.directory_id:
            yield f"controller {voter.node_id} has not registered"
        else:
            problem = _problem(registered.features, name, level)
            if problem is not None:
                yield f"controller {voter.node_id} {problem}"


def _problem(supported: tuple[FeatureRange, ...], name: str, level: int) -> str | None:
    for each in supported:
        if each.name == name:
            is_supported = each.min_level <= level <= each.max_level
            return None if is_supported else f"supports {each.min_level} to {each.max_level}"
    return None if level == 0 else "does not know it"  # level 0: the feature is off
