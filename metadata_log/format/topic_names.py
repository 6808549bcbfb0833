"""Valid topic names: Kafka's rule, because directories and metrics have the names of topics.

Controllers refuse to create a topic with another name. If a client asks a broker for the metadata of such a topic, the broker
answers INVALID_TOPIC_EXCEPTION: nobody can create the topic later, so the client need not ask again.
"""

import re
from typing import Final

TOPIC_NAME_CHARS_MAX: Final = 249
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._-]*")


def topic_name_problem(name: str) -> str | None:
    """Return why a topic cannot be called `name`; None if `name` is valid."""
    if not name:
        return f"topic name '' is empty: 1 to {TOPIC_NAME_CHARS_MAX} characters are allowed"
    if name in (".", ".."):
        return f"topic name {name!r} is not allowed: a directory could not be called so"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return f"topic name {name[:40]!r}... has {len(name)} characters: at most {TOPIC_NAME_CHARS_MAX} are allowed"
    if _CHARACTERS.fullmatch(name):
        return None
    bad = next(character for character in name if not _CHARACTERS.fullmatch(character))
    return f"topic name {name!r} has the character {bad!r}: only A-Z, a-z, 0-9, '.', '_' and '-' are allowed"


def is_text(name: object) -> bool:
    """Return True if `name` is a text that a request can carry: UTF-8 has no half of a surrogate pair ("\\udcff")."""
    if not isinstance(name, str):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
