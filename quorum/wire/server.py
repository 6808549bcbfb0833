"""One port for everything that a controller answers: voters, brokers, operators, health and reflection.

The port is bound before the node starts, so that a port in use is an error before this process takes part in anything, and
served from when there is a node to ask.
"""

from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, voter_pb2, voter_pb2_grpc

from metadata_log.identity import Identity
from metadata_log.records import Endpoint
from quorum.runtime.facade import ControllerNode
from quorum.wire.admin import AdminService
from quorum.wire.broker import BrokerService
from quorum.wire.voter import VoterService

MESSAGE_BYTES_MAX: Final = 4 << 20
SERVER_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # without it a second server on the port starts, and gets half of the connections
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", 16 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)

_SERVICES: Final = (
    voter_pb2.DESCRIPTOR.services_by_name["VoterService"].full_name,
    broker_pb2.DESCRIPTOR.services_by_name["BrokerService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
)


class PortInUse(OSError):
    """The listener's address cannot be bound; the message names it."""


class ControllerServer:
    """The server of one controller: `bind`, then `serve`, then `stop`."""

    def __init__(self) -> None:
        self._server: Any = grpc.aio.server(options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()

    def bind(self, listener: Endpoint, credentials: Any = None) -> Endpoint:
        """Takes the port; returns the listener with the port that was given, if 0 was asked for.

        Raises:
            PortInUse: it cannot be had.
        """
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        address = f"{host}:{listener.port}"
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as e:
            raise PortInUse(f"cannot listen on {address}: is another process there?") from e
        return listener._replace(port=port)

    async def serve(self, node: ControllerNode, identity: Identity) -> None:
        """From here on every service answers."""
        voter_pb2_grpc.add_VoterServiceServicer_to_server(  # type: ignore[no-untyped-call]
            VoterService(node, identity), self._server
        )
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(  # type: ignore[no-untyped-call]
            BrokerService(node, identity), self._server
        )
        admin_pb2_grpc.add_AdminServiceServicer_to_server(  # type: ignore[no-untyped-call]
            AdminService(node, identity), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*_SERVICES, reflection.SERVICE_NAME, health.SERVICE_NAME), self._server)
        await self._server.start()
        for service in ("", *_SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float = 0.5) -> None:
        """Lets what is under way end within `grace_s`, and cuts the rest."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


async def serve(node: ControllerNode, identity: Identity, listener: Endpoint) -> tuple[ControllerServer, Endpoint]:
    """A server for `node`, without TLS, and where it listens."""
    server = ControllerServer()
    bound = server.bind(listener)
    await server.serve(node, identity)
    return server, bound
