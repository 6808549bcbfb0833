"""Failures of `quorumctl`: one line that tells the operator the next step, and an exit code for scripts.

The end of a daemon's log may follow, line by line.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import click

from metadata_log.format.errors import ErrorCode

if TYPE_CHECKING:
    from metaquorum import AdminError

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_CONFLICT: Final = 4
EXIT_TIMEOUT: Final = 5
"""No controller answered, no controller leads, or the time to wait is over."""
EXIT_UNHEALTHY: Final = 10
"""The question was answered, and the answer is that something is wrong."""
EXIT_INTERRUPTED: Final = 130
"""The shell's exit code of a process that SIGINT (Ctrl-C) ended."""

_NOT_FOUND: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.VOTER_NOT_FOUND,
    )
)
_CONFLICT: Final = frozenset(
    (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.ELECTION_NOT_NEEDED,
    )
)
_NO_ANSWER: Final = frozenset((ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT))
"""The codes of a broker (-b) that has reached no controller: the same outcome as with -C, when no controller is reached."""


class CliError(click.ClickException):
    """Ends the command with one line on stderr, and with the lines of `log_tail` below."""

    def __init__(self, message: str, exit_code: int = EXIT_REFUSED, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail
        vars(self)["exit_code"] = (
            exit_code  # click declares the exit code for the class, and reads it from the instance
        )

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"quorumctl: {' '.join(self.message.split())}", err=True, file=file)
        for line in self.log_tail.splitlines():
            click.echo(f"  {line}", err=True, file=file)


def exit_code_of(code: ErrorCode) -> int:
    """The exit code for a controller's refusal."""
    if code in _NOT_FOUND:
        return EXIT_NOT_FOUND
    if code in _CONFLICT:
        return EXIT_CONFLICT
    if code in _NO_ANSWER:
        return EXIT_TIMEOUT
    return EXIT_REFUSED


def of_admin_error(e: AdminError) -> CliError:
    """The line and exit code for what the client raised."""
    from metaquorum import Incomplete, MayHaveHappened, NoLeader, NotReached, Unanswered

    if isinstance(e.last if isinstance(e, NoLeader) else e, NotReached):
        text = f"{e.message}. Does a node of the cluster run there? Name controllers with -C host:port,..., or brokers with -b"
        return CliError(text, EXIT_TIMEOUT)
    if isinstance(e, NoLeader):
        return CliError(f"{e.message}. `quorumctl quorum status` shows what each controller knows", EXIT_TIMEOUT)
    if isinstance(e, MayHaveHappened):
        return CliError(f"{e.message}. The change may have been made: look before you repeat it", EXIT_TIMEOUT)
    if isinstance(e, Incomplete):
        advice = "Give a longer --timeout, or ask for a part: `quorumctl partitions list` has --limit and --topic"
        return CliError(f"{e.message}. Nothing was changed. {advice}", EXIT_TIMEOUT)
    if isinstance(e, Unanswered):
        return CliError(f"{e.message}. The request was a read, and nothing was changed: ask again", EXIT_TIMEOUT)
    if e.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return CliError(f"{e.message}. Check the addresses after -C or -b", EXIT_REFUSED)
    return CliError(f"{e.code.name}: {e.message}", exit_code_of(e.code))
