"""The words in which `test_refusals` says what is wrong with a request, the rows that methods share, and the rows of watches."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from metadata_log.format.errors import ErrorCode
from tests.fuzz.network_targets import busy
from tests.quorum.runtime.lone_controller import follower
from tests.quorum.runtime.lone_node import LoneNode

E = ErrorCode
HALF: Final = b"half an id"
OTHER_ID: Final = bytes([99]) * 16

Change = Callable[[Any], None]


class Row(NamedTuple):
    """What is wrong with the request, who is asked, and what it is refused with."""

    what: str
    asked: Callable[[], LoneNode]
    change: Change
    code: ErrorCode


def put(path: str, value: Any) -> Change:
    """Sets one field; numbers in the path are places in lists. A list is replaced."""

    def change(request: Any) -> None:
        *way, name = path.split(".")
        for step in way:
            request = request[int(step)] if step.isdigit() else getattr(request, step)
        if isinstance(value, list):
            request.ClearField(name)
            getattr(request, name).extend(value)
        elif hasattr(value, "DESCRIPTOR"):
            getattr(request, name).CopyFrom(value)
        else:
            setattr(request, name, value)

    return change


def many(path: str, count: int) -> Change:
    """The first item of a list, so many times."""

    def change(request: Any) -> None:
        *way, name = path.split(".")
        for step in way:
            request = request[int(step)] if step.isdigit() else getattr(request, step)
        put(name, [getattr(request, name)[0]] * count)(request)

    return change


def both(first: Change, second: Change) -> Change:
    def change(request: Any) -> None:
        first(request)
        second(request)

    return change


def nothing(_: Any) -> None:
    """The request is good; whom it reaches is not."""


def bad(path: str, value: Any, code: ErrorCode, asked: Callable[[], LoneNode]) -> Row:
    return Row(f"{path} = {value!r:.40}", asked, put(path, value), code)


def of_operators(path: str, value: Any, code: ErrorCode) -> Row:
    return bad(path, value, code, busy)


FOREIGN: Final = of_operators("context.cluster_id", "elsewhere", E.INCONSISTENT_CLUSTER_ID)
LEADERS: Final = (FOREIGN, Row("asked of a follower", follower, nothing, E.NOT_CONTROLLER))
CHANGES: Final = (
    *LEADERS,
    of_operators("context.request_id", HALF, E.INVALID_REQUEST),
    Row(
        "an offset below 0",
        busy,
        both(put("context.request_id", OTHER_ID), put("context.client_high_watermark", -1)),
        E.INVALID_REQUEST,
    ),
)
PAGES: Final = (
    *LEADERS,
    of_operators("page_size", -1, E.INVALID_REQUEST),
    of_operators("page_token", b"\xff", E.INVALID_REQUEST),
)
WATCHES: Final = {
    "Watch": (
        of_operators("cluster_id", "another", E.INCONSISTENT_CLUSTER_ID),
        of_operators("bookmark_interval_ms", 99, E.INVALID_REQUEST),
        of_operators("position.chain", HALF, E.INVALID_REQUEST),
        of_operators("position.epoch", -1, E.INVALID_REQUEST),
        of_operators("from_now", True, E.INVALID_REQUEST),
        of_operators("filter.topics", ["x" * 700_000], E.INVALID_REQUEST),
        of_operators("filter.brokers", [1] * 101, E.INVALID_REQUEST),
    ),
}
