"""Tables of methods: a service of unary calls is one row for each method.

A row says how the request is translated, who answers, and how the answer is translated back. `quorum.wire.table_service` does for
all rows of all services what all have in common: certificates, the cluster's id, deadlines, forwarding, refusals.

Example: the row `Viewed("CountTopics", count)` of AdminService.
    1. A client asks controller 1. Controller 1 checks the client's certificate, and the cluster's id.
    2. Controller 1 leads, and a majority confirms this. `count` gets the request and the image, and returns the answer.
    3. If `count` raises `Refused`, the call ends with this refusal. A `BadMessage` becomes INVALID_REQUEST.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from metadata_log.format.ids import Offset
from quorum.controller.protocol.commands import Command
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.snapshot_hashes import SnapshotHashes


def _unchecked(_: Any) -> None:
    """The check of a command that is never translated in pieces."""


class Submitted(NamedTuple):
    """A change: the active controller decides on a command, and answers when its records are committed.

    A request with many `items` is translated in pieces (`in_pieces`). Then `check` sees the whole command, and may raise
    BadMessage.
    """

    method: str
    from_request: Callable[[Any], Command]
    to_response: Callable[[Any], Any]
    items: str = ""
    """The repeated field that may be large: it has the same name in the request and in the command."""
    check: Callable[[Any], None] = _unchecked
    asked_by: Callable[[Any, str], Command] | None = None
    """Returns the command with the client's principal, if the command has one."""


class Viewed(NamedTuple):
    """A read of the metadata image: the newest of the active controller, or what the asked node has applied."""

    method: str
    look: Callable[[Any, ReadView], Any]


class Counted(NamedTuple):
    """A read that first counts something in the whole image, on a thread.

    With two million partitions `survey` takes 0.2 s. On the event loop's thread no heartbeat would be heard for so long.
    """

    method: str
    survey: Callable[[Any, ReadView], Any]
    look: Callable[[Any, ReadView, Any], Any]


class Goal(NamedTuple):
    """A change of the quorum, or of the nodes' disks, which the leader makes without a command.

    `reach` gets the time that is left, in milliseconds, and the offset that the client had seen before its first attempt; None
    for a request without an id. The answer comes when the goal is reached.
    """

    method: str
    reach: Callable[["Controller", Any, int, Offset | None], Awaitable[Any]]


class Asked(NamedTuple):
    """A question to the node itself. The last argument of `ask` is the time that is left, in milliseconds."""

    method: str
    ask: Callable[["Controller", Any, int], Awaitable[Any]]


Row: TypeAlias = Submitted | Viewed | Counted | Goal | Asked


class Controller(NamedTuple):
    """The parts of a node that a `Goal` or `Asked` row may use."""

    node: ControllerNode
    node_id: int
    hashes: SnapshotHashes


class Table(NamedTuple):
    """A service, and the rows of its unary calls."""

    service: ServiceDescriptor
    rows: tuple[Row, ...]

    def request_type(self, row: Row) -> Any:
        """The generated class of the row's requests."""
        return GetMessageClass(self.service.methods_by_name[row.method].input_type)

    def response_type(self, row: Row) -> Any:
        """The generated class of the row's answers."""
        return GetMessageClass(self.service.methods_by_name[row.method].output_type)

    def by_method(self) -> Mapping[str, Row]:
        """The rows by the names of their methods."""
        return {row.method: row for row in self.rows}
