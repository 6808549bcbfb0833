"""`quorumctl users`: sees and changes the SCRAM credentials of users, which the log carries for the system on the brokers.

A password comes from a file or from the standard input, never from the command line, where other users of the machine see it. The
tool makes salt and keys: no password is sent. For example `users set alice --password-file secret.txt`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.results import emit_results, outcome
from quorum.cli.shared_options import DRY_RUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

PASSWORD_BYTES_MAX: Final = 1_024
_COLUMNS: Final = (Column("USER", "user"), Column("MECHANISM", "mechanism"), Column("ITERATIONS", "iterations"))
_RESULTS: Final = (Column("USER", "user"), Column("MECHANISM", "mechanism"), Column("RESULT", "result"))
_NAMES: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@click.group()
def users() -> None:
    """See and change SCRAM credentials, which the log carries for the system on the brokers."""


@users.command("list")
@at_position
@command
def list_(options: Options) -> None:
    """Shows all users with the mechanisms of their credentials, without secrets.

    \b
    $ quorumctl users list
    """

    async def work(client: AdminClient) -> list[admin_pb2.DescribedUser]:
        return [each async for each in client.scram_users()]

    rows = [
        {"user": each.user, "mechanism": _name(credential.mechanism), "iterations": credential.iterations}
        for each in ask(options, work)
        for credential in each.credentials
    ]
    emit(options.output, {"users": rows}, rows="users", columns=_COLUMNS)


def _name(mechanism: int) -> str:
    return _NAMES[mechanism - 1] if 1 <= mechanism <= len(_NAMES) else str(mechanism)


@users.command("set")
@click.argument("user", metavar="USER")
@click.option(
    "--password-file",
    required=True,
    metavar="FILE",
    help="The file with the password, one line; - is the standard input.",
)
@click.option(
    "--mechanism", type=click.Choice(_NAMES), default=_NAMES[1], show_default=True, help="The SCRAM mechanism."
)
@click.option(
    "--iterations",
    type=click.IntRange(4_096, 16_384),
    default=8_192,
    show_default=True,
    metavar="N",
    help="How often the password is hashed: 4096 to 16384.",
)
@DRY_RUN
@command
def set_(options: Options, user: str, password_file: str, mechanism: str, iterations: int, dry_run: bool) -> None:
    """Sets the password of a user. A credential of the other mechanism stays as it is.

    \b
    $ quorumctl users set alice --password-file secret.txt --mechanism SCRAM-SHA-256
    """
    from clients.scram import scram_credential

    password = _password(password_file)
    _alter(options, [scram_credential(user, password, _wire_name(mechanism), iterations)], dry_run, "altered")


@users.command()
@click.argument("user", metavar="USER")
@click.option("--mechanism", type=click.Choice(_NAMES), help="Only the credential of this mechanism.")
@DRY_RUN
@command
def remove(options: Options, user: str, mechanism: str | None, dry_run: bool) -> None:
    """Removes the credentials of a user. A credential that does not exist is no error.

    \b
    $ quorumctl users remove alice
    """
    from metaquorum import admin_pb2

    names = _NAMES if mechanism is None else (mechanism,)
    alterations = [admin_pb2.ScramAlteration(user=user, mechanism=_wire_name(each)) for each in names]
    _alter(options, alterations, dry_run, "removed")


def _wire_name(mechanism: str) -> str:
    return mechanism.replace("-", "_")


def _password(name: str) -> str:
    """Reads the password: one line, without its line end."""
    try:
        if name == "-":
            if sys.stdin is None:
                raise CliError("the standard input is closed; nothing was done; name a file", EXIT_USAGE)
            data = sys.stdin.buffer.read(PASSWORD_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(PASSWORD_BYTES_MAX + 1)
    except OSError as e:
        raise CliError(f"{name}: the password cannot be read: {e.strerror or e}", EXIT_USAGE) from e
    try:
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise CliError(f"{name}: the password is not UTF-8; nothing was done", EXIT_USAGE) from None
    if not text or len(data) > PASSWORD_BYTES_MAX or "\n" in text:
        text = f"{name}: the password must be one line of 1 to {PASSWORD_BYTES_MAX} bytes; nothing was done"
        raise CliError(text, EXIT_USAGE)
    return text


def _alter(options: Options, alterations: Sequence[admin_pb2.ScramAlteration], dry_run: bool, done: str) -> None:
    response = ask(options, lambda client: client.alter_user_scram_credentials(alterations, validate_only=dry_run))
    word = f"would be {done}" if dry_run else done
    rows = [
        {"user": each.user, "mechanism": _name(each.mechanism), **outcome(result.error, word)}
        for each, result in zip(alterations, response.results, strict=False)
    ]
    emit_results(options, response.offset, rows, _RESULTS)
