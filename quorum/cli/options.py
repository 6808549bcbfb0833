"""The options that every command has, before or after its name, and the client that a command uses."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from metadata_log.format.ids import OFFSET_MAX
from quorum.cli.errors import EXIT_INTERRUPTED, EXIT_USAGE, CliError, of_admin_error
from quorum.cli.times import Time
from service_kit.process.endpoints import BadEndpoint, parse_host_port

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient, AdminError, EntityClient
    from service_kit.security.tls import TlsFiles

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_CONTROLLER: Final = "127.0.0.1:9001"
DEFAULT_TIMEOUT_S: Final = 10.0
OUTPUTS: Final = ("table", "json", "jsonl", "yaml")
_INTERRUPTED: Final = (
    "interrupted: the command no longer waits, and what has begun goes on. Run the command again to go on waiting; "
    "`quorumctl partitions reassign list` shows what is moving, and `quorumctl partitions reassign cancel` ends that"
)
_ADDRESSES: Final = ("bootstrap_server", "bootstrap_controller")
"""Fields of `Options`, of which one may be given."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options from the command line and the environment."""

    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    output: str = "table"
    timeout_s: float | None = None
    """None: not given."""
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    local: bool | None = None
    at_offset: int | None = None
    at_time_ms: int | None = None
    """Where a read of the past looks; None: the newest image."""
    from_environment: frozenset[str] = frozenset()
    """Names of the fields above whose values the environment gave: a flag takes the place of each."""

    @property
    def request_timeout_s(self) -> float:
        """How long one question to the cluster may take."""
        return DEFAULT_TIMEOUT_S if self.timeout_s is None else self.timeout_s

    @property
    def wait_s(self) -> float:
        """How long a command with `--wait` waits. The default is no limit: the copies of a large broker take hours."""
        return math.inf if self.timeout_s is None else self.timeout_s

    @property
    def endpoints(self) -> tuple[str, ...]:
        """`host:port` of each controller to ask."""
        if self.bootstrap_server is not None and self.bootstrap_controller is not None:
            raise CliError(
                "either --bootstrap-controller (or QUORUMCTL_BOOTSTRAP_CONTROLLER) or --bootstrap-server "
                "(or QUORUMCTL_BOOTSTRAP_SERVER), not both",
                EXIT_USAGE,
            )
        said = self.bootstrap_server if self.bootstrap_controller is None else self.bootstrap_controller
        # An empty text is an unset shell variable, and does not mean the default.
        text = DEFAULT_CONTROLLER if said is None else said
        endpoints = tuple(entry.strip() for entry in text.split(",") if entry.strip())
        for endpoint in endpoints:
            try:
                parse_host_port(endpoint)
            except BadEndpoint as e:
                raise CliError(f"{e}; write host:port, several with commas between", EXIT_USAGE) from e
        if not endpoints:
            raise CliError("no address given; write -C host:port", EXIT_USAGE)
        return endpoints


class Seconds(click.FloatRange):
    """A duration. click takes `nan` for a number in every range, since no bound is above or below it."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no duration.", param, ctx)
        return seconds


_PEM = click.Path(path_type=Path, exists=True, dir_okay=False)
_GLOBALS = (
    click.option("-b", "--bootstrap-server", metavar="HOST:PORT,...", help="Brokers to ask; they ask the controllers."),
    click.option("-C", "--bootstrap-controller", metavar="HOST:PORT,...", help="Controllers to ask."),
    click.option("-o", "--output", type=click.Choice(OUTPUTS), help="Default: table."),
    click.option(
        "--cacert", type=_PEM, help="Use TLS: file with the authority that must have signed the nodes' certificates."
    ),
    click.option("--cert", type=_PEM, help="Use TLS: file with your certificate."),
    click.option("--key", type=_PEM, help="Use TLS: file with your certificate's private key."),
    click.option(
        "--local",
        is_flag=True,
        default=None,
        help="Read from the asked controller's own image, leader or not; the image may be old.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(0.05, 604_800),
        metavar="SECONDS",
        help="How long the question with all its pages, or the wait of the command, may take. Default: 10 for each page, or as "
        "the command says.",
    ),
)


_POSITION = (
    click.option(
        "--at-offset",
        type=click.IntRange(0, OFFSET_MAX),
        metavar="OFFSET",
        help="Show the state after the records below this offset.",
    ),
    click.option(
        "--at-time",
        "at_time_ms",
        type=Time(),
        metavar="TIME",
        help="Show the state at this time: 2026-11-24T09:30:00Z, or 15m for a quarter of an hour ago.",
    ),
)


def global_options(command: F) -> F:
    """Adds the options that all commands have."""
    for option in reversed(_GLOBALS):
        command = option(command)
    return command


def at_position(command: F) -> F:
    """Adds the options of a command that can show the past. Put the decorator above `command`."""
    for option in reversed(_POSITION):
        command = option(command)
    return command


def merged(options: Options, given: dict[str, Any], ctx: click.Context) -> Options:
    """Returns `options`, overridden by the options given nearer to the command in `ctx`; removes the global options from `given`.

    A flag beats the environment, also the other address's: after `export QUORUMCTL_BOOTSTRAP_CONTROLLER=c:1`, the words
    `-b b:1` ask the broker `b:1`, and not both.
    """
    said = {each.name: given.pop(each.name) for each in fields(Options) if each.name in given}
    said = {name: value for name, value in said.items() if value is not None}
    flags = {name for name in said if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    from_environment = (options.from_environment | said.keys()) - flags
    for flag, other in (_ADDRESSES, _ADDRESSES[::-1]):
        if flag in flags and other in from_environment:
            said[other] = None
    return replace(options, **said, from_environment=from_environment)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command function the global options, merged into one `Options` as its first argument."""

    @global_options
    @click.pass_context
    def run(ctx: click.Context, /, **given: Any) -> None:
        options = ctx.find_object(Options) or Options()
        function(merged(options, given, ctx), **given)

    return update_wrapper(run, function)


