"""The registrations of controllers. The runtime of each controller sends its own (`quorum.runtime.registration`)."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NODE_ID_MAX
from metadata_log.format.records import RegisterController
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.registration_rules import endpoint_problem, feature_problem, supported_problem
from quorum.controller.protocol.commands import RegisterControllerCommand, RegisterControllerReply
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.happenings import ControllerRegistered


def register_controller(image: MetadataImage, command: RegisterControllerCommand) -> Decision:
    """Writes a controller's registration; nothing if it has not changed. Raises ControllerError.

    A controller whose configuration does not say its addresses registers without any.
    """
    problem = supported_problem(command.features)
    if command.endpoints:
        problem = endpoint_problem(command.endpoints) or problem
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
