"""The brokers that `produce` and `consume` ask, and the errors of their clients as lines with exit codes.

`-b` names brokers, which are asked at once. `-C` names controllers, which tell the addresses of the brokers that are online:

    1. `quorumctl consume orders -C 10.0.0.1:9001` asks the controller for the topic `orders`: does it exist?
    2. The controller lists brokers 101 and 102 as online, with their addresses. The consumer begins with both addresses.
    3. The consumer asks one of the brokers for the leaders, and reads from the leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_REFUSED, EXIT_TIMEOUT, EXIT_USAGE, CliError, exit_code_of
from quorum.cli.options import Options, ask, tls_files
from quorum.wire.words import endpoint_text, state_text

if TYPE_CHECKING:
    from metaquorum import AdminClient
    from service_kit.rpc.dial import Dialer

T = TypeVar("T")


def broker_addresses(options: Options, topic: str) -> tuple[str, ...]:
    """Returns `host:port` of brokers. Raises CliError if the controllers do not know the topic, or no broker is online."""
    if options.bootstrap_server is not None and options.bootstrap_controller is None:
        return options.endpoints

    async def work(client: AdminClient) -> tuple[str, ...]:
        await client.describe_topic(topic)
        return tuple(
            [
                endpoint_text(broker.endpoints[0])
                async for broker in client.brokers()
                if broker.endpoints and state_text(broker.state) == "online"
            ]
        )

    found = ask(options, work)
    if not found:
        raise CliError(
            "no broker is online, so no records were read or written; see `quorumctl brokers list`", EXIT_TIMEOUT
        )
    return found


def run(options: Options, work: Callable[[Dialer], Awaitable[T]]) -> T:
    """Runs `work` with connections to brokers. An error of a client ends the command with one line and an exit code."""
    from metaquorum import AdminError, ConsumerError, Dialer, PositionsUnusable, SendError
    from service_kit.security.tls import TlsUnusable

    async def dialed() -> T:
        async with Dialer(tls_files(options)) as dialer:
            return await work(dialer)

    try:
        return asyncio.run(dialed())
    except TlsUnusable as e:
        raise CliError(str(e), EXIT_USAGE) from e
    except PositionsUnusable as e:
        raise CliError(str(e), EXIT_REFUSED) from e
    except (AdminError, ConsumerError, SendError) as e:
        raise CliError(f"{e.code.name}: {e.message}", _exit_code(e.code)) from e


def _exit_code(code: ErrorCode) -> int:
    return EXIT_TIMEOUT if code is ErrorCode.LEADER_NOT_AVAILABLE else exit_code_of(code)
