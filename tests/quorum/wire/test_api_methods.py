"""Each method of each service is known wherever all methods have to be known."""

import importlib
import pkgutil
import re
from typing import Any, Final

import pytest
import quorum_rpc.v1
from quorum_rpc.v1 import admin_pb2

from clients.admin import AdminClient
from clients.methods import METHODS as CLIENT_METHODS
from quorum.controller.protocol.topic_commands import DEFAULT_COUNT
from quorum.wire.admin import AdminService
from quorum.wire.admin_methods import CALLS, TABLE
from quorum.wire.convert.convert_admin import from_create_topics
from quorum.wire.entity import EntityService
from quorum.wire.entity_methods import TABLE as ENTITY_TABLE
from quorum.wire.table import Asked, Counted, Goal, Submitted, Viewed
from service_kit.rpc.api_methods import ADMIN, API, Kind, changes_nothing
from service_kit.rpc.health import CHECKS
from tests.fuzz.network_targets import IDENTITY, busy
from tests.fuzz.targets import targets
from tests.quorum.runtime.lone_controller import LoneController
from tests.quorum.wire.calling import METHODS, call
from tests.quorum.wire.good_requests import good_requests

STREAMS: Final = ("Submit", "ReadTree")
"""The methods of AdminService that have no row."""


def _services() -> dict[str, Any]:
    """The services of all .proto files, by name."""
    files = [module.name for module in pkgutil.iter_modules(quorum_rpc.v1.__path__) if module.name.endswith("_pb2")]
    found: dict[str, Any] = {}
    for name in files:
        found.update(importlib.import_module(f"quorum_rpc.v1.{name}").DESCRIPTOR.services_by_name)
    return found


SERVICES: Final = _services()


def test_every_method_is_marked_as_a_read_or_a_change() -> None:
    """A read that is missing would be reported as "the request may have taken effect", a change as "ask again"."""
    in_proto = {f"{name}.{method}" for name, service in SERVICES.items() for method in service.methods_by_name}
    marked = {f"{name}.{method}" for name, methods in API.items() for method in methods}
    assert not (missing := in_proto - marked), f"no row in service_kit/rpc/api_methods.py for {missing}"
    assert not (extra := marked - in_proto), f"no method in the .proto files for {extra}"
    assert len(SERVICES) == 8


def test_every_admin_method_has_one_row_or_is_a_stream() -> None:
    methods = [row.method for row in TABLE.rows]
    assert len(set(methods)) == len(methods), methods
    assert not (missing := set(ADMIN) - {*methods, *STREAMS}), f"no row in quorum/wire/admin_methods.py for {missing}"
    assert not (extra := {*methods, *STREAMS} - set(ADMIN)), f"no row in service_kit/rpc/api_methods.py for {extra}"


def test_every_method_has_a_good_request_and_is_fuzzed() -> None:
    """The methods of controllers. Brokers answer the other services."""
    names = {f"{service}.{method}" for service, methods in API.items() for method in methods}
    of_brokers = ("ClusterMetadataService.", "DataPlaneService.", "PartitionService.")
    controllers = {name for name in names if not name.startswith(of_brokers)}
    assert controllers == METHODS.keys(), controllers ^ METHODS.keys()
    good = good_requests().keys()
    assert not (missing := controllers - good), f"no request in tests/quorum/wire/good_requests.py for {missing}"
    assert not (extra := good - controllers), f"no method for the good requests {extra}"
    assert not (unfuzzed := controllers - targets().keys()), f"no fuzz target for {unfuzzed}"


def test_every_method_of_entities_has_one_row_and_the_stream() -> None:
    methods = [row.method for row in ENTITY_TABLE.rows]
    assert len(set(methods)) == len(methods), methods
    assert {*methods, "KeepAlive"} == set(API["EntityService"])


def test_forwarders_tell_methods_of_two_services_apart() -> None:
    """`changes_nothing` knows a method by its name alone."""
    assert not ADMIN.keys() & API["EntityService"].keys()
    assert changes_nothing("ListEntities", object())
    assert not changes_nothing("Transact", object())


def test_a_row_s_kind_is_what_the_table_of_methods_says() -> None:
    """A command changes the cluster once for each request id; a look at the image changes nothing."""
    known = {**ADMIN, **API["EntityService"]}
    for row in (*TABLE.rows, *ENTITY_TABLE.rows):
        match row:
            case Submitted():
                assert known[row.method] is Kind.CHANGE_ONCE, row.method
            case Viewed() | Counted():
                assert known[row.method] is Kind.READ, row.method
            case Goal():
                assert known[row.method] is Kind.GOAL, row.method
            case Asked():
                assert known[row.method] is Kind.READ, row.method


