"""The methods that controllers answer, by their requests.

1. A caller has a ListTopicsRequest. The table says: ListTopics of AdminService, a read.
2. Its answer is lost, so the client asks again, without a request id.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import grpc
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, entity_pb2, entity_pb2_grpc, watch_pb2_grpc

from service_kit.rpc.api_methods import API, Kind


class Method(NamedTuple):
    """A method with one request that controllers answer."""

    service: str
    name: str
    kind: Kind
    is_streamed: bool
    """True if the answer is a stream of messages."""


_METHODS: Final = {
    method.input_type.full_name: Method(
        service.name, method.name, API[service.name][method.name], method.server_streaming
    )
    for service in (
        admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
        entity_pb2.DESCRIPTOR.services_by_name["EntityService"],
    )
    for method in service.methods
    if not method.client_streaming
}
"""The methods of both services with one request. The keys are the names of the requests' types; no two methods share one."""
METHODS: Final = {name: method.name for name, method in _METHODS.items() if method.service == "AdminService"}
"""The methods of AdminService with one request, by the names of the requests' types."""

STUBS: Final[Mapping[str, Callable[[grpc.aio.Channel], Any]]] = {
    "AdminService": admin_pb2_grpc.AdminServiceStub,
    "EntityService": entity_pb2_grpc.EntityServiceStub,
    "WatchService": watch_pb2_grpc.WatchServiceStub,
}
"""The stubs of the services that the client library calls."""


def method_of(request: Any) -> Method:
    """Returns the method of a request."""
    return _METHODS[request.DESCRIPTOR.full_name]
