"""Writes docs/configuration.md: every key of both daemons, from the classes with the keys, and the configs of topics and brokers,
from `quorum/controller/topics/config_keys.py`.

`python scripts/config_page.py` writes the file; tests/test_generated_pages.py fails while it says something else.
"""

import enum
import inspect
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from broker_agent.config import BrokerConfig
from quorum.config import QuorumConfig
from quorum.controller.topics.config_keys import BROKER_KEYS, TOPIC_KEYS, ConfigKey
from scripts.docstrings import docstrings
from service_kit.process.config import Config
from service_kit.process.settings import canonical_key

PATH: Final = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
DAEMONS: Final[dict[str, type[Config]]] = {"controller": QuorumConfig, "broker": BrokerConfig}

HEAD: Final = """# Configuration

Written by `scripts/config_page.py` from `quorum/config.py`, `broker_agent/config.py` and `service_kit/security/tls_config.py`;
don't edit it here. The last two tables list the keys that operators change in a running cluster, from
`quorum/controller/topics/config_keys.py`.

The smallest configuration of a controller, without TLS and for this machine only:

```
node.id: 1
listeners: CONTROLLER://127.0.0.1:9001
metadata.log.dir: /var/lib/metaquorum/controller
```

Both daemons read YAML (`--config FILE`), flat or nested. The environment (`METAQUORUM__NODE__ID=1`) overrides
the file, and `--set node.id=1` overrides both. A wrong configuration is refused with all of its mistakes, exit code 78.
`deploy/config/` has commented samples.

Lists are written as YAML lists, or as text with commas. The unit of a number is the end of its key: `ms` milliseconds, `bytes`
bytes.
"""

SET_BY: Final = {
    "topic": """Set these keys with `quorumctl topics create --config KEY=VALUE`, `quorumctl topics apply FILE`, or
`IncrementalAlterConfigs`. `quorumctl topics describe` shows the keys that were set.
""",
    "broker": """Set these keys with `IncrementalAlterConfigs` ([example](clients.md#configs-of-brokers)). `brokerd` refuses
these keys in its own configuration. `quorumctl brokers describe` shows the keys that were set.
""",
}
USES: Final = """The controllers store these values. They use `min.insync.replicas` for health counts and eligible
leader replicas, and `unclean.leader.election.enable` for elections; your data plane uses the other values.
"""


class Key(NamedTuple):
    """One key of one daemon."""

    name: str
    type: str
    default: str
    unit: str
    text: str


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Key]:
    """The keys of `model` and of its sections, in the order of the class."""
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from keys(section, (*path, name))
            continue
        key = canonical_key(".".join((*path, name)))
        unit = {"ms": "milliseconds", "bytes": "bytes"}.get(key.rpartition(".")[2], "")
        unit = "bytes" if ".bytes." in key else unit
        yield Key(key, _type(info), _default(info), unit, docstring(model, name))


def docstring(model: type[BaseModel], field: str) -> str:
    """The docstring below a field, in the declaring class."""
    for kind in model.__mro__:
        if field in inspect.get_annotations(kind):
            return docstrings(kind).get(field, "")
    raise AssertionError(f"{model}.{field} is declared nowhere")


def _type(info: FieldInfo) -> str:
    low = next((each.ge for each in info.metadata if hasattr(each, "ge")), None)
    high = next((each.le for each in info.metadata if hasattr(each, "le")), None)
    bounds = "" if low is None else f", at least {low:,}" if high is None else f", {low:,} to {high:,}"
    return _name(info.annotation) + bounds


_NAMES: Final = {int: "number", bool: "true or false", str: "text", Path: "path", "HostPort": "host:port"} | {
    "Listener": "NAME://host:port",
    "NodeAddress": "id@host:port",
    "NamedNode": "node@NAME",
}


def _name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _name(next(each for each in arguments if each is not type(None)))
    if origin in (list, tuple):
        return f"list of {_name(arguments[0])}"
    if origin is typing.Literal:
        return " or ".join(f"`{word}`" for word in arguments)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    return _NAMES.get(annotation) or _NAMES[annotation.__name__]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or value in ((), []):
        return "none"
    if isinstance(value, enum.Enum):
        value = value.value
    return f"`{','.join(map(str, value)) if isinstance(value, tuple | list) else value}`"


def page() -> str:
    """The whole file."""
    parts = [HEAD]
    for daemon, model in DAEMONS.items():
        parts += [
            f"## {'quorumd' if daemon == 'controller' else 'brokerd'}: keys of a {daemon}\n",
            "| key | type | default | unit | meaning |\n|---|---|---|---|---|",
            *(f"| `{each.name}` | {each.type} | {each.default} | {each.unit} | {each.text} |" for each in keys(model)),
            "",
        ]
    for what, table in (("topic", TOPIC_KEYS), ("broker", BROKER_KEYS)):
        parts += [
            f"## Keys of a {what} in a running cluster\n",
            SET_BY[what],
            USES,
            "| key | value | default |\n|---|---|---|",
            *(f"| `{each.name}` | {_values(each)} | {_quoted(each.default)} |" for each in table.values()),
            "",
        ]
    return "\n".join(parts)


def _values(key: ConfigKey) -> str:
    """The good values of a key, in the words of the refusal of a bad one."""
    refusal = key.check("\x00")
    assert refusal is not None and refusal.startswith("must be "), key
    return refusal.removeprefix("must be ")


def _quoted(text: str) -> str:
    return f"`{text}`" if text else "empty"


if __name__ == "__main__":
    PATH.write_text(page())
    print(f"wrote {PATH}")
