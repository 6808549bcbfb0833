"""The command that alters client quotas, and its reply (Kafka's AlterClientQuotas, KIP-546)."""

from dataclasses import dataclass
from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import QuotaEntity
from quorum.controller.protocol.replies import NOT_APPENDED


class QuotaOperation(NamedTuple):
    """The wanted value of one key. None removes the quota."""

    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    """Operations on one client entity, done together or not at all. The parts of `entity` may have any order."""

    entity: tuple[QuotaEntity, ...]
    operations: tuple[QuotaOperation, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class QuotaResult:
    """The result for one entity. An answer that was remembered has the parts of `entity` as plain tuples."""

    entity: tuple[tuple[str, str | None], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterClientQuotasReply:
    """The results are in the order of the alterations."""

    offset: Offset = NOT_APPENDED
    results: tuple[QuotaResult, ...] = ()
