"""Filters: what a watch shows.

Each change is about one *subject*: an entity, a topic, a broker, a session of a client, or something else. A filter names
subjects. Filters that name the same subjects are equal values, so that many watches share one encoding of each change.

    1. A client names the topics `b` and `a`, another client `a`, `b` and `a`. Both watches have one filter.
    2. A third client names the entities of the kind `lock`, and those of the kind `lock` with the prefix `db/`. The second part
       shows nothing new, so the filter is the same as that of a client that names the kind alone.
"""

from collections.abc import Iterable
from enum import Enum, unique
from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId

ENTITIES_MAX: Final = 16
"""Maximum number of filters for entities in one filter."""
NAMES_MAX: Final = 100
"""Maximum number of topics, and of brokers, in one filter."""


@unique
class Area(Enum):
    """The kinds of subjects."""

    ENTITY = "entity"
    TOPIC = "topic"
    BROKER = "broker"
    SESSION = "session"
    OTHER = "other"


class Subject(NamedTuple):
    """The subject of a change."""

    area: Area
    name: str = ""
    """The name of the entity or of the topic, or the broker's id as text. Empty for a topic or a broker: all of them."""
    kind: str = ""
    """The kind of the entity."""


SESSION: Final = Subject(Area.SESSION)
OTHER: Final = Subject(Area.OTHER)


class EntityFilter(NamedTuple):
    """Entities of one kind, or of every kind (""), whose names begin with the prefix."""

    kind: str = ""
    name_prefix: str = ""

    def shows(self, subject: Subject) -> bool:
        return self.kind in ("", subject.kind) and subject.name.startswith(self.name_prefix)


class Filter(NamedTuple):
    """The subjects of a watch. Made by `filter_of`, so that equal filters are equal values."""

    entities: tuple[EntityFilter, ...] = ()
    topics: tuple[str, ...] = ()
    all_topics: bool = False
    brokers: tuple[NodeId, ...] = ()
    all_brokers: bool = False
    sessions: bool = False
    others: bool = False

    def shows(self, subject: Subject) -> bool:
        """Return True if the watch shows changes about `subject`."""
        match subject.area:
            case Area.ENTITY:
                return any(each.shows(subject) for each in self.entities)
            case Area.TOPIC:
                return self.all_topics or subject.name in self.topics or (not subject.name and bool(self.topics))
            case Area.BROKER:
                return self.all_brokers or any(str(each) == subject.name for each in self.brokers)
            case Area.SESSION:
                return self.sessions
            case Area.OTHER:
                return self.others

    @property
    def shows_topics(self) -> bool:
        """True if the watch shows any topic."""
        return self.all_topics or bool(self.topics)


EVERYTHING: Final = Filter((EntityFilter(),), (), True, (), True, True, True)
"""The filter of a watch that names nothing."""


def filter_of(
    entities: Iterable[EntityFilter] = (),
    topics: Iterable[str] = (),
    all_topics: bool = False,
    brokers: Iterable[NodeId] = (),
    all_brokers: bool = False,
    sessions: bool = False,
    others: bool = False,
) -> Filter:
    """Return the filter with these subjects, in one form; `EVERYTHING` if no subject is named."""
    found = Filter(
        tuple(sorted(_widest(entities))),
        () if all_topics else tuple(sorted(set(topics))),
        all_topics,
        () if all_brokers else tuple(sorted(set(brokers))),
        all_brokers,
        sessions,
        others,
    )
    return found if any(found) else EVERYTHING


def _widest(entities: Iterable[EntityFilter]) -> set[EntityFilter]:
    """Drop each filter whose entities another one shows too."""
    given = set(entities)
    return {
        each
        for each in given
        if not any(
            wide != each and wide.kind in ("", each.kind) and each.name_prefix.startswith(wide.name_prefix)
            for wide in given
        )
    }
