"""Config keys that embedders have defined, as rows like those of the built-in keys.

`KEYS` of `config_keys` has the built-in keys; the image has the definitions of embedders (`ConfigDefinition`). A look-up asks the
built-in keys first, so a later release may take a name that an embedder has used.

    acme.shard.count     int, 1 to 64, default 8     the key itself is defined
    acme.weight.         decimal, default 1          every key that begins with acme.weight.
    acme.weight.eu = 2.5                             a good value
    acme.weight.eu = heavy                           INVALID_CONFIG: it must be a number

A topic without a value of its own uses the default of all brokers for the key of the same name, as with the built-in keys, if
the key is defined for brokers too, with the same type, bounds and choices.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from metadata_log.format.config_definitions import BOOLEAN, BOUND_MAX, DECIMAL, INT, LIST, definition_of
from metadata_log.format.records import BROKER_RESOURCE, ConfigDefinition
from quorum.controller.topics.config_keys import DECIMAL_TEXT, KEYS, Check, ConfigKey, WholeNumber, list_items, one_of

Definitions: TypeAlias = Mapping[tuple[int, str], ConfigDefinition]
"""The definitions of an image, by resource type and name."""
NO_DEFINITIONS: Final[Definitions] = {}
DEFINITIONS_MAX: Final = 1_000
"""Maximum number of definitions in the cluster."""
VALUE_BYTES_MAX: Final = 4_096
"""Maximum size of a value of a defined key, in UTF-8."""
DEFINED_KEYS_MAX: Final = 200
"""Maximum number of values of defined keys on one resource, so that an answer with all of them fits into one message."""


def known_key(resource_type: int, key: str, definitions: Definitions = NO_DEFINITIONS) -> ConfigKey | None:
    """Returns the row of a built-in or a defined key; None if there is no such key."""
    found = KEYS[resource_type].get(key)
    if found is not None:
        return found
    definition = definition_of(definitions, resource_type, key)
    return None if definition is None else key_of(definition)


@lru_cache(maxsize=2 * DEFINITIONS_MAX)
def key_of(definition: ConfigDefinition) -> ConfigKey:
    """Returns the row of a definition. The name of a prefix is that of the prefix."""
    is_list = definition.value_type == LIST
    return ConfigKey(definition.name, _bounded(_check_of(definition)), definition.default, is_list)


def broker_key(resource_type: int, key: str, definitions: Definitions) -> str:
    """Returns the cluster-wide broker config that a resource without a value of its own uses; empty if there is none."""
    known = KEYS[resource_type].get(key)
    if known is not None:
        inherited = known.broker_key or key
        return inherited if inherited in KEYS[BROKER_RESOURCE] else ""
    own, of_brokers = (definition_of(definitions, each, key) for each in (resource_type, BROKER_RESOURCE))
    return key if own is not None and of_brokers is not None and _values(own) == _values(of_brokers) else ""


def _values(definition: ConfigDefinition) -> tuple[object, ...]:
    return definition.value_type, definition.minimum, definition.maximum, definition.choices


def count_defined(resource_type: int, keys: Mapping[str, str]) -> int:
    """How many of the keys are not built in."""
    return len(keys.keys() - KEYS[resource_type].keys())


def _bounded(check: Check) -> Check:
    def check_size(value: str) -> str | None:
        size = len(value.encode())
        return check(value) if size <= VALUE_BYTES_MAX else f"must have at most {VALUE_BYTES_MAX:,} bytes, not {size:,}"

    return check_size


def _check_of(definition: ConfigDefinition) -> Check:
    low, high = definition.minimum, definition.maximum
    value_type = definition.value_type
    if value_type == INT:
        return WholeNumber(-BOUND_MAX if low is None else low, BOUND_MAX if high is None else high)
    if value_type == DECIMAL:
        return _decimal(low, high)
    if value_type == BOOLEAN:
        return one_of("true", "false")
    if value_type == LIST:
        return _list(definition.choices, _Length(low, high, "items"))
    return _text(definition.choices, _Length(low, high, "characters"))


def _decimal(low: int | None, high: int | None) -> Check:
    bounds = [f"at least {low}"] if low is not None else []
    bounds += [f"at most {high}"] if high is not None else []
    problem = f"must be a number, {' and '.join(bounds)}" if bounds else "must be a number"

    def check(value: str) -> str | None:
        if DECIMAL_TEXT.fullmatch(value) is None:
            return problem
        number = float(value)
        is_good = math.isfinite(number) and (low is None or low <= number) and (high is None or number <= high)
        return None if is_good else problem

    return check


class _Length:
    """The bounds of a length, and their words."""

    def __init__(self, low: int | None, high: int | None, unit: str) -> None:
        self._low, self._high = low or 0, math.inf if high is None else high
        bounds = [f"at least {low}"] if low else []
        bounds += [f"at most {high}"] if high is not None else []
        self._problem = f"must have {' and '.join(bounds)} {unit}"

    def problem(self, length: int) -> str | None:
        return None if self._low <= length <= self._high else self._problem


def _list(choices: tuple[str, ...], length: _Length) -> Check:
    allowed = frozenset(choices)
    what = f"must be a list of {', '.join(choices)}" if choices else "must be a list, its items"

    def check(value: str) -> str | None:
        items = list_items(value)
        if len(set(items)) != len(items):
            return f"{what}, each once"
        if allowed and not allowed.issuperset(items):
            return what
        return length.problem(len(items))

    return check


def _text(choices: tuple[str, ...], length: _Length) -> Check:
    is_choice = one_of(*choices)

    def check(value: str) -> str | None:
        return (is_choice(value) if choices else None) or length.problem(len(value))

    return check
