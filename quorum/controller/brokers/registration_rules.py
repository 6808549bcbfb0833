"""The rules of a broker's registration (KIP-631).

A broker's epoch is the offset of its registration record. So the reply has the epoch only after the record is in the log. An
*incarnation* is one run of a broker process.

    1  Incarnation A registers as broker 7 at offset 40: its epoch is 40.
    2  A registers again: a retry. A may change endpoints, rack, features and data plane. A keeps its epoch, its state and its
       log directories: a directory that A has reported as lost comes back with the next incarnation only.
    3  Incarnation B registers as broker 7 while A has a live session. B is refused: two processes would be one broker.
    4  B names A as its predecessor. B holds the lock of A's data directory, so A is dead, and B replaces A at once (KAFKA-19047).
"""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, NODE_ID_MAX, UNASSIGNED_DIRECTORY, uuid_text
from metadata_log.format.records import EXTERNAL_DATA_PLANE, NO_DATA_PLANE, Endpoint, FeatureRange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import RegisterBrokerCommand
from quorum.controller.protocol.decision import ControllerError

LOG_DIRS_MAX: Final = 100
ENDPOINTS_MAX: Final = 32
FEATURES_MAX: Final = 100
DATA_PLANES: Final = (EXTERNAL_DATA_PLANE, NO_DATA_PLANE)
TEXT_MAX: Final = 255
"""Maximum number of characters of a host name, a rack or a listener's name."""


def endpoint_problem(endpoints: tuple[Endpoint, ...]) -> str | None:
    """Says what is wrong with a node's endpoints; None if they are sound."""
    if not endpoints:
        return "no endpoints: at least one listener must be named"
    if len(endpoints) > ENDPOINTS_MAX:
        return f"{len(endpoints)} endpoints: at most {ENDPOINTS_MAX} are allowed"
    listeners = [endpoint.listener for endpoint in endpoints]
    if len(set(listeners)) != len(listeners):
        return f"listener {next(name for name in listeners if listeners.count(name) > 1)!r} is named twice"
    for listener, host, port in endpoints:
        if not 1 <= len(listener) <= TEXT_MAX:
            return f"a listener's name has 1 to {TEXT_MAX} characters, not {len(listener)}"
        if not 1 <= len(host) <= TEXT_MAX:
            return f"the host of listener {listener!r} has 1 to {TEXT_MAX} characters, not {len(host)}"
        if not 1 <= port <= 65_535:
            return f"the port of listener {listener!r} is between 1 and 65535, not {port}"
    return None


def feature_problem(image: MetadataImage, features: tuple[FeatureRange, ...]) -> str | None:
    """Names a finalized feature that a node with these ranges does not support; None if it supports all."""
    supported = {feature.name: feature for feature in features}
    for name, level in image.features.items():
        found = supported.get(name)
        if found is None:
            return f"feature {name} is at level {level} in this cluster, and the node does not know it"
        if not found.min_level <= level <= found.max_level:
            return (
                f"feature {name} is at level {level} in this cluster, and the node supports "
                f"{found.min_level} to {found.max_level}"
            )
    return None


def supported_problem(features: tuple[FeatureRange, ...]) -> str | None:
    """Says what is wrong with the ranges that a node has sent; None if they are sound."""
    if len(features) > FEATURES_MAX:
        return f"{len(features)} features: at most {FEATURES_MAX} are allowed"
    return next((problem for each in features if (problem := _range_problem(each))), None)


def _range_problem(feature: FeatureRange) -> str | None:
    """Says what is wrong with a range by itself, because the range will be in the log for good."""
    if not 1 <= len(feature.name) <= TEXT_MAX:
        return f"a feature's name has 1 to {TEXT_MAX} characters, not {len(feature.name)}"
    if not 0 <= feature.min_level <= feature.max_level:
        return f"feature {feature.name}: levels {feature.min_level} to {feature.max_level} are no range"
    return None


