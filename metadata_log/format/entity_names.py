"""The kinds and names of entities: which are possible, and which ranges of names exist.

The controller refuses other kinds and names, and replay takes them for damage. Entities are in the order of (kind, name), so all
names with one prefix are one range. Example: the names of kind "job" with the prefix "a/" are the range from ("job", "a/") up to
("job", "a0"), exclusive, because "0" is the code point after "/".
"""

import re
from typing import Final, TypeAlias

EntityName: TypeAlias = tuple[str, str]
"""Kind and name of an entity: its key."""

KIND_CHARS_MAX: Final = 64
"""Maximum length of a kind."""
ENTITY_NAME_BYTES_MAX: Final = 512
"""Maximum size of the name of an entity, in UTF-8."""

_KIND: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{KIND_CHARS_MAX - 1}}}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of surrogate pairs, which have no UTF-8."""


def kind_problem(kind: str) -> str | None:
    """Say why no entity can have this kind; None if entities can have it."""
    if _KIND.fullmatch(kind):
        return None
    return f"{kind!r:.80} is no kind: a kind has 1 to {KIND_CHARS_MAX} of the characters a-z 0-9 . _ - and begins with a-z or 0-9"


def entity_name_problem(name: str) -> str | None:
    """Say why no entity can have this name; None if an entity can have it."""
    if not name:
        return "the name of an entity is empty"
    if _CONTROL.search(name):
        return f"the name {name!r:.80} has a control character"
    if len(name.encode()) > ENTITY_NAME_BYTES_MAX:
        return f"the name {name!r:.80} is longer than {ENTITY_NAME_BYTES_MAX} bytes of UTF-8"
    return None


def kind_range(kind: str) -> tuple[EntityName, EntityName]:
    """Return the range of all keys of the kind: the first possible key, and the first key behind, which is exclusive."""
    return (kind, ""), (kind + "\x00", "")


def prefix_range(kind: str, prefix: str) -> tuple[EntityName, EntityName]:
    """Return the range of all keys of the kind whose name begins with `prefix`; the end is exclusive."""
    first, end = kind_range(kind)
    behind = _behind(prefix)
    return (kind, prefix) if prefix else first, end if behind is None else (kind, behind)


def _behind(prefix: str) -> str | None:
    """Return the smallest text above every text that begins with `prefix`; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    last = ord(kept[-1]) + 1
    return kept[:-1] + ("\ue000" if last == 0xD800 else chr(last))
