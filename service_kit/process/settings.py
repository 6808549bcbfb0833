"""Settings from a YAML file, the environment and `--set`; a later source wins. Each setting keeps its origin.

Keys are Kafka's, with dots: `controller.quorum.voters`. A file may write keys flat or nested. Case, `_`, `-` and `__` do not
matter: `metadata.log.dir`, `metadata_log_dir` and `METAQUORUM__METADATA__LOG__DIR` are the same key. A file must not give a key
twice, because YAML alone would silently take the last one:

    1. broker.yaml has `node.id: 101` in line 1 and `node_id: 102` in line 9.
    2. YAML knows them as two different keys. Here both are `node.id`, and line 9 is reported: given already at broker.yaml:1.

This file checks only the form of settings; `config` checks their meaning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import yaml

FILE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 16
ENVIRONMENT_PREFIX: Final = "METAQUORUM__"


class Setting(NamedTuple):
    """One value in the form of its source: text from the environment and the command line, typed from YAML."""

    key: str
    value: object
    origin: str
    """`broker.yaml:7`, `METAQUORUM__NODE__ID`, `--set`."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake in a configuration."""

    key: str
    """The key; empty if the mistake is not about one key."""
    text: str
    origin: str
    """The origin of the setting; empty for a required key that is missing."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin, self.key, self.text) if part)


class ConfigErrors(Exception):
    """All mistakes of a configuration."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        assert problems
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def canonical_key(text: str) -> str:
    """The canonical spelling of a key: lower case with dots."""
    return text.strip().lower().replace("__", ".").replace("_", ".").replace("-", ".")


def read_settings(
    path: Path | None, environment: Mapping[str, str], overrides: Sequence[str]
) -> tuple[dict[str, Setting], list[ConfigProblem]]:
    """Reads all sources: the settings by canonical key, and the mistakes. Without `path` there is no file."""
    settings: dict[str, Setting] = {}
    problems: list[ConfigProblem] = []
    for source in (_from_file(path), _from_environment(environment), _from_overrides(overrides)):
        for found in source:
            if isinstance(found, ConfigProblem):
                problems.append(found)
            else:
                settings[found.key] = found
    return settings, problems


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX):
            yield Setting(canonical_key(name.removeprefix(ENVIRONMENT_PREFIX)), environment[name], name)


def _from_overrides(overrides: Sequence[str]) -> Iterator[Setting | ConfigProblem]:
    for override in overrides:
        key, equals, value = override.partition("=")
        if equals and key.strip():
            yield Setting(canonical_key(key), value, "--set")
        else:
            yield ConfigProblem("", f"key=value expected, not {override[:80]!r}", "--set")


def read_yaml(path: Path) -> yaml.Node | None:
    """Reads a YAML file into nodes, which know their lines; None for an empty file.

    Raises:
        ConfigErrors: the file cannot be read, is no YAML, or would be costly to read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            problem = ConfigProblem("", f"larger than {FILE_BYTES_MAX >> 20} MiB", str(path))
        else:
            text = content.decode("utf-8")
            unfit = _unfit(text, path)
            if unfit is None:
                return yaml.compose(text, Loader=yaml.SafeLoader)
            problem = unfit
    except OSError as e:
        problem = ConfigProblem("", e.strerror or str(e), str(path))
    except UnicodeDecodeError as e:
        problem = ConfigProblem("", f"not UTF-8: {e.reason} at byte {e.start}", str(path))
    except yaml.MarkedYAMLError as e:
        line = f":{e.problem_mark.line + 1}" if e.problem_mark else ""
        problem = ConfigProblem("", f"not YAML: {e.problem or e.context}", f"{path}{line}")
    except yaml.YAMLError as e:
        problem = ConfigProblem("", f"not YAML: {e}", str(path))
    raise ConfigErrors([problem])


def _from_file(path: Path | None) -> Iterator[Setting | ConfigProblem]:
    if path is None:
        return
    try:
        root = read_yaml(path)
    except ConfigErrors as e:
        yield from e.problems
        return
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        yield ConfigProblem("", "a mapping of keys to values expected", _line(path, root.start_mark.line))
        return
    first_seen: dict[str, str] = {}
    loader = yaml.SafeLoader("")
    try:
        for found in _flattened(loader, root, "", path):
            if isinstance(found, Setting):
                if found.key in first_seen:
                    yield ConfigProblem(found.key, f"given already at {first_seen[found.key]}", found.origin)
                    continue
                first_seen[found.key] = found.origin
            yield found
    finally:
        loader.dispose()


def _unfit(text: str, path: Path) -> ConfigProblem | None:
    """Finds a part of the file that would be costly to read: a kilobyte of aliases can stand for gigabytes of settings, and deep
    nesting takes PyYAML quadratic time and then the stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        origin = _line(path, event.start_mark.line) if event.start_mark else str(path)
        if isinstance(event, yaml.AliasEvent):
            return ConfigProblem("", "anchors and aliases are not allowed in config files", origin)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            return ConfigProblem("", f"nested too deeply (more than {DEPTH_MAX} levels)", origin)
    return None


def _flattened(
    loader: yaml.SafeLoader, mapping: yaml.MappingNode, prefix: str, path: Path
) -> Iterator[Setting | ConfigProblem]:
    """Yields the leaves of a mapping: scalars and lists."""
    for key_node, value_node in mapping.value:
        origin = _line(path, key_node.start_mark.line)
        if not isinstance(key_node, yaml.ScalarNode):
            yield ConfigProblem(prefix.removesuffix("."), "a key must be plain text", origin)
            continue
        key = prefix + canonical_key(str(key_node.value))
        if isinstance(value_node, yaml.MappingNode):
            yield from _flattened(loader, value_node, key + ".", path)
            continue
        try:
            value = loader.construct_object(value_node, deep=True)
        except (yaml.YAMLError, ValueError) as e:
            problem = e.problem if isinstance(e, yaml.MarkedYAMLError) else e
            yield ConfigProblem(key, f"not a plain value: {problem}", origin)
            continue
        yield Setting(key, value, origin)


def _line(path: Path, index: int) -> str:
    return f"{path}:{index + 1}"