def ask(options: Options, work: Callable[[AdminClient], Awaitable[T]], *, waits: bool = False) -> T:
    """Runs `work` with a client. A refusal of the cluster ends the command with one line and an exit code.

    `waits`: the work asks again and again until --timeout, so --timeout is no limit of one question.
    """
    from metaquorum import AdminClient

    return _ask(options, AdminClient, work, waits)


def ask_entities(options: Options, work: Callable[[EntityClient], Awaitable[T]]) -> T:
    """Runs `work` with a client of entities, as `ask`."""
    from metaquorum import EntityClient

    return _ask(options, EntityClient, work, waits=False)


def _ask(options: Options, client_type: Any, work: Callable[[Any], Awaitable[T]], waits: bool) -> T:
    from metaquorum import AdminError
    from service_kit.security.tls import TlsUnusable

    timeout_s = DEFAULT_TIMEOUT_S if waits else options.request_timeout_s
    opening = _open(options, client_type, timeout_s)

    async def run() -> T:
        async with opening as client:
            if options.timeout_s is not None and not waits:
                client.lists_until_s = asyncio.get_running_loop().time() + options.timeout_s
            result = await work(client)
            if client.past_offset is not None:
                click.echo(f"quorumctl: this is the state at offset {client.past_offset}", err=True)
            if client.local_view is not None:
                click.echo(f"quorumctl: {whose(client.local_view)}", err=True)
            return result

    try:
        return asyncio.run(run())
    except KeyboardInterrupt as e:
        if not waits:
            raise
        raise CliError(_INTERRUPTED, EXIT_INTERRUPTED) from e
    except AdminError as e:
        raise of_admin_error(e) from e
    except TlsUnusable as e:
        raise CliError(str(e), EXIT_USAGE) from e


def open_client(options: Options) -> AbstractAsyncContextManager[AdminClient]:
    """Returns a client for many questions, whose connections are closed at the end of the block. Raises CliError."""
    from metaquorum import AdminClient

    return _open(options, AdminClient, options.request_timeout_s)


def _open(options: Options, client_type: Any, timeout_s: float) -> AbstractAsyncContextManager[Any]:
    from service_kit.rpc.dial import Dialer

    endpoints, tls = options.endpoints, tls_files(options)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with (
            Dialer(tls) as dialer,
            client_type(
                endpoints,
                timeout_s=timeout_s,
                dial=dialer,
                local=bool(options.local),
                at_offset=options.at_offset,
                at_time_ms=options.at_time_ms,
            ) as client,
        ):
            client.on_delay = _tell_delay if sys.stderr.isatty() else None
            yield client

    return opened()


def _tell_delay(last: AdminError, left_s: float) -> None:
    """Shows on a terminal that the command waits, instead of ten silent seconds. Scripts get the error at the end only."""
    click.echo(f"quorumctl: not done yet: {last.message}; the command tries for {left_s:.0f} s more", err=True)


def whose(view: admin_pb2.LocalView) -> str:
    """Tells from which node an answer came, and how old it may be."""
    heard = (
        f"it heard its leader {view.leader_heard_age_ms} ms ago"
        if view.HasField("leader_heard_age_ms")
        else "it has heard no leader since it started"
    )
    return f"this is what controller {view.node_id} has applied; {heard}"


def tls_files(options: Options) -> TlsFiles | None:
    """Returns the files of --cacert, --cert and --key; None: no TLS."""
    from service_kit.security.tls import TlsFiles

    if options.cacert is None and options.cert is None and options.key is None:
        return None
    if options.cacert is None or options.cert is None or options.key is None:
        raise CliError("--cacert, --cert and --key belong together: certificates are checked both ways", EXIT_USAGE)
    return TlsFiles(options.cert, options.key, options.cacert)
