"""Where settings come from: a YAML file, then the environment, then `--set`; each later one wins. Each knows its origin.

Keys are Kafka's, with dots: `controller.quorum.voters`. A file may write them flat or nested, and the three of
`metadata.log.dir`, `metadata_log_dir` and `METAQUORUM__METADATA__LOG__DIR` are one key: case, `_`, `-` and `__` do not
count. No key may be given twice in one file: YAML itself would silently take the last.

Nothing is judged here but the form; what the keys mean is the business of `config`.
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
    """One value, as its source has it (text from environment and command line, typed from YAML)."""

    key: str
    value: object
    origin: str
    """`broker.yaml:7`, `METAQUORUM__NODE__ID`, `--set`."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake."""

    key: str
    """Empty where it is not about one key."""
    text: str
    origin: str
    """Empty where nobody wrote anything: a required key that is missing."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin, self.key, self.text) if part)


class ConfigErrors(Exception):
    """Everything that is wrong with a configuration, at once."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        assert problems
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def canonical_key(text: str) -> str:
    """The one spelling of a key: lower case with dots."""
    return text.strip().lower().replace("__", ".").replace("_", ".").replace("-", ".")


def read_settings(
    path: Path | None, environment: Mapping[str, str], overrides: Sequence[str]
) -> tuple[dict[str, Setting], list[ConfigProblem]]:
    """What the sources say together, by canonical key, and what could not be read. Without `path` there is no file."""
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


def _from_file(path: Path | None) -> Iterator[Setting | ConfigProblem]:
    if path is None:
        return
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as e:
        yield ConfigProblem("", e.strerror or str(e), str(path))
        return
    if len(content) > FILE_BYTES_MAX:
        yield ConfigProblem("", f"larger than {FILE_BYTES_MAX >> 20} MiB", str(path))
        return
    try:
        yield from _from_yaml(content.decode("utf-8"), path)
    except UnicodeDecodeError as e:
        yield ConfigProblem("", f"not UTF-8: {e.reason} at byte {e.start}", str(path))
    except yaml.MarkedYAMLError as e:
        line = f":{e.problem_mark.line + 1}" if e.problem_mark else ""
        yield ConfigProblem("", f"not YAML: {e.problem or e.context}", f"{path}{line}")
    except yaml.YAMLError as e:
        yield ConfigProblem("", f"not YAML: {e}", str(path))


def _from_yaml(text: str, path: Path) -> Iterator[Setting | ConfigProblem]:
    unfit = _unfit(text, path)
    if unfit is not None:
        yield unfit
        return
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return
        if not isinstance(root, yaml.MappingNode):
            yield ConfigProblem("", "a mapping of keys to values expected", _line(path, root.start_mark.line))
            return
        first_seen: dict[str, str] = {}
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
    """What would make reading costly: a kilobyte of aliases can stand for gigabytes of settings, and deep nesting takes
    PyYAML quadratic time and then the stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        origin = _line(path, event.start_mark.line) if event.start_mark else str(path)
        if isinstance(event, yaml.AliasEvent):
            return ConfigProblem("", "anchors and aliases are not for config files", origin)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            return ConfigProblem("", "nested too deeply", origin)
    return None


def _flattened(
    loader: yaml.SafeLoader, mapping: yaml.MappingNode, prefix: str, path: Path
) -> Iterator[Setting | ConfigProblem]:
    """The leaves of a mapping: scalars and lists."""
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
