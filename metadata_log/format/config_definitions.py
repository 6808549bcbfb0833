"""The limits of definitions of config keys: what an embedder may define (`ConfigDefinition`).

A definition names one key, or a prefix that ends with a dot:

    acme.shard.count   exact    the key acme.shard.count
    acme.weight.       prefix   acme.weight.eu, acme.weight.us, and every other key that begins so

The exact definition of a key comes before prefixes, and a longer prefix before a shorter one. Example:
  1. `acme.` is defined as text, and `acme.weight.` as int;
  2. acme.weight.eu is an int, acme.colour is a text, and the key `acme.` itself does not exist.

Replay and controllers share these limits. The controller also refuses the names of built-in keys, and a default that is not a
good value (`quorum.controller.topics.config_definitions`).
"""

import re
from collections.abc import Mapping
from typing import Final

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigDefinition

INT: Final = "int"
DECIMAL: Final = "decimal"
BOOLEAN: Final = "boolean"
TEXT: Final = "text"
LIST: Final = "list"
"""The types of values. A list is written with commas."""
VALUE_TYPES: Final = (INT, DECIMAL, BOOLEAN, TEXT, LIST)

KEY_CHARS_MAX: Final = 128
"""Maximum length of a key or a prefix."""
DEFAULT_BYTES_MAX: Final = 500
"""Maximum size of a default, in UTF-8."""
DOCUMENTATION_BYTES_MAX: Final = 500
"""Maximum size of the documentation, in UTF-8."""
CHOICES_MAX: Final = 50
"""Maximum number of choices."""
CHOICE_BYTES_MAX: Final = 100
"""Maximum size of a choice, in UTF-8."""
BOUND_MAX: Final = (1 << 63) - 1
"""The largest bound; the smallest is its negative."""

_KEY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def is_key(text: str) -> bool:
    """Return True if a key may be called so: words of A-Z, a-z, 0-9, '_' and '-', with dots between."""
    return len(text) <= KEY_CHARS_MAX and _KEY.fullmatch(text) is not None


def definition_problem(definition: ConfigDefinition) -> str | None:
    """Return what is beyond the limits, as a sentence that begins with a field; None if nothing is."""
    return _name_problem(definition) or _value_problem(definition) or _text_problem(definition)


def _name_problem(definition: ConfigDefinition) -> str | None:
    if definition.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
        return f"resource type is {definition.resource_type}: {TOPIC_RESOURCE} (topic) and {BROKER_RESOURCE} (broker) exist"
    name = definition.name
    if definition.is_prefix and not name.endswith("."):
        return f"name is {name[:60]!r}: a prefix ends with a dot"
    if not is_key(name.removesuffix(".") if definition.is_prefix else name) or len(name) > KEY_CHARS_MAX:
        return (
            f"name is {name[:60]!r}: it must have 1 to {KEY_CHARS_MAX} characters, words of A-Z, a-z, 0-9, '_' and '-' with "
            "dots between; only a prefix ends with a dot"
        )
    return None


def _value_problem(definition: ConfigDefinition) -> str | None:
    value_type, low, high, choices = (
        definition.value_type,
        definition.minimum,
        definition.maximum,
        definition.choices,
    )
    if value_type not in VALUE_TYPES:
        return f"value type is {value_type[:60]!r}: the types are {', '.join(VALUE_TYPES)}"
    bounds = [bound for bound in (low, high) if bound is not None]
    if any(abs(bound) > BOUND_MAX for bound in bounds):
        return f"minimum and maximum must be between -{BOUND_MAX} and {BOUND_MAX}"
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        return f"minimum is {bounds[0]}, above the maximum {bounds[1]}"
    if value_type == BOOLEAN and bounds:
        return "minimum and maximum have no meaning for a boolean"
    if value_type in (TEXT, LIST) and any(bound < 0 for bound in bounds):
        return f"minimum and maximum are lengths for the type {value_type}, and cannot be negative"
    if choices and value_type not in (TEXT, LIST):
        return f"choices have no meaning for the type {value_type}"
    if len(choices) > CHOICES_MAX or len(set(choices)) < len(choices):
        return f"choices are {len(choices)}: at most {CHOICES_MAX} are allowed, each once"
    for choice in choices:
        is_item = value_type != LIST or ("," not in choice and choice.strip() == choice)
        if not choice or len(choice.encode()) > CHOICE_BYTES_MAX or not is_item:
            return (
                f"choices has {choice[:60]!r}: a choice has 1 to {CHOICE_BYTES_MAX} bytes; that of a list has no comma, and no "
                "space at its ends"
            )
    return None


def _text_problem(definition: ConfigDefinition) -> str | None:
    for field, text, limit in (
        ("default", definition.default, DEFAULT_BYTES_MAX),
        ("documentation", definition.documentation, DOCUMENTATION_BYTES_MAX),
    ):
        size = len(text.encode())
        if size > limit:
            return f"{field} has {size:,} bytes: at most {limit} are allowed"
    return None


def definition_of(
    definitions: Mapping[tuple[int, str], ConfigDefinition], resource_type: int, key: str
) -> ConfigDefinition | None:
    """Return the definition that holds for the key: the exact one, or else that of the longest prefix. O(words of the key)."""
    if not definitions or not is_key(key):
        return None
    found = definitions.get((resource_type, key))
    end = len(key)
    while found is None:
        end = key.rfind(".", 0, end)
        if end < 0:
            return None
        found = definitions.get((resource_type, key[: end + 1]))
    return found
