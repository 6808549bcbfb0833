"""The index of filters: finds the filters that show a subject, whatever the number of filters.

1. 500 watches show entities of the kind `lock`, each with a prefix of its own, and 500 watches show the topic `orders`: 501
   filters.
2. A batch writes the lock `db/7`. The index looks up each beginning of `db/7` that is as long as some prefix, and finds one
   filter. The index does not look at the other 500.
3. The change is encoded once.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from watches.core.filters import Area, Filter, Subject

_EVERY: Final = ""
"""The name that stands for all subjects of an area."""


class FilterIndex:
    """A set of filters, found by subject."""

    def __init__(self) -> None:
        self._filters: set[Filter] = set()
        self._named: dict[tuple[Area, str], dict[Filter, None]] = {}
        """Filters by the name of a topic or the id of a broker; under `_EVERY` those that show all subjects of the area."""
        self._prefixed: dict[tuple[str, str], dict[Filter, None]] = {}
        """Filters by kind and prefix of entities."""
        self._lengths: dict[str, Counter[int]] = {}
        """How many filters have a prefix of a length, by kind."""

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, new: Filter) -> None:
        """Add a filter that the index does not have."""
        assert new not in self._filters, new
        self._filters.add(new)
        for key in _names(new):
            self._named.setdefault(key, {})[new] = None
        for kind, prefix in new.entities:
            self._prefixed.setdefault((kind, prefix), {})[new] = None
            self._lengths.setdefault(kind, Counter())[len(prefix)] += 1

    def remove(self, old: Filter) -> None:
        """Remove a filter of the index."""
        self._filters.remove(old)
        for key in _names(old):
            del self._named[key][old]
            if not self._named[key]:
                del self._named[key]
        for kind, prefix in old.entities:
            del self._prefixed[kind, prefix][old]
            if not self._prefixed[kind, prefix]:
                del self._prefixed[kind, prefix]
            lengths = self._lengths[kind]
            lengths[len(prefix)] -= 1
            if not lengths[len(prefix)]:
                del lengths[len(prefix)]

    def showing(self, subject: Subject) -> Iterator[Filter]:
        """Return the filters that show `subject`, each once."""
        area, name = subject.area, subject.name
        if area is Area.ENTITY:
            return iter(self._showing_entity(subject))
        if area is Area.TOPIC and not name:
            return (each for each in self._filters if each.shows_topics)
        every = self._named.get((area, _EVERY), {})
        named = {} if not name else self._named.get((area, name), {})
        return iter({**named, **every})

    def _showing_entity(self, subject: Subject) -> dict[Filter, None]:
        found: dict[Filter, None] = {}
        for kind in (subject.kind, _EVERY):
            for length in self._lengths.get(kind, ()):
                if length <= len(subject.name):
                    found.update(self._prefixed.get((kind, subject.name[:length]), {}))
        return found


def _names(each: Filter) -> set[tuple[Area, str]]:
    names = {(Area.TOPIC, name) for name in each.topics} | {(Area.BROKER, str(broker)) for broker in each.brokers}
    wide = {
        Area.TOPIC: each.all_topics,
        Area.BROKER: each.all_brokers,
        Area.SESSION: each.sessions,
        Area.OTHER: each.others,
    }
    return names | {(area, _EVERY) for area, is_wide in wide.items() if is_wide}
