"""Features of the cluster, registrations of controllers, and blocks of producer ids."""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NODE_ID_MAX
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    FeatureLevel,
    ProducerIds,
    RegisterController,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.registration import endpoint_problem, feature_problem, supported_problem
from quorum.controller.protocol.commands import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    BootstrapFeatures,
    BootstrapFeaturesReply,
    RegisterControllerCommand,
    RegisterControllerReply,
)
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.happenings import ControllerRegistered, FeatureFinalized

PRODUCER_ID_END: Final = (1 << 63) - 1


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
    record = FeatureLevel(METADATA_VERSION, level)
    return Decision((record,), BootstrapFeaturesReply(), happenings=(FeatureFinalized(METADATA_VERSION, level),))


def register_controller(image: MetadataImage, command: RegisterControllerCommand) -> Decision:
    """Writes a controller's registration; nothing if it has not changed. Raises ControllerError."""
    problem = endpoint_problem(command.endpoints) or supported_problem(command.features)
    if not 0 <= command.controller_id <= NODE_ID_MAX:
        problem = f"a controller id is between 0 and {NODE_ID_MAX}"
    elif len(command.incarnation_id) != 16:
        problem = "the incarnation id must be 16 bytes"
    if problem is not None:
        raise ControllerError(ErrorCode.INVALID_REGISTRATION, f"controller {command.controller_id}: {problem}")
    problem = feature_problem(image, command.features)
    if problem is not None:
        raise ControllerError(ErrorCode.UNSUPPORTED_VERSION, f"controller {command.controller_id}: {problem}")
    record = RegisterController(command.controller_id, command.incarnation_id, command.endpoints, command.features)
    if image.controllers.get(command.controller_id) == record:
        return Decision((), RegisterControllerReply())
    return Decision((record,), RegisterControllerReply(), happenings=(ControllerRegistered(command.controller_id),))


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds, block: int) -> Decision:
    """Gives out the next `block` ids. The caller has checked that the broker is registered. Raises ControllerError if no id is
    left."""
    last = image.producer_ids
    first = 0 if last is None else last.next_producer_id
    if first > PRODUCER_ID_END - block:
        raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    record = ProducerIds(command.broker_id, command.broker_epoch, first + block)
    return Decision((record,), AllocateProducerIdsReply(first_producer_id=first, count=block))
