"""Reads of entities, kinds and sessions: pages of an image. Pure.

A page has at most PAGE_ITEMS items and about PAGE_BYTES bytes, and at least one item. The next page begins at a name, so a
page needs no state of a controller. Example: 1,500 jobs of 100 bytes; page 1 has 1,000 jobs, and `next` is the name of job
1,001. If another client deletes this job, page 2 begins at the job behind it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from metadata_log.format.entity_names import EntityName, kind_range, prefix_range
from metadata_log.format.ids import Uuid
from metadata_log.format.records import ClientSession, Entity, EntityKind, Owner
from metadata_log.image.entity_index import UNUSED, KindUsage
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.entities.limits import KindLimits, limits_of

PAGE_ITEMS: Final = 1_000
PAGE_BYTES: Final = 1 << 20
_ITEM_BYTES: Final = 100
"""The size of an item besides its texts and bytes, about."""

T = TypeVar("T")
K = TypeVar("K", str, bytes)


class Page(NamedTuple, Generic[T, K]):
    """Some items. `next`: the first name of the next page; None: this is the last page."""

    items: tuple[T, ...]
    next: K | None


class Filter(NamedTuple):
    """The entities of one kind, with a prefix, from a name (inclusive), up to a name (exclusive); empty texts do not limit."""

    kind: str
    prefix: str = ""
    from_name: str = ""
    to_name: str = ""

    def bounds(self) -> tuple[EntityName, EntityName]:
        """The first possible key, and the key behind the last one."""
        first, end = prefix_range(self.kind, self.prefix) if self.prefix else kind_range(self.kind)
        if self.from_name:
            first = max(first, (self.kind, self.from_name))
        if self.to_name:
            end = min(end, (self.kind, self.to_name))
        return first, end


class DescribedKind(NamedTuple):
    """A kind, its limits and its use."""

    kind: str
    schema: str
    limits: KindLimits
    is_declared: bool
    usage: KindUsage


class DescribedSession(NamedTuple):
    """A session of a client, and the number of entities that it owns."""

    session: ClientSession
    entity_count: int


def get_entities(image: MetadataImage, names: Sequence[EntityName]) -> tuple[list[Entity], list[int]]:
    """The entities that exist, in the order of `names`, up to PAGE_BYTES; and the places of those that do not exist."""
    found: list[Entity] = []
    missing: list[int] = []
    size = 0
    for place, name in enumerate(names):
        entity = image.entity(*name)
        if entity is None:
            missing.append(place)
            continue
        size += _size(entity, names_only=False)
        if found and size > PAGE_BYTES:
            break
        found.append(entity)
    return found, missing


def count_entities(image: MetadataImage, wanted: Filter) -> int:
    """The number of entities that the filter names. Looks at no entity."""
    first, end = wanted.bounds()
    return image.entities.count(first, end) if first < end else 0


def list_entities(
    image: MetadataImage, wanted: Filter, begin: str, limit: int, *, names_only: bool
) -> Page[Entity, str]:
    """The page of entities from the name `begin` on. `limit` 0: PAGE_ITEMS."""
    first, end = wanted.bounds()
    first = max(first, (wanted.kind, begin)) if begin else first
    if first >= end:
        return Page((), None)
    entities = (entity for _, entity in image.entities.items_from(first, end))
    return _cut(entities, limit, lambda each: each.name, lambda each: _size(each, names_only=names_only))


def describe_kinds(image: MetadataImage, begin: str, limit: int) -> Page[DescribedKind, str]:
    """The page of kinds from the kind `begin` on: all that are declared or have entities."""
    kinds: Mapping[str, EntityKind] = image.entity_kinds
    usage: Mapping[str, KindUsage] = image.kind_usage
    names = sorted({*kinds, *usage})
    described = (
        DescribedKind(
            kind,
            "" if (declared := kinds.get(kind)) is None else declared.schema,
            limits_of(declared),
            declared is not None,
            usage.get(kind, UNUSED),
        )
        for kind in names
        if kind >= begin
    )
    return _cut(described, limit, lambda each: each.kind, lambda each: _ITEM_BYTES + len(each.schema.encode()))


def list_sessions(image: MetadataImage, ids: Sequence[Uuid], begin: bytes, limit: int) -> Page[DescribedSession, bytes]:
    """The page of sessions from the id `begin` on. `ids`: those of all sessions, sorted."""
    sessions = (image.client_sessions[session_id] for session_id in islice(ids, bisect_left(ids, begin), None))
    described = (DescribedSession(session, len(image.owned.get(_owner(session), ()))) for session in sessions)
    return _cut(
        described,
        limit,
        lambda each: each.session.session_id,
        lambda each: _ITEM_BYTES + len(each.session.name.encode()) + len(each.session.principal.encode()),
    )


def _owner(session: ClientSession) -> Owner:
    return Owner(session.session_id, None, session.epoch)


def _size(entity: Entity, *, names_only: bool) -> int:
    return _ITEM_BYTES + len(entity.name.encode()) + (0 if names_only else len(entity.value))


def _cut(items: Iterable[T], limit: int, key_of: Callable[[T], K], size_of: Callable[[T], int]) -> Page[T, K]:
    page: list[T] = []
    size = 0
    most = min(limit or PAGE_ITEMS, PAGE_ITEMS)
    for item in items:
        size += size_of(item)
        if page and (len(page) == most or size > PAGE_BYTES):
            return Page(tuple(page), key_of(item))
        page.append(item)
    return Page(tuple(page), None)
