"""Over TLS every method of every service is asked with every kind of certificate, and only the right one comes in.

The methods are those of the services' own descriptors, so that a new one is asked too. What was refused has not reached the node.
"""

import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from quorum_rpc.v1 import admin_pb2, broker_pb2, client_pb2, client_pb2_grpc, common_pb2, entity_pb2, voter_pb2

from broker_agent.admin import AdminForwarding
from broker_agent.cache import MetadataCache
from broker_agent.session.lifecycle import BrokerState
from broker_agent.wire import ClusterMetadata
from metadata_log.format.errors import ErrorCode
from quorum.wire.server import serve
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer
from service_kit.rpc.doors import Doors
from service_kit.rpc.forwarding import PRINCIPAL
from service_kit.rpc.refusals import Refusal
from service_kit.rpc.server import serving
from service_kit.security.node_identity import BROKER, CONTROLLER, NamedNode, Node, NodeNames
from service_kit.security.tls import TlsFiles
from service_kit.security.tls_config import Access
from tests.processes.certificates import Authority
from tests.quorum.runtime.lone_node import CLUSTER_ID
from tests.quorum.wire.calling import codes_of
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.good_requests import good_requests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made"),
]

OURS = IDENTITY._replace(cluster_id=CLUSTER_ID)
OTHER_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
REFUSED, NO_CONNECTION, LET_IN = "refused", "no connection", "let in"
OPERATOR = "CN=operator"

