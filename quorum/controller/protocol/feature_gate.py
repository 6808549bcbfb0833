"""The question that a decision asks before it writes something newer: has the cluster the level of `metadata.version`?

Replay refuses a record above the level (`metadata_log.image.delta`), and a refusal there is a bug of this program. So a decision
asks first, and the operator reads what to do. For example, at level 1 a reassignment is refused with UNSUPPORTED_VERSION, because
`adding_replicas` needs level 2.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import METADATA_VERSION
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import ControllerError


def has_level(image: MetadataImage, level: int) -> bool:
    """True if records of this level may be written."""
    return image.metadata_version >= level


def require_level(image: MetadataImage, level: int, what: str) -> None:
    """Raises ControllerError(UNSUPPORTED_VERSION) if the cluster is below the level. `what` is the subject: "a reassignment"."""
    if not has_level(image, level):
        raise ControllerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} needs {METADATA_VERSION} {level}, and the cluster is at level {image.metadata_version}; nothing was done. "
            "When all controllers and brokers run this release, run `quorumctl features upgrade`",
        )
