"""The request of a watch, checked: sizes and characters are bounded before anything is kept."""

from typing import Final, NamedTuple

from quorum_rpc.v1 import watch_pb2

from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.entity_names import kind_problem
from service_kit.rpc.refusals import Refusal
from watches.core.filters import ENTITIES_MAX, NAMES_MAX, EntityFilter, Filter, filter_of
from watches.core.position import BEGINNING, Position

BOOKMARK_MS: Final = 5_000
"""How long a watch is silent before a message without events, if the client does not say."""
BOOKMARK_MS_MIN: Final = 100
BOOKMARK_MS_MAX: Final = 600_000
NAME_BYTES_MAX: Final = 1 << 10
"""Maximum size of a name, a prefix or a kind. No name in the log is longer."""


class Wanted(NamedTuple):
    """What a client wants to watch."""

    shown: Filter
    position: Position | None
    from_now: bool
    bookmark_s: float


def wanted(request: watch_pb2.WatchRequest) -> Wanted:
    """Returns the request in checked form.

    Raises:
        Refusal: INVALID_REQUEST.
    """
    interval_ms = request.bookmark_interval_ms or BOOKMARK_MS
    if not BOOKMARK_MS_MIN <= interval_ms <= BOOKMARK_MS_MAX:
        raise _bad(f"bookmark_interval_ms is {interval_ms}: it must be {BOOKMARK_MS_MIN} to {BOOKMARK_MS_MAX:,}, or 0")
    position = _position(request.position) if request.HasField("position") else None
    if position is not None and request.from_now:
        raise _bad("from_now is for a watch without a position: leave one of the two out")
    return Wanted(_filter(request.filter), position, request.from_now, interval_ms / 1_000)


def _position(given: watch_pb2.WatchPosition) -> Position:
    position = Position(given.generation, given.offset, given.epoch, given.chain)
    if min(position.generation, position.offset, position.epoch) < 0:
        raise _bad("position has a negative number: send the position of a message of a watch, unchanged")
    if len(position.chain) != CHAIN_BYTES and (position.chain or position.offset != BEGINNING):
        raise _bad(
            f"position.chain has {len(position.chain)} bytes: send the position of a message of a watch, unchanged"
        )
    return position


def _filter(given: watch_pb2.WatchFilter) -> Filter:
    for name, count, limit in (
        ("entities", len(given.entities), ENTITIES_MAX),
        ("topics", len(given.topics), NAMES_MAX),
        ("brokers", len(given.brokers), NAMES_MAX),
    ):
        if count > limit:
            raise _bad(f"filter.{name} has {count:,} elements, and the limit is {limit}: open several watches")
    texts = [*given.topics, *(each.kind for each in given.entities), *(each.name_prefix for each in given.entities)]
    if any(len(text.encode()) > NAME_BYTES_MAX for text in texts):
        raise _bad(f"a name in the filter has more than {NAME_BYTES_MAX:,} bytes: no name in this cluster is that long")
    for each in given.entities:
        problem = kind_problem(each.kind) if each.kind else None
        if problem is not None:
            raise _bad(f"filter.entities: {problem}")
    if "" in given.topics:
        raise _bad("filter.topics has an empty name: name the topics, or set all_topics")
    return filter_of(
        (EntityFilter(each.kind, each.name_prefix) for each in given.entities),
        given.topics,
        given.all_topics,
        given.brokers,
        given.all_brokers,
        given.sessions,
        given.others,
    )


def _bad(text: str) -> Refusal:
    return Refusal("INVALID_REQUEST", f"{text}. Nothing was watched")
