"""The features for operators: the levels that this release supports, the cluster's level, and the nodes that hold it back."""

from typing import Final, NamedTuple

from metadata_log.format.records import FEATURES, RegisterController
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.features.support import in_the_way
from quorum.controller.features.updates import level_of_feature

NAMED_MAX: Final = 5
CONTROLLERS_MAX: Final = 100
"""How many nodes in the way, and how many registered controllers, an answer names at most."""


class DescribedFeature(NamedTuple):
    """One feature. `in_the_way` names brokers that do not support the highest level of this release, `NAMED_MAX` at most."""

    name: str
    min_level: int
    max_level: int
    level: int
    in_the_way: tuple[str, ...] = ()


def described_features(image: MetadataImage) -> tuple[DescribedFeature, ...]:
    """Return the features of this release, and those that only the image knows, by name."""
    found = []
    for name in sorted({*FEATURES, *image.features}):
        feature, level = FEATURES.get(name), level_of_feature(image, name)
        if feature is None:
            found.append(DescribedFeature(name, 0, 0, level))
        else:
            problems = in_the_way(image, (), name, feature.max_level)
            found.append(
                DescribedFeature(name, feature.min_level, feature.max_level, level, tuple(problems[:NAMED_MAX]))
            )
    return tuple(found)


def registered_controllers(image: MetadataImage) -> tuple[RegisterController, ...]:
    """Return the registrations of controllers by id, `CONTROLLERS_MAX` at most."""
    return tuple(image.controllers.values())[:CONTROLLERS_MAX]
