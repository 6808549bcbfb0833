"""Server reflection, by which tools such as grpcurl list a server's services and methods without .proto files.

New tools ask for `grpc.reflection.v1`, old ones for `v1alpha`, which is all that grpcio-reflection has. The messages of both are
the same, byte for byte, so one servicer answers under both names.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1: Final = "grpc.reflection.v1.ServerReflection"


def add_reflection(server: Any, services: Sequence[str]) -> None:
    """Shows `services`, which are full names such as `quorum_rpc.v1.AdminService`."""
    names = [*services, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    method = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": method}),))
