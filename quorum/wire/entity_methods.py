"""The methods of EntityService: one row each, but for the stream KeepAlive.

`quorum.wire.table` explains the rows. Below the level of entities every method is refused: changes by their decisions, reads
here. Example: the cluster is at level 3 since 14:00. A list of 15:00 shows the entities; a list of the state at 13:00 is empty.
"""

from dataclasses import replace
from typing import Any, Final

from quorum_rpc.v1 import entity_pb2

from quorum.controller.entities import entity_views as views
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.entity_commands import ENTITIES_LEVEL, OPERATIONS_MAX, OpenSession
from quorum.controller.protocol.feature_gate import require_level
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.wire.convert import convert_entities as convert
from quorum.wire.convert import pages
from quorum.wire.convert.errors import BadMessage
from quorum.wire.convert.parts import at_most
from quorum.wire.table import Counted, Submitted, Table, Viewed

SERVICE: Final = entity_pb2.DESCRIPTOR.services_by_name["EntityService"]


def _check_level(request: Any, view: ReadView) -> None:
    """Raises Refused. A read of the past sees an image without entities, and shows that there were none."""
    if request.context.HasField("at_offset") or request.context.HasField("at_time_ms"):
        return
    try:
        require_level(view.image, ENTITIES_LEVEL, "a read of entities and sessions")
    except ControllerError as e:
        raise Refused(e.code, e.message) from e


def _get_entities(request: entity_pb2.GetEntitiesRequest, view: ReadView) -> entity_pb2.GetEntitiesResponse:
    at_most(OPERATIONS_MAX, len(request.entities), "entities")
    names = [convert.from_name(each, f"entities[{i}]: ") for i, each in enumerate(request.entities)]
    _check_level(request, view)
    found, missing = views.get_entities(view.image, names)
    return entity_pb2.GetEntitiesResponse(
        as_of_offset=view.as_of_offset, entities=[convert.to_entity(each) for each in found], missing=missing
    )


def _list_entities(request: entity_pb2.ListEntitiesRequest, view: ReadView) -> entity_pb2.ListEntitiesResponse:
    wanted, begin = convert.from_filter(request), pages.name_after(request.page_token)
    limit = pages.page_size(request.page_size)
    _check_level(request, view)
    count = views.count_entities(view.image, wanted)
    response = entity_pb2.ListEntitiesResponse(as_of_offset=view.as_of_offset, count=count)
    if not request.count_only:
        page = views.list_entities(view.image, wanted, begin, limit, names_only=request.names_only)
        response.entities.extend([convert.to_entity(each, names_only=request.names_only) for each in page.items])
        response.next_page_token = (page.next or "").encode()
    return response


def _describe_kinds(request: entity_pb2.DescribeKindsRequest, view: ReadView) -> entity_pb2.DescribeKindsResponse:
    begin, limit = pages.name_after(request.page_token), pages.page_size(request.page_size)
    _check_level(request, view)
    page = views.describe_kinds(view.image, begin, limit)
    return entity_pb2.DescribeKindsResponse(
        as_of_offset=view.as_of_offset,
        kinds=[convert.to_kind(each) for each in page.items],
        next_page_token=(page.next or "").encode(),
    )


def _session_ids(request: entity_pb2.ListSessionsRequest, view: ReadView) -> Any:
    _sessions_wanted(request)  # a bad request is refused before the sort
    _check_level(request, view)
    return view.image.client_sessions.sorted_keys()


def _list_sessions(
    request: entity_pb2.ListSessionsRequest, view: ReadView, ids: Any
) -> entity_pb2.ListSessionsResponse:
    begin, limit = _sessions_wanted(request)
    page = views.list_sessions(view.image, ids, begin, limit)
    return entity_pb2.ListSessionsResponse(
        as_of_offset=view.as_of_offset,
        sessions=[convert.to_session(each) for each in page.items],
        next_page_token=page.next or b"",
    )


def _sessions_wanted(request: entity_pb2.ListSessionsRequest) -> tuple[bytes, int]:
    token: bytes = request.page_token
    if token and len(token) != convert.SESSION_ID_BYTES:
        raise BadMessage("page_token is not from an answer to this request: send `next_page_token` of the page before")
    return token, pages.page_size(request.page_size)


def _opened_by(command: OpenSession, principal: str) -> OpenSession:
    return replace(command, principal=principal)


TABLE: Final = Table(
    SERVICE,
    (
        Submitted("Transact", convert.from_transact, convert.to_transact_response),
        Submitted("AlterKinds", convert.from_alter_kinds, convert.to_alter_kinds_response),
        Submitted("OpenSession", convert.from_open_session, convert.to_open_session_response, asked_by=_opened_by),
        Submitted("CloseSession", convert.from_close_session, convert.to_close_session_response),
        Viewed("GetEntities", _get_entities),
        Viewed("ListEntities", _list_entities),
        Viewed("DescribeKinds", _describe_kinds),
        Counted("ListSessions", _session_ids, _list_sessions),
    ),
)
"""All methods but the stream `KeepAlive`."""