def test_every_change_has_a_request_id() -> None:
    """Of the calls that clients make. Brokers and voters know by their own epochs if a call of theirs is a repetition."""
    for method, kind in {**ADMIN, **API["ClusterMetadataService"]}.items():
        assert kind is not Kind.CHANGE, f"{method}: a client cannot repeat this call after a lost answer"
    for row in TABLE.rows:
        if ADMIN[row.method] is not Kind.READ:
            context = TABLE.request_type(row).DESCRIPTOR.fields_by_name["context"].message_type
            assert "request_id" in context.fields_by_name, row.method


def test_a_read_of_the_image_says_what_it_is_as_of() -> None:
    """A local read is marked in its answer, whatever the method."""
    for row in TABLE.rows:
        if isinstance(row, Viewed | Counted):
            assert {"as_of_offset", "local"} <= set(TABLE.response_type(row).DESCRIPTOR.fields_by_name.keys()), (
                row.method
            )


@pytest.mark.parametrize(
    "row", [row for row in TABLE.rows if isinstance(row, Viewed | Counted)], ids=lambda row: row.method
)
def test_a_read_of_the_image_has_the_offset_of_the_image(row: Viewed | Counted) -> None:
    """A client remembers `as_of_offset`; with 0 its next local read could go back in time."""
    lone = busy()
    name = "AdminService" if row in TABLE.rows else "EntityService"
    service = {"AdminService": AdminService, "EntityService": EntityService}[name]
    answer = call(service(LoneController(lone), IDENTITY), row.method, good_requests()[f"{name}.{row.method}"])
    assert answer.as_of_offset == lone.node.state.committed.offset > 0, f"{row.method}: its row leaves out as_of_offset"


def test_a_change_that_is_only_tried_out_changes_nothing() -> None:
    tried = admin_pb2.CreateTopicsRequest(validate_only=True)
    assert changes_nothing("CreateTopics", tried)
    assert not changes_nothing("CreateTopics", admin_pb2.CreateTopicsRequest())
    assert changes_nothing("CanRestart", admin_pb2.CanRestartRequest())


def test_a_method_that_nobody_has_marked_is_an_error() -> None:
    with pytest.raises(KeyError):
        changes_nothing("DescribeTheWeather", object())


def test_the_client_knows_the_method_of_each_request() -> None:
    """By the type of the request, so no two methods may share a type."""
    known = list(CLIENT_METHODS.values())
    assert len(set(known)) == len(known), f"two methods share a type of request: {known}"
    assert not (missing := ADMIN.keys() - {"Submit", *known}), f"clients/calls.py does not know {missing}"
    assert not (extra := set(known) - ADMIN.keys()), f"no row in service_kit/rpc/api_methods.py for {extra}"


NAMES_OF_THE_CLIENT: Final = {"IncrementalAlterConfigs": "alter_configs", "DescribePartitionHealth": "partition_health"}


def test_the_client_has_a_method_for_each_method() -> None:
    """A method of `AdminClient` has the name of the call in snake case; the exceptions are above."""
    names = {name: NAMES_OF_THE_CLIENT.get(name, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()) for name in ADMIN}
    missing = {name for name, method in names.items() if not hasattr(AdminClient, method)}
    assert not missing, f"clients/admin.py has no method for {missing}"


def test_a_stream_s_calls_are_rows() -> None:
    """Each kind of call in SubmitRequest has a row, and an answer of the same name in SubmitResponse."""
    answers = admin_pb2.SubmitResponse.DESCRIPTOR.fields_by_name
    calls = admin_pb2.SubmitRequest.DESCRIPTOR.oneofs_by_name["call"].fields
    assert {call.name: call.message_type for call in calls} == {
        name: TABLE.request_type(row).DESCRIPTOR for name, row in CALLS.items()
    }
    assert CALLS.keys() <= set(answers.keys())


def test_a_count_that_is_not_set_is_the_default() -> None:
    """A client of any language that names only the topic gets what the controllers are configured to give; 0 is a mistake."""
    request = admin_pb2.CreateTopicsRequest(topics=[{"name": "orders"}, {"name": "bills", "partitions": 0}])
    orders, bills = from_create_topics(request).topics
    assert (orders.partitions, orders.replication_factor) == (DEFAULT_COUNT, DEFAULT_COUNT)
    assert (bills.partitions, bills.replication_factor) == (0, DEFAULT_COUNT)


def test_every_service_has_a_health_check() -> None:
    names = {service.full_name for service in SERVICES.values()}
    assert not (missing := names - CHECKS.keys()), f"no check in service_kit/rpc/health.py for {missing}"
    assert not (extra := CHECKS.keys() - names), f"no service in the .proto files for {extra}"
