"""Conversion of settings to a typed, checked configuration; all mistakes are reported at once.

A daemon describes its configuration as a `Config` model (pydantic). A field `fetch_timeout_ms` is the key `fetch.timeout.ms`. A
model inside of a model is a section: `tls: TlsSection` with the field `key_file` is the key `tls.key.file`. Text for a list
field is split at commas, as in Kafka.

Unknown keys, missing keys, wrong types and values out of range are collected into one `ConfigErrors`, each with its file and
line, variable or option. A daemon with a wrong configuration exits with `run.EXIT_CONFIG`. For example:

    2 mistakes in the configuration:
      broker.yaml:3: node.id: a number expected, not true
      --set: num.partition: no such key; did you mean num.partitions?
"""

import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from service_kit.process.settings import ConfigErrors, ConfigProblem, Setting, canonical_key, read_settings

__all__ = ["Config", "ConfigErrors", "ConfigProblem", "EffectiveValue", "effective", "load_config"]

DEFAULT: Final = "default"
HIDDEN: Final = "[hidden]"
_SECRET_WORDS: Final = frozenset({"password", "secret", "token", "credential"})
_SHOWN_CHARS_MAX: Final = 80
ELSEWHERE: Final = (
    "no such key; docs/configuration.md has the keys of this daemon, and the configs of a running cluster"
)
"""For example, an operator of Kafka would write the broker config `num.io.threads` into the file of each broker."""
NO_PATH: Final = "a path expected, not an empty text; leave the key out to have none"


class Config(BaseModel):
    """Base of a daemon's configuration. Frozen; keeps the origin of each value."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=True)

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)


class EffectiveValue(NamedTuple):
    """One row of `config show --effective`."""

    key: str
    value: str
    origin: str


M = TypeVar("M", bound=Config)


def load_config(model: type[M], path: Path | None, env: Mapping[str, str], overrides: Sequence[str] = ()) -> M:
    """Loads the configuration from the file (if any), the environment and `--set key=value`.

    Raises:
        ConfigErrors: the configuration is wrong; the error lists every mistake.
    """
    settings, problems = read_settings(path, env, overrides)
    fields = dict(_fields(model))
    given: dict[str, Any] = {}
    for setting in settings.values():
        field = fields.get(setting.key)
        if field is None:
            problems.append(ConfigProblem(setting.key, _unknown(setting.key, fields), setting.origin))
        else:
            _put(given, field, setting.value)
            if isinstance(setting.value, bool) and field.wants_number:
                problems.append(
                    ConfigProblem(setting.key, f"a number expected, not {_text(setting.value)}", setting.origin)
                )
            if field.wants_path and setting.value == "":
                problems.append(ConfigProblem(setting.key, NO_PATH, setting.origin))
    try:
        config = model.model_validate(given)
    except ValidationError as e:
        refused = {each.key for each in problems}
        problems.extend(each for each in _problems(e, settings, fields) if each.key not in refused)
    if problems:
        raise ConfigErrors(problems)
    config._origins.update((setting.key, setting.origin) for setting in settings.values())
    return config


def effective(config: Config) -> list[EffectiveValue]:
    """Returns every key with its value and origin; secrets are hidden."""
    rows = []
    for key, field in sorted(dict(_fields(type(config))).items()):
        value: Any = config
        for name in field.path:
            value = getattr(value, name, None)
        shown = HIDDEN if _is_secret(key) and value is not None else _text(value)
        rows.append(EffectiveValue(key, shown, config._origins.get(key, DEFAULT)))
    return rows


class _Field(NamedTuple):
    """A field of the model that is no section."""

    path: tuple[str, ...]
    wants_list: bool
    wants_number: bool
    """True for a number. (Pydantic alone would take `true` for 1.)"""
    wants_path: bool
    """True for a path. (An empty text, perhaps of a shell variable that is not set, would mean the current directory.)"""


def _fields(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, _Field]]:
    for name, info in model.model_fields.items():
        here = (*path, name)
        section = _section(info.annotation)
        if section is not None:
            yield from _fields(section, here)
        else:
            yield (
                canonical_key(".".join(here)),
                _Field(
                    here,
                    _wants_list(info.annotation),
                    _wants_number(info.annotation),
                    Path in _alternatives(info.annotation),
                ),
            )


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model of a section, or of a section that may be None; None for other fields."""
    for each in _alternatives(annotation):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _wants_list(annotation: Any) -> bool:
    return any((typing.get_origin(each) or each) in (list, tuple, set, frozenset) for each in _alternatives(annotation))


def _wants_number(annotation: Any) -> bool:
    alternatives = _alternatives(annotation)
    return (int in alternatives or float in alternatives) and bool not in alternatives


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _put(given: dict[str, Any], field: _Field, value: object) -> None:
    if field.wants_list and isinstance(value, str):
        value = [entry.strip() for entry in value.split(",")] if value.strip() else []
    for name in field.path[:-1]:
        given = given.setdefault(name, {})
    given[field.path[-1]] = value


def _unknown(key: str, fields: Mapping[str, _Field]) -> str:
    near = difflib.get_close_matches(key, fields, n=1, cutoff=0.7)
    return f"no such key; did you mean {near[0]}?" if near else ELSEWHERE


def _problems(
    error: ValidationError, settings: Mapping[str, Setting], fields: Mapping[str, _Field]
) -> Iterator[ConfigProblem]:
    keys = {field.path: key for key, field in fields.items()}
    for each in error.errors(include_url=False, include_context=False):
        where = tuple(str(part) for part in each["loc"])
        key = next(
            (keys[where[:n]] for n in range(len(where), 0, -1) if where[:n] in keys), canonical_key(".".join(where))
        )
        setting = settings.get(key)
        text = each["msg"].removeprefix("Value error, ")
        text = text[:1].lower() + text[1:] if each["msg"] == text else text
        if each["type"] == "missing":
            text = "required, but not given"
        elif setting is not None and not _is_secret(key) and each["type"] != "value_error":
            shown = repr(each["input"])
            text += f", not {shown if len(shown) <= _SHOWN_CHARS_MAX else shown[:_SHOWN_CHARS_MAX] + '...'}"
        yield ConfigProblem(key, text, setting.origin if setting is not None else "")


def _is_secret(key: str) -> bool:
    return not _SECRET_WORDS.isdisjoint(key.split("."))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | set | frozenset) and type(value).__str__ is object.__str__:
        return ",".join(_text(entry) for entry in value)
    return str(value)
