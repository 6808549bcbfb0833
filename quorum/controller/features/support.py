"""The nodes that stand in the way of a level: registered brokers, fenced or not, and voters.

A fenced broker counts, because it replays the log again when it is back. A voter counts with a registration that names its
directory: the registration of a former disk says nothing about the process that runs now. A controller without a vote does not
count, because the registration of a removed controller stays for ever.

A controller that is to become a voter must support all levels that are finalized (`lacks`).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import METADATA_VERSION, FeatureRange
from metadata_log.image.metadata_image import MetadataImage

_OF_0_1_0: Final = (FeatureRange(METADATA_VERSION, 1, 1),)


def in_the_way(image: MetadataImage, voters: Sequence[ReplicaKey], name: str, level: int) -> list[str]:
    """Says for each node that does not support the level what it supports instead."""
    return [*_brokers(image, name, level), *_voters(image, voters, name, level)]


def is_registered(image: MetadataImage, controller: ReplicaKey) -> bool:
    """True if the controller has registered with its present directory."""
    registered = image.controllers.get(controller.node_id)
    return registered is not None and registered.incarnation_id == controller.directory_id


def lacks(image: MetadataImage, newcomer: ReplicaKey) -> dict[str, str]:
    """Returns the finalized levels that a controller does not support, each with what it supports instead.

    Release 0.1.0 registers no controllers, so an unregistered controller counts as one that supports `metadata.version` 1 only.
    """
    features = image.controllers[newcomer.node_id].features if is_registered(image, newcomer) else _OF_0_1_0
    finalized = {**dict(image.features.items()), METADATA_VERSION: image.metadata_version}
    problems = {f"{name} {level}": _problem(features, name, level) for name, level in sorted(finalized.items())}
    return {level: problem for level, problem in problems.items() if problem is not None}


def _brokers(image: MetadataImage, name: str, level: int) -> Iterator[str]:
    for broker in image.brokers.values():
        problem = _problem(broker.features, name, level)
        if problem is not None:
            yield f"broker {broker.broker_id} {problem}"


def _voters(image: MetadataImage, voters: Sequence[ReplicaKey], name: str, level: int) -> Iterator[str]:
    for voter in sorted(voters):
        if not is_registered(image, voter):
            yield f"controller {voter.node_id} has not registered"
        else:
            problem = _problem(image.controllers[voter.node_id].features, name, level)
            if problem is not None:
                yield f"controller {voter.node_id} {problem}"


def _problem(supported: tuple[FeatureRange, ...], name: str, level: int) -> str | None:
    for each in supported:
        if each.name == name:
            is_supported = each.min_level <= level <= each.max_level
            return None if is_supported else f"supports {each.min_level} to {each.max_level}"
    return None if level == 0 else "does not know it"  # level 0: the feature is off
