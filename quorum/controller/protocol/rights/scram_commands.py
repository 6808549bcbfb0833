"""The command that alters SCRAM credentials of users, and its reply (Kafka's AlterUserScramCredentials, KIP-554)."""

from dataclasses import dataclass, field
from enum import IntEnum

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller.protocol.replies import NOT_APPENDED


class ScramMechanism(IntEnum):
    """The mechanisms, with Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramSecrets:
    """The data that checks a password (RFC 5802). The client makes the keys: no password comes to a controller."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScramAlteration:
    """The wanted credential of one user for one mechanism. None removes the credential."""

    user: str
    mechanism: int
    secrets: ScramSecrets | None


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentials:
    alterations: tuple[ScramAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ScramResult:
    """The result of one alteration."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsReply:
    """The results are in the order of the alterations."""

    offset: Offset = NOT_APPENDED
    results: tuple[ScramResult, ...] = ()
