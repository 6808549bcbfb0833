"""The errors of an embedded agent. Each says what happened, what was not done, and what to do."""

from typing import Final

from metadata_log.disk.failures import DirectoryInUse, FlushFailed
from metadata_log.disk.identity import ForeignDirectory, UnformattedDirectory
from metadata_log.format.errors import ErrorCode, LogFormatError
from service_kit.process.config import ConfigErrors
from service_kit.rpc.binding import CannotBind
from service_kit.security.tls import TlsUnusable


class AgentError(Exception):
    """The agent, or a call of it, has failed."""


class CannotStart(AgentError):
    """The agent cannot start with this configuration or directory. Nothing was registered; a repetition fails again."""


class NotRegistered(AgentError):
    """The controllers have refused this broker, or none answered in time. The process may try again."""


class NotRunning(AgentError):
    """The agent does not run: it was not started, or has left."""


class AgentEnded(AgentError):
    """The agent has ended by itself, and the broker must not serve any more. Start the process again."""


class DiskFailed(AgentEnded):
    """The disk under the metadata directory has failed. End the process: only a new process knows what the disk has kept."""


class ProposalRefused(AgentError):
    """The controller did not grant an ISR. `code` is its reason."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class ProposalInFlight(AgentError):
    """Another proposal of the partition has no answer yet. Nothing was sent."""


class NotAnswered(AgentError):
    """The controller has refused the whole request, or did not answer. The change may have happened."""


_CANNOT_START: Final = (ConfigErrors, UnformattedDirectory, ForeignDirectory, LogFormatError, TlsUnusable)


def typed(error: BaseException) -> BaseException:
    """Returns the error of the agent for an error of the rooms below; other errors stay as they are."""
    if isinstance(error, _CANNOT_START):
        return CannotStart(f"{error}. The broker was not started; correct this first")
    if isinstance(error, DirectoryInUse | CannotBind):
        return CannotStart(f"{error}. The broker was not started; end the other process, or name another place")
    if isinstance(error, OSError | FlushFailed):
        return DiskFailed(
            f"the disk has failed: {error}. The broker has ended. Check the disk, then start the process again"
        )
    return error
