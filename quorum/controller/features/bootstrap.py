"""The first level of `metadata.version`, in a cluster without a log."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    ELR_METADATA_VERSION,
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    FeatureLevel,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_commands import BootstrapFeatures, BootstrapFeaturesReply
from quorum.controller.protocol.happenings import FeatureFinalized


def bootstrap_features(image: MetadataImage, command: BootstrapFeatures) -> Decision:
    """Writes the level of `metadata.version`, once in a cluster's life. Raises ControllerError(UNSUPPORTED_VERSION).

    A cluster that has records and no level is at the lowest level, and stays there until an operator raises it.
    """
    level = command.metadata_version
    if not METADATA_VERSION_MIN <= level <= METADATA_VERSION_MAX:
        raise ControllerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{METADATA_VERSION} {level} is not supported: {METADATA_VERSION_MIN} to {METADATA_VERSION_MAX} are",
        )
    if METADATA_VERSION in image.features:
        return Decision((), BootstrapFeaturesReply())
    if image.record_count:
        level = METADATA_VERSION_MIN
    records = [FeatureLevel(METADATA_VERSION, level)]
    if command.elr_version and level >= ELR_METADATA_VERSION:
        records.append(FeatureLevel(ELR_VERSION, command.elr_version))
    told = tuple([FeatureFinalized(record.name, record.level) for record in records])
    return Decision(tuple(records), BootstrapFeaturesReply(), happenings=told)
