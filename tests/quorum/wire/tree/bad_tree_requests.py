"""The ways in which a request of ReadTree can be bad."""

from typing import Final

from quorum_rpc.v1.admin_pb2 import TreeDifferences, TreeHistory

from metadata_log.format.errors import ErrorCode as E
from tests.fuzz.network_targets import busy
from tests.quorum.wire.bad_requests import LEADERS, Row, both, many, of_operators, put

LONG: Final = "x" * 70_000

READ_TREE: Final = (
    *LEADERS,
    of_operators("values.patterns", ["/nothing"], E.RESOURCE_NOT_FOUND),
    of_operators("values.patterns", [], E.INVALID_REQUEST),
    of_operators("values.patterns", ["topics"], E.INVALID_REQUEST),
    of_operators("values.patterns", ["/" + "x" * 4_096], E.INVALID_REQUEST),
    Row("101 patterns", busy, many("values.patterns", 101), E.INVALID_REQUEST),
    of_operators("place.pattern", "/*", E.INVALID_REQUEST),
    of_operators("names.prefix", LONG, E.INVALID_REQUEST),
    of_operators("find.name", LONG, E.INVALID_REQUEST),
    of_operators("outline.pattern", "/topics/*", E.INVALID_REQUEST),
    of_operators("differences", TreeDifferences(path="/", before_offset=-1), E.INVALID_REQUEST),
    of_operators("differences", TreeDifferences(path="/", before_offset=1 << 40), E.OFFSET_OUT_OF_RANGE),
    of_operators("history", TreeHistory(path="/", since_offset=-1), E.INVALID_REQUEST),
    of_operators("history", TreeHistory(path="/", since_offset=1 << 40), E.OFFSET_OUT_OF_RANGE),
    Row(
        "a history at an offset",
        busy,
        both(put("history.path", "/"), put("context.at_offset", 1)),
        E.INVALID_REQUEST,
    ),
    Row("no query", busy, lambda asked: asked.ClearField("values"), E.INVALID_REQUEST),
    of_operators("context.at_offset", -1, E.INVALID_REQUEST),
    of_operators("context.at_offset", 1 << 40, E.OFFSET_OUT_OF_RANGE),
)
