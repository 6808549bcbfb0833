"""Page sizes and page tokens of AdminService. Decides nothing: a view cuts the page.

A token says where the next page begins. A client returns it unchanged, to any controller:

    1. A client asks controller 1 for topics. The page has 1,000 topics and the token `orders`, the last name.
    2. Another client deletes `orders`, and controller 1 dies.
    3. The first client asks controller 2 with the token. The page begins with the first name after `orders`.

So a token names a place in the order of the items, and no state of a controller.
"""

from typing import Final

from google.protobuf.message import DecodeError
from quorum_rpc.v1 import client_pb2

from metadata_log.format.ids import ZERO_UUID
from quorum.controller.partitions.listing.partition_listing import TopicPlace
from quorum.wire.convert.errors import BadMessage

_DIGITS_MAX: Final = 10
UNKNOWN_TOKEN: Final = (
    "page_token is not from an answer to this request: send `next_page_token` of the page before, unchanged"
)


def page_size(asked: int, field: str = "page_size") -> int:
    """Returns the wanted number of items; 0 for the maximum of the method. Raises BadMessage for a negative number."""
    if asked < 0:
        raise BadMessage(f"{field} is {asked}: it must be at least 1, or 0 for the default")
    return asked


def name_after(token: bytes) -> str:
    """Returns the name that the page begins after; the empty text for the first page."""
    try:
        return token.decode()
    except UnicodeDecodeError as e:
        raise BadMessage(UNKNOWN_TOKEN) from e


def number_of(token: bytes, first: int) -> int:
    """Returns the number in the token; `first` for the first page."""
    if not token:
        return first
    if not token.isdigit() or len(token) > _DIGITS_MAX:
        raise BadMessage(UNKNOWN_TOKEN)
    return int(token)


def number_token(number: int) -> bytes:
    return str(number).encode()


def place_of(token: bytes, names: tuple[str, ...]) -> TopicPlace | None:
    """Returns the place in the described topics at which the page begins; None for the first page."""
    place = any_place_of(token)
    if place is not None and place.topic not in names:
        raise BadMessage(UNKNOWN_TOKEN)
    return place


def any_place_of(token: bytes) -> TopicPlace | None:
    """Returns the place at which the page begins, of any topic; None for the first page."""
    if not token:
        return None
    try:
        found = client_pb2.MetadataCursor.FromString(token)
    except DecodeError as e:
        raise BadMessage(UNKNOWN_TOKEN) from e
    if found.partition < 0:
        raise BadMessage(UNKNOWN_TOKEN)
    return TopicPlace(found.topic, found.partition, found.topic_id)


def place_token(place: TopicPlace | None) -> bytes:
    if place is None:
        return b""
    # No topic has the id 0. With the id the token is not empty even if the name is.
    topic_id = place.topic_id or ZERO_UUID
    cursor = client_pb2.MetadataCursor(topic=place.topic, partition=place.partition, topic_id=topic_id)
    return cursor.SerializeToString(deterministic=True)