def _log_dir_problem(image: MetadataImage, command: RegisterBrokerCommand) -> str | None:
    log_dirs = command.log_dirs
    if not 1 <= len(log_dirs) <= LOG_DIRS_MAX:
        return f"{len(log_dirs)} log directories: 1 to {LOG_DIRS_MAX} are allowed"
    if len(set(log_dirs)) != len(log_dirs):
        return f"log directory {uuid_text(next(each for each in log_dirs if log_dirs.count(each) > 1))} is named twice"
    wanted = set(log_dirs)
    if not wanted.isdisjoint((UNASSIGNED_DIRECTORY, LOST_DIRECTORY)):
        return "the log directory id of all zeros, and the next one, are reserved: draw a random id"
    for broker in image.brokers.unordered_values():
        if broker.broker_id != command.broker_id and not wanted.isdisjoint(broker.log_dirs):
            shared = next(each for each in log_dirs if each in broker.log_dirs)
            return f"log directory {uuid_text(shared)} belongs to broker {broker.broker_id}: is this a copied disk?"
    return None


def check_registration(image: MetadataImage, command: RegisterBrokerCommand) -> None:
    """Refuses a registration that is wrong by itself, or by the cluster's features and log directories.

    Raises:
        ControllerError: INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    problem: str | None = None
    if not 0 <= command.broker_id <= NODE_ID_MAX:
        problem = f"broker id {command.broker_id} is not between 0 and {NODE_ID_MAX}"
    elif len(command.incarnation_id) != 16 or command.incarnation_id == bytes(16):
        problem = "the incarnation id must be 16 bytes, and not all zero"
    elif any(len(log_dir) != 16 for log_dir in command.log_dirs):
        problem = "a log directory's id must be 16 bytes"
    elif command.rack is not None and not 1 <= len(command.rack) <= TEXT_MAX:
        problem = f"a rack has 1 to {TEXT_MAX} characters, not {len(command.rack)}"
    elif command.data_plane not in DATA_PLANES:
        problem = f"the data plane is one of {', '.join(DATA_PLANES)}, and not {command.data_plane[:TEXT_MAX]!r}"
    else:
        problem = (
            endpoint_problem(command.endpoints)
            or _log_dir_problem(image, command)
            or supported_problem(command.features)
        )
    if problem is not None:
        raise ControllerError(ErrorCode.INVALID_REGISTRATION, f"broker {command.broker_id}: {problem}")
    problem = feature_problem(image, command.features)
    if problem is not None:
        raise ControllerError(ErrorCode.UNSUPPORTED_VERSION, f"broker {command.broker_id}: {problem}")


def may_have_lost_records(old: RegisterBroker, command: RegisterBrokerCommand) -> bool:
    """True if replicas on the broker may lack records that `old`, its last process, had acknowledged (KIP-966).

    A broker has its records if it proves a clean shutdown, and if all its log directories are back. A broker without a data plane
    has no records that could be lost.
    """
    if old.data_plane == command.data_plane == NO_DATA_PLANE:
        return False
    is_proven = command.previous_broker_epoch == old.broker_epoch
    return not is_proven or not set(old.log_dirs).issubset(command.log_dirs)


def registration_record(command: RegisterBrokerCommand, kept: RegisterBroker | None) -> RegisterBroker:
    """Makes the record of a new registration, or of `kept` with the changes of the same incarnation."""
    record = RegisterBroker(
        broker_id=command.broker_id,
        incarnation_id=command.incarnation_id,
        endpoints=command.endpoints,
        features=command.features,
        rack=command.rack,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=command.log_dirs,
        data_plane=command.data_plane,
    )
    if kept is None:
        return record
    return record._replace(
        fenced=kept.fenced,
        in_controlled_shutdown=kept.in_controlled_shutdown,
        log_dirs=kept.log_dirs,
        broker_epoch=kept.broker_epoch,
        reason=kept.reason,
        since_ms=kept.since_ms,
        dead=kept.dead,
    )
