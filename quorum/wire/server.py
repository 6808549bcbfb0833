"""The server of a controller: one port for voters, brokers, operators, health and reflection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from quorum_rpc.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    entity_pb2,
    entity_pb2_grpc,
    voter_pb2,
    voter_pb2_grpc,
)

from metadata_log.disk.identity import Identity
from quorum.runtime.facade import ControllerNode
from quorum.wire.admin import AdminService
from quorum.wire.broker import BrokerService
from quorum.wire.entity import EntityService
from quorum.wire.voter import Learn, VoterService
from service_kit.process.endpoints import HostPort
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dial
from service_kit.rpc.doors import Doors
from service_kit.rpc.forwarding import Forwarder
from service_kit.rpc.health import Health
from service_kit.rpc.server import serving
from service_kit.security.served_certificate import ServedCertificate
from service_kit.security.tls import TlsFiles
from service_kit.security.tls_config import NOTHING_LISTED, Access
from watches.core.limits import WATCHES_MAX
from watches.service.tallies import WatchTallies
from watches.service.watch_service import SERVICE as WATCHES
from watches.service.watch_service import WatchService

SERVICES: Final = (
    voter_pb2.DESCRIPTOR.services_by_name["VoterService"].full_name,
    broker_pb2.DESCRIPTOR.services_by_name["BrokerService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    entity_pb2.DESCRIPTOR.services_by_name["EntityService"].full_name,
    WATCHES.full_name,
)
STOP_GRACE_S: Final = 0.25
"""How long a stop waits for the streams of followers and brokers, which never end by themselves."""


@asynccontextmanager
async def serve(
    node: ControllerNode,
    identity: Identity,
    address: HostPort,
    *,
    tls: TlsFiles | None = None,
    health: Health | None = None,
    grace_s: float = STOP_GRACE_S,
    learn: Learn | None = None,
    dial: Dial | None = None,
    access: Access = NOTHING_LISTED,
    calls: CallTallies | None = None,
    certificate: ServedCertificate | None = None,
    watches: WatchTallies | None = None,
    watches_max: int = WATCHES_MAX,
) -> AsyncIterator[int]:
    """Serves `node` on a port during the block: `async with serve(...) as port`.

    `learn`: gets the address of a new leader (`Peers.told_by`). `dial`: makes channels to the leader, to which admin calls are
    forwarded; keep its channels open until the block has ended. `tls`: callers need certificates, and `access` says who operates
    the cluster (`service_kit.rpc.doors`). `watches`: counts the watches, of which there may be `watches_max`.

    Raises (on entering):
        PortInUse, CannotBind, TlsUnusable: see `service_kit.rpc.server`.
    """
    doors = Doors() if tls is None else Doors.over_tls(identity.cluster_id, access)
    forwarder = embedders_forwarder = None
    if dial is not None:
        channels = ControllerChannels(dial, doors.names, tls)
        forwarder = Forwarder(channels, admin_pb2_grpc.AdminServiceStub)
        embedders_forwarder = Forwarder(channels, entity_pb2_grpc.EntityServiceStub)

    admin = AdminService(node, identity, forwarder, doors)
    entities = EntityService(node, identity, embedders_forwarder, doors)
    watching = WatchService(node.watched, watches, doors, watches_max)

    def add_services(server: Any) -> None:
        voters, brokers = VoterService(node, identity, learn, doors), BrokerService(node, identity, doors)
        # AdminService is the first one, because gRPC asks all in turn at every unary call.
        server.add_generic_rpc_handlers((admin, entities, watching))
        voter_pb2_grpc.add_VoterServiceServicer_to_server(voters, server)  # type: ignore[no-untyped-call]
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(brokers, server)  # type: ignore[no-untyped-call]

    served = serving(
        address,
        add_services,
        tls=tls,
        certificate=certificate,
        health=health or Health(),
        reflect=SERVICES,
        grace_s=grace_s,
        tallies=calls,
    )
    async with served as port:
        try:
            yield port
        finally:
            await watching.close()
            stopping = [each.stop(grace_s) for each in (forwarder, embedders_forwarder) if each is not None]
            await asyncio.gather(*stopping)
