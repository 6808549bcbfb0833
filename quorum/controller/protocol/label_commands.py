"""The command that attaches labels to topics, partitions and brokers and removes them, and its reply."""

from dataclasses import dataclass

from metadata_log.format.ids import Offset
from metadata_log.format.records import WHOLE_RESOURCE
from quorum.controller.protocol.replies import NOT_APPENDED


@dataclass(frozen=True, slots=True)
class LabelAlteration:
    """Labels of one topic, partition or broker. Resource types and names are those of configs."""

    resource_type: int
    resource_name: str
    partition: int = WHOLE_RESOURCE
    changes: tuple[tuple[str, str | None], ...] = ()
    """Keys with their new values; None: the label is removed."""


@dataclass(frozen=True, slots=True)
class AlterLabels:
    """Attach, change and remove labels: all of it, or nothing."""

    alterations: tuple[LabelAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterLabelsReply:
    offset: Offset = NOT_APPENDED
