"""Writes docs/api.md: every service, method, message and enum, with the comments of the .proto files.

`python scripts/api_page.py` writes the file; tests/quorum/wire/test_api_page.py fails while it says something else.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from service_kit.rpc.api_methods import API

ROOT: Final = Path(__file__).resolve().parents[1]
PATH: Final = ROOT / "docs" / "api.md"
PROTOS: Final = ROOT / "proto" / "quorum_rpc" / "v1"
FILES: Final = {"admin": "AdminService", "client": "ClusterMetadataService", "broker": "BrokerService"} | {
    "entity": "EntityService",
    "watch": "WatchService",
    "partition": "PartitionService",
    "data_plane": "DataPlaneService",
    "voter": "VoterService",
    "common": None,
}
"""The .proto files in the order of the page, each with its service."""

HEAD: Final = """# The API

Written by `scripts/api_page.py` from the files in `proto/quorum_rpc/v1` and from `service_kit/rpc/api_methods.py`; don't edit it
here. [`clients.md`](clients.md) says what a client has to do.

* *read*: changes nothing, and may be repeated.
* *change*: a repeated call is a second change, or is refused because the first one was made.
* *change, once per request id*: calls with the same `request_id` change the cluster once.
* *change towards a goal*: a repeated call with a `request_id` finds the goal reached, or works for it again, which does no harm.

A field that is not set has its default: the number 0, the empty text, an empty list, or false. A field marked *optional* tells
"not set" from 0.
"""

_BEGIN: Final = re.compile(r"(service|message|enum|oneof) (\w+) \{")
_NAMED: Final = re.compile(r"rpc (\w+)\(|(?:(?:repeated|optional) )?[\w.]+ (\w+) = \d+;|(\w+) = -?\d+;")


def comments() -> dict[str, str]:
    """The comment above each service, method, message, field, enum and value, by full name without the package."""
    found: dict[str, str] = {}
    for name in FILES:
        found.update(_comments((PROTOS / f"{name}.proto").read_text()))
    return found


def _comments(text: str) -> Iterator[tuple[str, str]]:
    scope: list[str] = []
    comment: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        begin = _BEGIN.match(line)
        named = _NAMED.match(line) if scope else None
        if begin is not None or named is not None:
            name = begin[2] if begin is not None else next(filter(None, named.groups()))  # type: ignore[union-attr]
            yield ".".join([*filter(None, scope), name]), "\n".join(comment)
        if begin is not None and not line.endswith("}"):
            scope.append("" if begin[1] == "oneof" else begin[2])  # a oneof is no scope for the names of its fields
        elif line == "}":
            scope.pop()
        comment = []


def page() -> str:
    """The whole file."""
    said = comments()
    descriptors = {name: importlib.import_module(f"quorum_rpc.v1.{name}_pb2").DESCRIPTOR for name in FILES}
    told: set[str] = set()
    parts = [HEAD, "| service | methods |\n|---|---|"]
    parts[1] += "".join(
        f"\n| [{service}](#{service.lower()}) | {len(descriptors[name].services_by_name[service].methods)} |"
        for name, service in FILES.items()
        if service
    )
    for name, service in FILES.items():
        if service is not None:
            parts += _service(descriptors[name].services_by_name[service], said, told)
    parts.append("## Messages\n\nMessages that others are made of, by name.")
    messages = [message for file in descriptors.values() for message in file.message_types_by_name.values()]
    rest = [message for message in messages if message.name not in told]
    for message in sorted(rest, key=lambda each: each.name):
        parts += [f"### {message.name}", *_message(message, said)]
    parts.append("## Enums")
    enums = [enum for file in descriptors.values() for enum in file.enum_types_by_name.values()]
    for enum in sorted(enums, key=lambda each: each.name):
        parts += [f"### {enum.name}", _enum(enum, said)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _service(service: Any, said: dict[str, str], told: set[str]) -> list[str]:
    kinds = API[service.name]
    parts = [f"## {service.name}", _text(said[service.name]), "| method | kind |\n|---|---|"]
    parts[2] += "".join(
        f"\n| [{method.name}](#{service.name.lower()}{method.name.lower()}) | {kinds[method.name].value} |"
        for method in service.methods
    )
    for method in service.methods:
        parts += [
            f"### {service.name}.{method.name}",
            _text(said[f"{service.name}.{method.name}"]),
            f"`{_signature(method)}` - {kinds[method.name].value}",
        ]
        for message in (method.input_type, method.output_type):
            if message.name not in told:
                told.add(message.name)
                parts += [f"**{message.name}**", *_message(message, said)]
    return parts


def _signature(method: Any) -> str:
    taken, given = (
        ("stream " if is_stream else "") + message.name
        for is_stream, message in (
            (method.client_streaming, method.input_type),
            (method.server_streaming, method.output_type),
        )
    )
    return f"rpc {method.name}({taken}) returns ({given})"


def _message(message: Any, said: dict[str, str]) -> list[str]:
    name = message.full_name.removeprefix(f"{message.file.package}.")
    fields = [
        f"- `{field.name}` ({_type(field)}): {_line(said[f'{name}.{field.name}'])}" for field in message.fields
    ] or ["No fields."]
    return [
        _text(said[name]),
        "\n".join(fields),
        *(f"*{enum.name}*: {_enum(enum, said)}" for enum in message.enum_types),
    ]


def _enum(enum: Any, said: dict[str, str]) -> str:
    name = enum.full_name.removeprefix(f"{enum.file.package}.")
    values = [f"- `{value.name}` ({value.number}): {_line(said[f'{name}.{value.name}'])}" for value in enum.values]
    return "\n".join([_text(said[name]), "", *values])


def _type(field: Any) -> str:
    if field.message_type is not None:
        text = field.message_type.name
    elif field.enum_type is not None:
        text = field.enum_type.name
    else:
        text = next(
            name[5:].lower() for name in dir(field) if name[:5] == "TYPE_" and getattr(field, name) == field.type
        )
    if field.is_repeated:
        return f"list of {text}"
    oneof = field.containing_oneof
    if oneof is not None:
        return f"{text}, optional" if oneof.name.startswith("_") else f"{text}, one of `{oneof.name}`"
    return str(text)


def _text(comment: str) -> str:
    """Paragraphs, each on one line."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in comment.split("\n\n"))


def _line(comment: str) -> str:
    return " ".join(comment.split())


if __name__ == "__main__":
    PATH.write_text(page())
    print(f"wrote {PATH}")
