"""Pages of brokers and of configs, built in slices as those of `metadata_pages`.

    1. A client asks for the cluster's status. The cluster has 1,500 brokers. The page has 1,000 of them and the token 1203, the
       last id.
    2. Broker 1203 is unregistered.
    3. The client asks any broker with the token. The page begins with the first broker after 1203.

A page of configs begins at a place in the request's own list of resources.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from quorum_rpc.v1 import broker_pb2, client_pb2, common_pb2

from broker_agent import convert
from broker_agent.cache import MetadataView
from broker_agent.metadata_pages import PAGE_BYTES_MAX
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NODE_ID_MAX, NodeId
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, RegisterBroker
from metadata_log.format.topic_names import TOPIC_NAME_CHARS_MAX
from service_kit.rpc.refusals import Refusal

PAGE_ITEMS_MAX: Final = 1_000
"""Maximum number of brokers, or of resources, in a page."""
RESOURCES_MAX: Final = 10_000
"""Maximum number of resources in one request."""
_DIGITS_MAX: Final = 10
_UNKNOWN_TOKEN: Final = (
    "page_token is not from an answer to this request: send `next_page_token` of the page before, unchanged"
)
_KEYS_PER_UNIT: Final = 4
"""How many configs are added in the time that one partition of an answer takes."""


# --- brokers -------------------------------------------------------------------------------------------------------------


def after_broker(request: client_pb2.ClusterStatusRequest) -> NodeId:
    """Returns the id that the page begins after; -1 for the first page. Raises Refusal."""
    _check_size(request.page_size)
    return _number(request.page_token, -1, NODE_ID_MAX)


def status_steps(
    view: MetadataView,
    request: client_pb2.ClusterStatusRequest,
    after: NodeId,
    response: client_pb2.ClusterStatusResponse,
) -> Iterator[int]:
    """Adds features and brokers to `response`; each step yields its amount of work in partitions."""
    for name, level in sorted(view.features().items()):
        response.features.add(name=name, level=level)
    ids = view.image.brokers.sorted_keys()
    begin = bisect_right(ids, after)
    left_bytes = PAGE_BYTES_MAX
    for count, broker_id in enumerate(ids[begin:]):
        if count >= _limit(request.page_size) or left_bytes <= 0:
            response.next_page_token = str(ids[begin + count - 1]).encode()
            return
        broker = _broker(view.image.brokers[broker_id])
        response.brokers.append(broker)
        left_bytes -= broker.ByteSize()
        yield 1 + len(broker.endpoints)


def _broker(known: RegisterBroker) -> client_pb2.RegisteredBroker:
    state = broker_pb2.ONLINE
    if known.fenced:
        state = broker_pb2.FENCED
    elif known.in_controlled_shutdown:
        state = broker_pb2.STOPPING
    return client_pb2.RegisteredBroker(
        broker_id=known.broker_id,
        state=state,
        endpoints=[
            common_pb2.Endpoint(listener=each.listener, host=each.host, port=each.port) for each in known.endpoints
        ],
        rack=known.rack,
        broker_epoch=known.broker_epoch,
    )


# --- configs -------------------------------------------------------------------------------------------------------------


def first_resource(request: client_pb2.ConfigsRequest) -> int:
    """Returns the place in the request at which the page begins. Raises Refusal."""
    _check_size(request.page_size)
    count = len(request.resources)
    if count > RESOURCES_MAX:
        text = f"{count:,} resources requested, but the limit is {RESOURCES_MAX:,}: send several requests"
        raise Refusal("INVALID_REQUEST", text)
    return _number(request.page_token, 0, max(0, count - 1))


def configs_steps(
    view: MetadataView, request: client_pb2.ConfigsRequest, first: int, response: client_pb2.ConfigsResponse
) -> Iterator[int]:
    """Adds the configs of the resources from `first` on; each step yields its amount of work in partitions."""
    wanted = dict.fromkeys((each.resource_type, each.name) for each in request.resources[:first])
    left, left_bytes = _limit(request.page_size), PAGE_BYTES_MAX
    for place in range(first, len(request.resources)):
        asked = request.resources[place]
        if (asked.resource_type, asked.name) in wanted:
            continue
        if left <= 0 or left_bytes <= 0:
            response.next_page_token = str(place).encode()
            return
        wanted[asked.resource_type, asked.name] = None
        found = response.resources.add(resource=asked)
        _add_configs(view, found)
        left, left_bytes = left - 1, left_bytes - found.ByteSize()
        yield 1 + len(found.configs) // _KEYS_PER_UNIT


def _add_configs(view: MetadataView, found: client_pb2.OwnConfigs) -> None:
    kind, name = found.resource.resource_type, found.resource.name
    if kind == TOPIC_RESOURCE and not view.contains(name):
        text = f"there is no topic {name[:TOPIC_NAME_CHARS_MAX]!r}"
        found.error.CopyFrom(convert.error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
    elif kind not in (TOPIC_RESOURCE, BROKER_RESOURCE) or (kind == BROKER_RESOURCE and not _is_broker(name)):
        text = "give type 2 and a topic's name, or type 4 and a broker's id, or type 4 and no name for all brokers"
        found.error.CopyFrom(convert.error(ErrorCode.INVALID_REQUEST, text))
    else:
        for key, value in sorted(view.image.config(kind, name).items()):
            found.configs.add(key=key, value=value)


def _is_broker(name: str) -> bool:
    return not name or (name.isascii() and name.isdigit() and len(name) <= _DIGITS_MAX and int(name) <= NODE_ID_MAX)


# --- pages ---------------------------------------------------------------------------------------------------------------


def _check_size(page_size: int) -> None:
    if page_size < 0:
        text = f"page_size is {page_size}: it must be at least 1, or 0 for as many as a page holds"
        raise Refusal("INVALID_REQUEST", text)


def _limit(page_size: int) -> int:
    return min(page_size, PAGE_ITEMS_MAX) if page_size > 0 else PAGE_ITEMS_MAX


def _number(token: bytes, first: int, most: int) -> int:
    """Returns the number in the token; `first` for the first page. Raises Refusal."""
    if not token:
        return first
    if not token.isdigit() or len(token) > _DIGITS_MAX or int(token) > most:
        raise Refusal("INVALID_REQUEST", _UNKNOWN_TOKEN)
    return int(token)
