"""`LiveSource`: a running cluster answers the queries of a shell, over gRPC (`AdminService.ReadTree`).

1. An operator opens the shell with `-C 10.0.0.1:9001`. Controller 1 follows controller 2, and hands the queries on.
2. `ls topics` shows the newest committed image. The next `ls topics` shows a topic that was created meanwhile.
3. Controller 2 dies. The next command finds the new leader, as each command of `quorumctl` does.
4. Ctrl-C ends a long `history`: the client ends the call, and the controller ends its work.

The client has an event loop on a thread of its own, because the shell waits for lines from a terminal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

from clients.blocking.loop_thread import LoopThread
from metadata_log.format.errors import ErrorCode
from metadata_log.tree.queries import Query, Row
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_USAGE, CliError, of_admin_error
from quorum.cli.options import Options, open_client, whose
from quorum.cli.shell.source import Answer, Refusal
from quorum.wire.convert.convert_tree import from_row, to_request
from quorum.wire.convert.errors import BadMessage
from snapshots.history.wanted import Wanted

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient, AdminError

EXIT_CODES: Final = {
    ErrorCode.RESOURCE_NOT_FOUND: EXIT_NOT_FOUND,
    ErrorCode.OFFSET_OUT_OF_RANGE: EXIT_NOT_FOUND,
    ErrorCode.STORAGE_ERROR: EXIT_NOT_FOUND,
    ErrorCode.INVALID_REQUEST: EXIT_USAGE,
}
"""The exit codes of refusals that a directory has, too. The texts are the same."""
TOO_OLD: Final = (
    "the controllers of this cluster are of an older release, which has no shell. Upgrade the controllers, or run "
    "`quorumctl shell DIR` beside one of them, with its data directory"
)


class LiveSource:
    """A cluster that runs. `with LiveSource(options) as source`: the connections are closed at the end."""

    def __init__(self, options: Options) -> None:
        """Raises CliError: an option cannot be used."""
        from service_kit.security.tls import TlsUnusable

        self._endpoints = ",".join(options.endpoints)
        self.local_view: admin_pb2.LocalView | None = None
        """The node of the last answer, if the answer came from this node's own image."""
        self._opening = open_client(options)
        self._loop = LoopThread()
        try:
            self._client: AdminClient = self._loop.run(self._opening.__aenter__())
        except TlsUnusable as e:
            self._loop.close()
            raise CliError(str(e), EXIT_USAGE) from e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._opening.__aexit__(None, None, None))
        self._loop.close()

    @property
    def title(self) -> str:
        if self.local_view is None:
            return f"the cluster at {self._endpoints}"
        return f"the cluster at {self._endpoints}: {whose(self.local_view)}"

    def ask(self, query: Query, at: Wanted | None = None, before: Wanted | None = None) -> Answer:
        request = to_request(query, before)
        if at is not None and at.offset is not None:
            request.context.at_offset = at.offset
        if at is not None and at.time_ms is not None:
            request.context.at_time_ms = at.time_ms
        messages = self._messages(self._client.read_tree(request))
        first = next(messages)
        self.local_view = self._client.local_view
        return Answer(first.as_of_offset, _rows(messages))

    def _messages(self, messages: AsyncIterator[Any]) -> Iterator[Any]:
        from metaquorum import AdminError

        try:
            yield from self._loop.iterate(messages)
        except AdminError as e:
            raise _refusal(e) from e


def _rows(messages: Iterator[Any]) -> Iterator[Row]:
    try:
        for message in messages:
            yield from map(from_row, message.rows)
    except BadMessage as e:
        raise Refusal(
            f"the answer cannot be read: {e}. Is this quorumctl as new as the controllers?", EXIT_REFUSED
        ) from e


def _refusal(e: AdminError) -> Refusal:
    from metaquorum import NoLeader

    last = e.last if isinstance(e, NoLeader) and e.last is not None else e
    if last.code is ErrorCode.UNSUPPORTED_VERSION:
        return Refusal(f"{TOO_OLD} ({last.message})", EXIT_REFUSED)
    if last.code in EXIT_CODES:
        return Refusal(last.message, EXIT_CODES[last.code])
    told = of_admin_error(e)
    return Refusal(told.message, told.exit_code)
