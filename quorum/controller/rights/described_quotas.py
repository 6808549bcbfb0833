"""The client quotas that pass a filter (Kafka's DescribeClientQuotas, KIP-546).

A filter has *components*. Each names an entity type, and the names of this type that pass: one name, the default, or any. An
entity passes if it has a part for each component. With `strict` it has no other parts.

Example. There are quotas of (user alice), (user alice, client-id web) and (user default).
    1  user alice            (user alice), (user alice, client-id web)
    2  user alice, strict    (user alice)
    3  user any              all three
    4  no component          all three; with strict none
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from metadata_log.format.records import QuotaEntity
from metadata_log.image.canonical_order import by_quota
from metadata_log.image.metadata_image import MetadataImage

PAGE_MAX = 1_000
"""Maximum number of entities in one page, also if a client wants more."""


class Match(Enum):
    """The names that pass, with Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaComponent(NamedTuple):
    """One condition. `name` is used with EXACT only."""

    entity_type: str
    match: Match
    name: str = ""


class DescribedQuotas(NamedTuple):
    """All quotas of one entity, by key."""

    entity: tuple[QuotaEntity, ...]
    values: tuple[tuple[str, float], ...]


class QuotasPage(NamedTuple):
    """A page of entities in the order of a snapshot. `is_last`: no other entity comes after it."""

    entities: tuple[DescribedQuotas, ...]
    is_last: bool


def describe_quotas(
    image: MetadataImage, components: Sequence[QuotaComponent], *, strict: bool
) -> list[DescribedQuotas]:
    """Returns all entities that pass, in the order of a snapshot. Looks at each quota of the image."""
    found: dict[tuple[QuotaEntity, ...], list[tuple[str, float]]] = {}
    for quota in image.quotas.values():
        if _passes(quota.entity, components, strict):
            assert quota.value is not None, quota
            found.setdefault(quota.entity, []).append((quota.key, quota.value))
    return [DescribedQuotas(entity, tuple(sorted(values))) for entity, values in found.items()]


def _passes(entity: tuple[QuotaEntity, ...], components: Sequence[QuotaComponent], strict: bool) -> bool:
    if strict and len(entity) != len(components):
        return False
    names = dict(entity)
    return all(_has(names, each) for each in components)


def _has(names: dict[str, str | None], component: QuotaComponent) -> bool:
    if component.entity_type not in names:
        return False
    if component.match is Match.ANY:
        return True
    return names[component.entity_type] == (component.name if component.match is Match.EXACT else None)


def page_of(
    found: Sequence[DescribedQuotas], after: tuple[QuotaEntity, ...] | None = None, limit: int = 0
) -> QuotasPage:
    """Cuts the page that begins after the entity `after`, with at most `limit` entities (0, or more: the maximum)."""
    room = limit if 0 < limit <= PAGE_MAX else PAGE_MAX
    rest = found if after is None else [each for each in found if by_quota((each.entity, "")) > by_quota((after, ""))]
    return QuotasPage(tuple(rest[:room]), len(rest) <= room)
