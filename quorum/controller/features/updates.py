"""An operator raises or lowers levels of features (Kafka's UpdateFeatures). All updates of a request are done, or none.

    up      every registered broker, fenced or not, and every voter supports the level           (`support`)
    down    they do, the operator has allowed a downgrade, and nothing in the metadata needs the present level (`losses`)
    both    each feature has what it needs: the levels of other features in `FEATURES`

Example. A cluster of release 0.1.0 with brokers 101 and 102 is at `metadata.version` 1.
  1. The operator upgrades all controllers and broker 101, and raises the level to 2: refused, "broker 102 supports 1 to 1".
  2. The operator upgrades broker 102, and raises the level: the log has FeatureLevel("metadata.version", 2).
  3. The operator lowers the level, while partition orders-0 is being reassigned: refused, and the answer names orders-0.
  4. The reassignment ends. The operator lowers the level, and level 1 holds again.

A broker or controller that does not support the level cannot register from then on (`feature_problem`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import ELR_VERSION, FEATURES, METADATA_VERSION, FeatureLevel, MetadataRecord
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.features.losses import find_losses
from quorum.controller.features.support import in_the_way
from quorum.controller.partitions.elr_clearing import cleared
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_commands import (
    FeatureResult,
    FeatureUpdate,
    LookedAt,
    UpdateFeatures,
    UpdateFeaturesReply,
    UpgradeType,
)
from quorum.controller.protocol.happenings import FeatureFinalized
from quorum.controller.protocol.pieces import next_slice

NAMED_MAX: Final = 5
"""How many nodes a refusal names at most."""
_TRANSACTION: Final = "UpdateFeatures"


def level_of_feature(image: MetadataImage, name: str) -> int:
    """The finalized level; 0: the feature is off."""
    if name == METADATA_VERSION:
        return image.metadata_version
    level: int = image.features.get(name, 0)
    return level


def update_features(image: MetadataImage, command: UpdateFeatures, config: ControllerConfig) -> Decision:
    """Writes the new levels; nothing for a feature that has its level. A downgrade looks at the partitions in slices first.

    Raises:
        ControllerError: INVALID_REQUEST; INVALID_UPDATE_VERSION: the cluster cannot have this level, or the direction is not
            allowed; FEATURE_UPDATE_FAILED: something in the metadata needs the present level.
    """
    now = {update.name: level_of_feature(image, update.name) for update in command.updates}
    lowered = {update.name: update.level for update in command.updates if update.level < now[update.name]}
    _check_levels(image, command, now)  # in each slice: the nodes may have changed since the slice before
    if lowered and command.clearing is None:
        looked_at = command.looked_at or LookedAt()
        found = find_losses(image, lowered, looked_at, config.slice_partitions_max)
        if found.names:
            raise ControllerError(ErrorCode.FEATURE_UPDATE_FAILED, _loss(lowered, now, str(found)))
        if not found.is_complete:
            return Decision((), UpdateFeaturesReply(), replace(command, looked_at=looked_at))
    return _written(
        image, command, lowered, [update for update in command.updates if update.level != now[update.name]], config
    )


def _written(
    image: MetadataImage,
    command: UpdateFeatures,
    lowered: Mapping[str, int],
    changed: Sequence[FeatureUpdate],
    config: ControllerConfig,
) -> Decision:
    """Writes the levels, after the end of what a lowered feature has kept: the eligible leader replicas (KIP-966). If these are
    many, the records are a transaction. A downgrade of metadata.version has found that there are none."""
    reply = UpdateFeaturesReply(results=tuple(FeatureResult(each.name, level=each.level) for each in command.updates))
    if command.validate_only or not changed:
        return Decision((), reply)
    records: list[MetadataRecord] = []
    if ELR_VERSION in lowered and METADATA_VERSION not in lowered:
        topics = image.topics_by_id.unordered_values()
        clearing = command.clearing or cleared(topics, config.transaction_records_max - len(changed))
        records, has_more = next_slice(clearing, config.transaction_slice_records)
        if has_more:
            return Decision(tuple(records), reply, replace(command, clearing=clearing), transaction=_TRANSACTION)
    told = tuple(FeatureFinalized(each.name, each.level) for each in changed)
    levels = (FeatureLevel(each.name, each.level) for each in changed)
    return Decision((*records, *levels), reply, happenings=told, transaction=_TRANSACTION if command.clearing else "")


def _check_levels(image: MetadataImage, command: UpdateFeatures, now: Mapping[str, int]) -> None:
    _check_request(command)
    for update in command.updates:
        _check_level(update, now[update.name])
        _check_nodes(image, command, update)
    _check_needs(dict(image.features.items()) | {update.name: update.level for update in command.updates})


def _check_request(command: UpdateFeatures) -> None:
    names = [update.name for update in command.updates]
    if not names:
        raise ControllerError(ErrorCode.INVALID_REQUEST, "the request names no feature; nothing was done")
    if len(set(names)) < len(names):
        raise ControllerError(ErrorCode.INVALID_REQUEST, "the request names a feature twice; nothing was done")


def _refusal(text: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_UPDATE_VERSION, f"{text}; nothing was done")


def _check_level(update: FeatureUpdate, now: int) -> None:
    """Refuses a level that this release does not know, and a direction that the request does not allow."""
    name, level, upgrade_type = update
    feature = FEATURES.get(name)
    if feature is None:
        raise _refusal(f"there is no feature {name[:100]!r}: this release knows {', '.join(FEATURES)}")
    if not feature.min_level <= level <= feature.max_level:
        raise _refusal(f"{name} {level}: this release supports {feature.min_level} to {feature.max_level}")
    if upgrade_type is UpgradeType.UNSAFE_DOWNGRADE:
        raise _refusal("an unsafe downgrade would lose metadata, and no release supports one")
    if level < now and upgrade_type is UpgradeType.UPGRADE:
        raise _refusal(f"{name} is at level {now}, and {level} would be a downgrade, which the request does not allow")
    if level > now and upgrade_type is not UpgradeType.UPGRADE:
        raise _refusal(f"{name} is at level {now}, and {level} would be an upgrade, which the request does not allow")


def _check_nodes(image: MetadataImage, command: UpdateFeatures, update: FeatureUpdate) -> None:
    problems = in_the_way(image, command.voters, update.name, update.level)
    if problems:
        others = f" and {len(problems) - NAMED_MAX:,} more" if len(problems) > NAMED_MAX else ""
        raise _refusal(
            f"{update.name} {update.level} is not supported by all nodes: {', '.join(problems[:NAMED_MAX])}{others}"
        )


def _check_needs(after: Mapping[str, int]) -> None:
    """Refuses levels that do not go together."""
    for name, feature in FEATURES.items():
        level = after.get(name, 0)
        needs = [need for at, group in feature.needs.items() if at <= level for need in group]
        for need in needs:
            if after.get(need.name, 0) < need.level:
                raise _refusal(
                    f"{name} {level} needs {need.name} {need.level}, which would be at {after.get(need.name, 0)}"
                )


def _loss(lowered: Mapping[str, int], now: Mapping[str, int], found: str) -> str:
    what = ", ".join(f"{name} {now[name]} to {level}" for name, level in lowered.items())
    return (
        f"a downgrade of {what} would lose metadata of {found}; nothing was done. Wait until reassignments are finished and "
        "replicas are in sync, or take these settings back, and try again"
    )
