"""The tallies of a gRPC server: calls by method and code, how long they take, and their bytes.

The guard around every method (`malformed_messages`) adds to these, so no service can be forgotten. A method is named
`AdminService/CreateTopics`, without the package. Calls of unknown methods are not counted: strangers choose the names.
"""

from typing import Final

import grpc

from service_kit.process.tallies import LATENCY_BUCKETS_S, Counter, Histogram

_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}


class CallTallies:
    """The counters and histograms of one server, or of all servers of one process."""

    def __init__(self) -> None:
        self.requests = Counter.by_labels()
        """Calls that have ended, by method and gRPC code. A stream is one call."""
        self.seconds = Histogram.by_labels(LATENCY_BUCKETS_S)
        """Duration of each unary call, by method. Streams last for as long as the client likes, and are left out."""
        self.received_bytes = Counter.by_labels()
        """Bytes of the requests received, by service."""
        self.sent_bytes = Counter.by_labels()
        """Bytes of the responses sent, by service."""


def method_name(path: str) -> str:
    """`AdminService/CreateTopics` for `/quorum_rpc.v1.AdminService/CreateTopics`."""
    service, _, method = path.removeprefix("/").partition("/")
    return f"{service.rpartition('.')[2]}/{method}"


def code_name(code: object) -> str:
    """The name of a code as a servicer's context has it: a number, a `grpc.StatusCode`, or nothing for OK."""
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    return _NAMES.get(code, "UNKNOWN") if isinstance(code, int) else "OK"
