"""Embedders define config keys of topics and brokers, and remove the definitions. All of one request is done, or nothing.

    built-in keys    no definition may have their names, and no prefix may cover one of them
    the default      must be a good value of the definition
    values           no value that is set may become a bad one: neither by a removal, nor by a narrower definition

Example. acme.shard.count is an int from 1 to 64, and topic orders has 32.
    1. A request lowers the maximum to 16: POLICY_VIOLATION, "topic 'orders' has acme.shard.count = 32: it must be ...".
    2. A request removes the definition: POLICY_VIOLATION, because 32 would be a value of no key.
    3. A request removes the definition and defines the prefix acme. as text in its place: done, 32 is a text.

*The search for values takes slices, and misses nothing*: see `SeenConfigs`. Between two slices other requests alter configs,
under the old definitions; the search then looks at these resources again. The definitions change in the turn in which every
resource is as it was seen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from metadata_log.format.config_definitions import definition_of, definition_problem
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    RECORD_LEVELS,
    ConfigDefinition,
    MetadataRecord,
    RemoveConfigDefinition,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.config_commands import AlterConfigKeys, AlterConfigKeysReply, SeenConfigs
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_gate import require_level
from quorum.controller.protocol.happenings import ConfigKeysChanged, first_few
from quorum.controller.topics.config_keys import KEYS, RESOURCE_WORDS
from quorum.controller.topics.configs import resource_text
from quorum.controller.topics.defined_keys import DEFINITIONS_MAX, Definitions, key_of

REQUEST_MAX: Final = 100
"""Maximum number of definitions and removals in one request, so that their records fit into one batch."""
SLICE_VALUES: Final = 5_000
"""How many values end a slice of the search: about 5 ms of work."""
_SHOWN_MAX: Final = 60


def alter_config_keys(image: MetadataImage, command: AlterConfigKeys) -> Decision:
    """Writes what changes; a definition that holds already is not written again.

    Raises:
        ControllerError: UNSUPPORTED_VERSION; INVALID_REQUEST: the request names a definition twice; INVALID_CONFIG: a definition
            is wrong, takes a built-in name, or does not exist; POLICY_VIOLATION: too many definitions, or a value would be bad.
    """
    require_level(image, RECORD_LEVELS[ConfigDefinition], "a definition of a config key")
    _check(image, command)
    before = image.config_definitions
    written = [each for each in command.definitions if before.get(_key(each)) != each]
    reply = AlterConfigKeysReply()
    if not written and not command.removals:
        return Decision((), reply)
    after = {**before, **{_key(each): each for each in written}}
    for key in command.removals:
        del after[key]
    if len(after) > max(DEFINITIONS_MAX, len(before)):
        text = f"the cluster would have {len(after):,} definitions of config keys, and may have {DEFINITIONS_MAX:,}"
        raise ControllerError(ErrorCode.POLICY_VIOLATION, f"{text}; nothing was done; use a prefix, or remove some")
    seen = command.seen
    if seen is None or seen.definitions is not before:
        seen = SeenConfigs(before)
    if not _all_seen(image, seen, after):
        return Decision((), reply, replace(command, seen=seen))
    if command.validate_only:
        return Decision((), reply)
    records: list[MetadataRecord] = [RemoveConfigDefinition(*key) for key in command.removals]
    records += written
    named = first_few(_named(*key) for key in (*map(_key, written), *command.removals))
    return Decision(tuple(records), reply, happenings=(ConfigKeysChanged(len(written), len(command.removals), named),))


def _key(definition: ConfigDefinition) -> tuple[int, str]:
    return definition.resource_type, definition.name


def _named(resource_type: int, name: str) -> str:
    word = RESOURCE_WORDS.get(resource_type, f"resource type {resource_type}")
    return f"{word} config {name[:_SHOWN_MAX]!r}"


# --- checks of the request ----------------------------------------------------------------------------------------------


def _check(image: MetadataImage, command: AlterConfigKeys) -> None:
    keys = [*map(_key, command.definitions), *command.removals]
    if not keys:
        raise ControllerError(ErrorCode.INVALID_REQUEST, "the request names no definition; nothing was done")
    if len(keys) > REQUEST_MAX:
        text = f"{len(keys):,} definitions and removals in one request; at most {REQUEST_MAX} are allowed"
        raise ControllerError(ErrorCode.POLICY_VIOLATION, f"{text}; nothing was done; send several requests")
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ControllerError(ErrorCode.INVALID_REQUEST, f"{_named(*twice)} is named twice; nothing was done")
    for definition in command.definitions:
        problem = definition_problem(definition) or _taken(definition) or _default_problem(definition)
        if problem is not None:
            text = f"the definition of {_named(*_key(definition))}: {problem}; nothing was done"
            raise ControllerError(ErrorCode.INVALID_CONFIG, text)
    for key in command.removals:
        if key not in image.config_definitions:
            text = f"there is no definition of {_named(*key)}; nothing was done; `quorumctl configs keys` lists them"
            raise ControllerError(ErrorCode.INVALID_CONFIG, text)


def _taken(definition: ConfigDefinition) -> str | None:
    """Says which built-in key stands in the way. A name of brokers' keys is taken for topics, too, and the other way round."""
    name = definition.name
    for resource_type, built_in in KEYS.items():
        for key in built_in:
            if key == name or (definition.is_prefix and key.startswith(name)):
                return (
                    f"{RESOURCE_WORDS[resource_type]} config {key} is built in: begin the name with a word of your own"
                )
    return None


def _default_problem(definition: ConfigDefinition) -> str | None:
    problem = key_of(definition).check(definition.default)
    return None if problem is None else f"the default is {definition.default[:_SHOWN_MAX]!r}: it {problem}"


# --- the search for values that would be bad ------------------------------------------------------------------------------


def _all_seen(image: MetadataImage, seen: SeenConfigs, after: Definitions) -> bool:
    """Looks at the next resources. Returns True if no resource is left to look at.

    Raises:
        ControllerError: POLICY_VIOLATION: a value would be bad.
    """
    before, looked = image.config_definitions, 0
    for shard in image.configs.shards():
        if id(shard) in seen.shards:
            continue
        for resource, configs in shard.items():
            if id(configs) in seen.resources:
                continue
            if looked >= SLICE_VALUES:
                return False
            _check_values(resource, configs, before, after)
            seen.resources[id(configs)] = configs
            looked += 1 + len(configs)
        seen.shards[id(shard)] = shard
    return True


def _check_values(
    resource: tuple[int, str], configs: Mapping[str, str], before: Definitions, after: Definitions
) -> None:
    resource_type = resource[0]
    built_in = KEYS.get(resource_type, {})
    for key, value in sorted(configs.items()):
        if key in built_in:
            continue
        old, new = (definition_of(definitions, resource_type, key) for definitions in (before, after))
        if old == new:
            continue  # also a key of another release, which has no definition
        problem = "must have a definition: delete the value first" if new is None else key_of(new).check(value)
        if problem is not None:
            shown = value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "..."
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"{resource_text(*resource)} has config {key} = {shown!r}: it {problem}; nothing was done",
            )