SERVICES = {
    service.name: service
    for file in (voter_pb2, broker_pb2, admin_pb2, client_pb2, entity_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
}
ID_OF_BROKER = {"RegisterBroker": 7}
"""Of the broker in the good request of a method; broker 0 in all others. The sender between controllers is 2, but 4 adds itself,
and 3 removes itself."""
ID_OF_CONTROLLER = {"AddVoter": 4, "RemoveVoter": 3}


class Certificates(NamedTuple):
    """Everybody who might knock."""

    files: dict[str, TlsFiles | None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.files)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    ours, foreign = Authority(directory / "ours"), Authority(directory / "foreign")
    files: dict[str, TlsFiles | None] = {"none": None, "foreign": foreign.sign_node(CONTROLLER, 2, CLUSTER_ID)}
    files["intern"] = ours.sign("intern", "127.0.0.1", "email:intern@example.org")
    files["operator"] = ours.sign("operator")
    # Controller 0 and broker 2, too: an id is of a role, and broker 2 is not controller 2.
    for role, ids in ((CONTROLLER, (0, 1, 2, 3, 4, 9)), (BROKER, (0, 2, 7, 8))):
        files |= {f"{role}-{node_id}": ours.sign_node(role, node_id, CLUSTER_ID) for node_id in ids}
    # Not a DNS name of a subject alternative name, or not of this cluster: nobody's.
    name = NodeNames(CLUSTER_ID).demanded(Node(CONTROLLER, 2))
    files["e-mail"] = ours.sign("mail", "127.0.0.1", f"email:{name}", f"URI:{name}")
    files["common name"] = ours.sign(name)
    files["other cluster"] = ours.sign(
        "other", "127.0.0.1", f"DNS:{NodeNames(OTHER_CLUSTER).demanded(Node(CONTROLLER, 2))}"
    )
    return Certificates(files)


def authority_of(certificates: Certificates) -> bytes:
    mine = certificates.files["intern"]
    assert mine is not None
    return mine.certificate_authority.read_bytes()


def credentials(certificates: Certificates, who: str) -> grpc.ChannelCredentials:
    """Of somebody who trusts our authority, whoever signed their own certificate."""
    files, authority = certificates.files[who], authority_of(certificates)
    if files is None:
        return grpc.ssl_channel_credentials(authority)
    return grpc.ssl_channel_credentials(authority, files.private_key.read_bytes(), files.certificate_chain.read_bytes())


class Knocking:
    """A channel for each certificate to one server."""

    def __init__(self, certificates: Certificates, port: int) -> None:
        self._channels = {
            who: grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials(certificates, who))
            for who in certificates.names
        }

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def ask(self, who: str, service: str, method: Any, request: Any, *metadata: tuple[str, Any]) -> Any:
        """The (first) answer; None where nothing came back but a closed connection."""
        kinds = {(False, False): "unary_unary", (False, True): "unary_stream", (True, True): "stream_stream"}
        channel = self._channels[who]
        make = getattr(channel, kinds[method.client_streaming, method.server_streaming])
        of = GetMessageClass(method.output_type)
        call = make(f"/quorum_rpc.v1.{service}/{method.name}", type(request).SerializeToString, of.FromString)
        try:
            if method.client_streaming:
                stream = call(metadata=metadata, timeout=5)
                await stream.write(request)
                answer = await stream.read()
                stream.cancel()
                return answer
            if method.server_streaming:
                return await anext(aiter(call(request, metadata=metadata, timeout=5)))
            return await call(request, metadata=metadata, timeout=5)
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            if refusal is not None:
                return common_pb2.Error(code=int(ErrorCode[refusal.reason]))  # type: ignore[arg-type]
            if e.code() is grpc.StatusCode.PERMISSION_DENIED:
                return admin_pb2.MutationResponse(error={"code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
            assert e.code() is grpc.StatusCode.UNAVAILABLE, e
            return None

    async def converse(self, who: str, service: str, method: Any, *requests: Any) -> list[Any]:
        """The answers to `requests`, one after the other on one stream."""
        of = GetMessageClass(method.output_type)
        open_stream = self._channels[who].stream_stream(
            f"/quorum_rpc.v1.{service}/{method.name}", type(requests[0]).SerializeToString, of.FromString
        )
        stream, answers = open_stream(timeout=5), []
        for request in requests:
            await stream.write(request)
            answers.append(await stream.read())
        stream.cancel()
        return answers

    async def outcome(self, who: str, service: str, method: Any, request: Any, *metadata: tuple[str, Any]) -> str:
        answer = await self.ask(who, service, method, request, *metadata)
        if answer is None:
            return NO_CONNECTION
        return REFUSED if ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes_of(answer) else LET_IN


class Served(NamedTuple):
    node: FakeNode
    knocking: Knocking
    port: int

    def touched(self) -> tuple[Any, ...]:
        """All that a request could have changed, or asked of the node."""
        node = self.node
        return len(node.asked), len(node.fetches), len(node.identities), node.cluster.image.offset


@pytest_asyncio.fixture
async def served(certificates: Certificates, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """Controller 1; a test's parameter is whom it lets operate the cluster."""
    node, tls = FakeNode(), certificates.files["controller-1"]
    given = getattr(request, "param", ())
    access = given if isinstance(given, Access) else Access(admin_principals=frozenset(given))
    async with serve(node, OURS, ANY_PORT, grace_s=0, tls=tls, access=access) as port:
        knocking = Knocking(certificates, port)
        try:
            yield Served(node, knocking, port)
        finally:
            await knocking.close()


async def check_table(
    served: Served, certificates: Certificates, service: str, lets_in: Callable[[str, str], bool]
) -> None:
    """Asks every method with every certificate. `lets_in(method, certificate)` is the law."""
    requests = good_requests()
    for method in SERVICES[service].methods:
        for who in certificates.names:
            before = served.touched()
            found = await served.knocking.outcome(who, service, method, requests[f"{service}.{method.name}"])
            if who in ("none", "foreign"):
                expected = NO_CONNECTION
            else:
                expected = LET_IN if lets_in(method.name, who) else REFUSED
            assert found == expected, (service, method.name, who)
            assert expected is LET_IN or served.touched() == before, (service, method.name, who, "reached the node")


async def test_controllers_are_answered_for_their_own_id_only(served: Served, certificates: Certificates) -> None:
    """A vote, an acknowledgement, a leader's word: each is a promise of the node that it names. Who adds or removes a voter here
    adds or removes itself."""

    def lets_in(method: str, who: str) -> bool:
        return method not in ID_OF_CONTROLLER and who == "controller-2"

    await check_table(served, certificates, "VoterService", lets_in)


async def test_a_voter_lets_in_and_out_itself_only(served: Served, certificates: Certificates) -> None:
    """The sender's id and the id of the voter that it speaks about are both its own."""
    requests = good_requests()
    for name, node_id in ID_OF_CONTROLLER.items():
        method, request = SERVICES["VoterService"].methods_by_name[name], requests[f"VoterService.{name}"]
        request.sender.replica.node_id = node_id
        found = {who: await served.knocking.outcome(who, "VoterService", method, request) for who in certificates.names}
        assert [who for who, outcome in found.items() if outcome == LET_IN] == [f"controller-{node_id}"]


async def test_a_broker_is_answered_for_its_own_id_only(served: Served, certificates: Certificates) -> None:
    await check_table(
        served,
        certificates,
        "BrokerService",
        lambda method, who: who == f"broker-{ID_OF_BROKER.get(method, 0)}",
    )


async def test_without_a_list_whoever_is_of_the_authority_operates(served: Served, certificates: Certificates) -> None:
    """As it ever was; the log says so at the start (`doors.EVERYBODY`)."""
    await check_table(served, certificates, "AdminService", lambda method, who: True)


@pytest.mark.parametrize("served", [(OPERATOR,)], indirect=True)
async def test_with_a_list_only_those_on_it_operate_and_controllers(served: Served, certificates: Certificates) -> None:
    """A controller that hands a request on is one of those that could do it itself."""
    await check_table(
        served, certificates, "AdminService", lambda method, who: who == "operator" or who.startswith("controller-")
    )


async def test_without_any_list_whoever_is_of_the_authority_has_entities(
    served: Served, certificates: Certificates
) -> None:
    await check_table(served, certificates, "EntityService", lambda method, who: True)


@pytest.mark.parametrize("served", [(OPERATOR,)], indirect=True)
async def test_without_a_list_of_embedders_only_operators_have_entities(
    served: Served, certificates: Certificates
) -> None:
    await check_table(
        served, certificates, "EntityService", lambda method, who: who == "operator" or who.startswith("controller-")
    )


@pytest.mark.parametrize(
    "served",
    [Access(admin_principals=frozenset({OPERATOR}), entity_principals=frozenset({"CN=intern"}))],
    indirect=True,
)
async def test_an_embedder_has_entities_and_is_no_operator(served: Served, certificates: Certificates) -> None:
    """`entities.principals` opens one door; an operator has both."""

    def operates(_: str, who: str) -> bool:
        return who == "operator" or who.startswith("controller-")

    await check_table(served, certificates, "EntityService", lambda method, who: who == "intern" or operates("", who))
    await check_table(served, certificates, "AdminService", operates)


@pytest.mark.parametrize("served", [(OPERATOR,)], indirect=True)
async def test_only_a_node_of_the_cluster_speaks_for_others(served: Served, certificates: Certificates) -> None:
    """A broker hands on what an operator asked of it, and the operator's name is looked up here; a stranger who claims to be an
    operator is the stranger that its certificate names."""
    method = SERVICES["AdminService"].methods_by_name["CreateTopics"]
    request = good_requests()["AdminService.CreateTopics"]

    async def asked(who: str, claims: str) -> str:
        return await served.knocking.outcome(who, "AdminService", method, request, (PRINCIPAL, claims.encode()))

    assert await asked("intern", OPERATOR) == await asked("other cluster", OPERATOR) == REFUSED
    assert await asked("broker-8", "CN=intern") == REFUSED
    assert await asked("broker-8", OPERATOR) == LET_IN
    identity = served.node.identities[-1]
    assert identity is not None
    assert identity.principal == OPERATOR
    assert await asked("operator", "CN=intern") == LET_IN
    identity = served.node.identities[-1]
    assert identity is not None
    assert identity.principal == OPERATOR, "an operator who claims to be somebody else is not believed either"


async def test_each_message_of_a_stream_is_looked_at(served: Served, certificates: Certificates) -> None:
    """A node that was let in for its own id says the next thing in another's name: that is refused, and the third is its own."""
    cases = (("VoterService", "Fetch", "controller-2"), ("BrokerService", "MetadataFetch", "broker-0"))
    for service, name, who in cases:
        method, own = SERVICES[service].methods_by_name[name], good_requests()[f"{service}.{name}"]
        others = type(own)()
        others.CopyFrom(own)
        if service == "VoterService":
            others.sender.replica.node_id = 3
        else:
            others.broker_id = 7
        found = await served.knocking.converse(who, service, method, own, others, own)
        refused = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes_of(answer) for answer in found]
        assert refused == [False, True, False], (service, name)


async def test_a_vote_in_anothers_name_changes_nothing(
    served: Served, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """With a certificate that was only meant for a client, a stranger voted as controller 2 in epoch 1,000,000, deposed the
    leader, and registered a broker at an address of its own. One line says who it was, however often it tries."""
    vote = voter_pb2.VoteRequest()
    vote.CopyFrom(good_requests()["VoterService.Vote"])
    vote.epoch = 1_000_000
    register = good_requests()["BrokerService.RegisterBroker"]
    voting, registering = (
        SERVICES[service].methods_by_name[name]
        for service, name in (("VoterService", "Vote"), ("BrokerService", "RegisterBroker"))
    )
    with caplog.at_level(logging.WARNING, "service_kit.rpc.doors"):
        for _ in range(20):
            answer = await served.knocking.ask("intern", "VoterService", voting, vote)
            assert not answer.vote_granted
            assert answer.standing.epoch == 0
            answer = await served.knocking.ask("intern", "BrokerService", registering, register)
            assert answer.broker_epoch == 0
            assert "broker-7." in answer.error.message, "the refusal says which name the certificate lacks"
    assert not served.node.asked
    lines = [record.getMessage() for record in caplog.records if record.name == "service_kit.rpc.doors"]
    assert 1 <= len(lines) < 20
    for part in ("127.0.0.1:", "CN=intern", "intern@example.org", "only controller 2 may send this", "controller-2."):
        assert part in lines[0], lines[0]


async def test_a_certificate_of_two_nodes_is_both(tmp_path: Path) -> None:
    """Two nodes of one host may share a certificate, if the configuration says so."""
    authority, node = Authority(tmp_path / "ca"), FakeNode()
    host = authority.sign("host", "127.0.0.1", "DNS:host.example.org")
    both = (Node(CONTROLLER, 2), Node(BROKER, 7))
    listed = tuple(NamedNode(node, "host.example.org") for node in both)
    certificates = Certificates({"intern": host})
    async with serve(
        node,
        OURS,
        ANY_PORT,
        grace_s=0,
        tls=host,
        access=Access(node_names=listed),
    ) as port:
        knocking, requests = Knocking(certificates, port), good_requests()
        for service, name, expected in (
            ("VoterService", "Vote", LET_IN),
            ("BrokerService", "RegisterBroker", LET_IN),
            ("BrokerService", "AlterPartition", REFUSED),
        ):
            method = SERVICES[service].methods_by_name[name]
            assert await knocking.outcome("intern", service, method, requests[f"{service}.{name}"]) == expected
        await knocking.close()


# --- a broker's doors ---------------------------------------------------------------------------------------------------


class NotServing:
    """A broker that answers no client yet, which is an answer all the same."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.cluster_id, self.broker_id, self.incarnation = CLUSTER_ID, 7, bytes(16)
        self.generation = 1
        self.state, self.reason, self.broker_epoch = BrokerState.FENCED, "for this test", None
        self.high_watermark, self.lease_lapsed = 0, False
        self.problems = ()

    def may_serve(self) -> bool:
        return False

    async def applied(self, offset: int) -> None:
        """At once."""


@pytest_asyncio.fixture
async def broker(served: Served, certificates: Certificates, request: pytest.FixtureRequest) -> AsyncIterator[Knocking]:
    """Broker 7, which asks controller 1; it lets the same people operate the cluster as that one does."""
    tls = certificates.files["broker-7"]
    assert tls is not None
    async with AsyncExitStack() as stack:
        doors = Doors.over_tls(CLUSTER_ID, Access(admin_principals=frozenset({OPERATOR})))
        dialer = await stack.enter_async_context(Dialer(tls))
        reach = ControllerChannels(dialer, doors.names, tls)
        admin = AdminForwarding(lambda: [f"127.0.0.1:{served.port}"], reach, doors)

        def add(server: Any) -> None:
            service = ClusterMetadata(NotServing(), "PLAINTEXT")
            client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
            server.add_generic_rpc_handlers((admin,))

        port = await stack.enter_async_context(serving(ANY_PORT, add, tls=tls, grace_s=0))
        knocking = Knocking(certificates, port)
        stack.push_async_callback(knocking.close)
        yield knocking


@pytest.mark.parametrize("served", [(OPERATOR,)], indirect=True)
async def test_a_broker_lets_operators_in_by_the_same_list(
    served: Served, broker: Knocking, certificates: Certificates
) -> None:
    """And hands on in whose name it asks, so that the controller lets the same people in. A controller's own certificate opens
    its door, but in its name a broker asks for nothing."""
    requests = good_requests()
    for method in SERVICES["AdminService"].methods:
        for who in certificates.names:
            found = await broker.outcome(who, "AdminService", method, requests[f"AdminService.{method.name}"])
            expected = LET_IN if who == "operator" else REFUSED
            assert found == (NO_CONNECTION if who in ("none", "foreign") else expected), (method.name, who)


async def test_every_certificate_of_the_authority_may_ask_for_metadata(
    broker: Knocking, certificates: Certificates
) -> None:
    """Clients are told where brokers are; that is what the service is for."""
    for method in SERVICES["ClusterMetadataService"].methods:
        for who in certificates.names:
            request = GetMessageClass(method.input_type)()
            found = await broker.outcome(who, "ClusterMetadataService", method, request)
            assert found == (NO_CONNECTION if who in ("none", "foreign") else LET_IN), (method.name, who)


def test_all_services_are_in_the_tables() -> None:
    """Whoever adds a service decides who comes in."""
    assert set(SERVICES) == {
        "VoterService",
        "BrokerService",
        "AdminService",
        "ClusterMetadataService",
        "EntityService",
    }


def test_a_door_is_checked_without_a_certificate_being_read_again() -> None:
    """A follower's fetches are asked on one stream: what costs microseconds is done once for it, and each fetch is a look-up."""
    reads = 0

    class Context:
        def auth_context(self) -> dict[str, list[bytes]]:
            nonlocal reads
            reads += 1
            name = NodeNames(CLUSTER_ID).demanded(Node(CONTROLLER, 2))
            return {"x509_subject": [b"CN=two"], "peer_dns": [name.encode()]}

        def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
            return ()

    caller = Doors.over_tls(CLUSTER_ID, Access()).caller(Context())
    before = reads
    for _ in range(1_000):
        caller.check_node(CONTROLLER, 2)
    assert reads == before <= 3
