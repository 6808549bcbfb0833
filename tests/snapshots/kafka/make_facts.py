"""Compare `snapshots/offline/kafka/tables.py` with real Apache Kafkas: `python -m tests.snapshots.kafka.make_facts`.

Needs Java 17 and Maven. Two comparisons:

    1. The definitions in the jars of each release in `RELEASES` state the facts of the table, and nothing else.
    2. `data/messages.jsonl.xz` takes each message in each version as Kafka's own classes write it, with values from dice.
       `test_messages.py` decodes these bytes, and needs neither Java nor Maven.
"""

import base64
import json
import lzma
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.replicas.kafka_jars import find_jars
from snapshots.offline.kafka.records import uuid_text
from snapshots.offline.kafka.schema import STRING, Array, Field, Message, Scalar, Struct, Type
from snapshots.offline.kafka.tables import CONTROL, METADATA
from tests.snapshots.kafka.cluster import ENVIRONMENT, JAVA

RELEASES = ("3.7.2", "3.8.1", "3.9.1", "4.0.0", "4.1.1", "4.2.0")
MESSAGES = Path(__file__).with_name("data") / "messages.jsonl.xz"
SAMPLES = 3
_RENAMED = {"lastKnownELR": "lastKnownElr"}
"""Kafka 3.7 has another name for a field; the bytes are the same."""


def definitions(release: str) -> dict[str, dict[str, Any]]:
    """Return Kafka's own definitions of the messages in a metadata log, by name."""
    found = {}
    jars = find_jars(release)
    wanted = {message.name for message in CONTROL.values()}
    for jar, room in (("kafka-metadata", "common/metadata/"), ("kafka-clients", "common/message/")):
        with zipfile.ZipFile(jars / f"{jar}-{release}.jar") as archive:
            for name in archive.namelist():
                if name.startswith(room) and name.endswith(".json"):
                    definition = json.loads(re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode()))
                    if definition["type"] == "metadata" or definition["name"] in wanted:
                        found[definition["name"]] = definition
    return found


def _versions(text: str) -> tuple[int, int | None]:
    """Return the first and the last version of `2`, `0-3` or `2+`; None: no last one."""
    first, _, last = text.rstrip("+").partition("-")
    return int(first), None if text.endswith("+") else int(last or first)


def _camel(name: str) -> str:
    name = name[0].lower() + name[1:]
    return _RENAMED.get(name, name)


def differences(release: str) -> Iterator[str]:
    """Return how the table differs from the definitions of a release. A later release may have more than an earlier one."""
    for name, definition in definitions(release).items():
        messages = [message for message in (*METADATA.values(), *CONTROL.values()) if message.name == name]
        if not messages:
            yield f"{name} is missing"
            continue
        (message,) = messages
        if definition.get("apiKey", message.key) != message.key or definition["flexibleVersions"] != "0+":
            yield f"{name} has another number, or a version that is not flexible"
        first, last = _versions(definition["validVersions"])
        if first != 0 or last is None or last > message.latest:
            yield f"{name}: versions {definition['validVersions']}, and the table has 0-{message.latest}"
            continue
        commons = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
        yield from _fields(name, message.fields, definition["fields"], commons, last)


def _fields(
    path: str,
    ours: tuple[Field, ...],
    theirs: list[dict[str, Any]],
    commons: dict[str, list[dict[str, Any]]],
    last: int,
) -> Iterator[str]:
    ours = tuple(field for field in ours if field.since <= last)
    if [field.name for field in ours] != [_camel(each["name"]) for each in theirs]:
        yield f"{path} has the fields {[each['name'] for each in theirs]}"
        return
    for field, each in zip(ours, theirs, strict=True):
        name = f"{path}.{field.name}"
        tag = int(each["tag"]) if "tag" in each else None
        if tag != field.tag or each.get("taggedVersions", each["versions"]) != each["versions"]:
            yield f"{name} has tag {tag}"
        if _versions(each["versions"]) != (field.since, None):
            yield f"{name} is in versions {each['versions']}"
        if each.get("nullableVersions") != (each["versions"] if field.nullable else None):
            yield f"{name} is null in versions {each.get('nullableVersions')}"
        default = each.get("default")
        if default is not None and json.loads(str(default).lower()) != field.default_value:
            yield f"{name} has the default {default}"
        if default is None and isinstance(field.type, Scalar) and field.default_value not in (0, "", b"", bytes(16)):
            yield f"{name} has no default"
        yield from _type(name, field.type, each["type"], each.get("fields"), commons, last)


def _type(
    path: str,
    ours: Type,
    theirs: str,
    fields: list[dict[str, Any]] | None,
    commons: dict[str, list[dict[str, Any]]],
    last: int,
) -> Iterator[str]:
    match ours:
        case Array(element):
            if theirs.startswith("[]"):
                yield from _type(path, element, theirs[2:], fields, commons, last)
            else:
                yield f"{path} is no array, but {theirs}"
        case Struct(own):
            yield from _fields(path, own, fields if fields is not None else commons[theirs], commons, last)
        case scalar:
            if scalar.name.lower() != theirs:
                yield f"{path} is of type {theirs}"


# --- messages as Kafka writes them


def samples(message: Message, version: int, dice: random.Random) -> Iterator[dict[str, Any]]:
    """Return JSON for Kafka's converters: random values, in the fields of one version."""
    for richness in range(SAMPLES):
        yield _struct(message.fields, version, dice, richness)


def _struct(fields: tuple[Field, ...], version: int, dice: random.Random, richness: int) -> dict[str, Any]:
    found = {}
    for field in fields:
        if field.since > version or (field.tag is not None and richness == 0):
            continue
        is_null = field.nullable and (richness == 0 or dice.random() < 0.2)
        found[field.name] = None if is_null else _value(field.type, version, dice, richness)
        if field.name == "version":
            found[field.name] = version
    return found


def _value(kind: Type, version: int, dice: random.Random, richness: int) -> Any:
    match kind:
        case Struct(fields):
            return _struct(fields, version, dice, richness)
        case Array(element):
            most = 3 if element is STRING or isinstance(element, Struct) else 130
            size = (0, dice.randrange(1, 4), dice.choice([1, 3, 17, most]) if most > 3 else most)[richness]
            return [_value(element, version, dice, richness) for _ in range(size)]
        case Scalar.STRING:
            return "".join(
                dice.choices(
                    "aZ-._/9 \u00e9\u20ac\U0001f980", k=(0, dice.randrange(1, 20), dice.choice([5, 130]))[richness]
                )
            )
        case Scalar.BYTES | Scalar.UUID:
            data = dice.randbytes(16)
            return uuid_text(data) if kind is Scalar.UUID else "" if richness == 0 else _base64(data)
        case Scalar.BOOL:
            return dice.random() < 0.5
        case Scalar.FLOAT64:
            return dice.choice([0.0, -1.5, 1e300, dice.random()])
    bits, low = {"b": (8, 1), "h": (16, 1), "H": (16, 0), "i": (32, 1), "q": (64, 1)}[kind.value]
    return dice.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) if low else dice.randrange(1 << bits)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def encoded(release: str) -> str:
    """Return the lines of `data/messages.jsonl.xz`, made with the classes of one release."""
    dice = random.Random(7)
    asked = []
    for room, messages in (("metadata", METADATA), ("message", CONTROL)):
        for message in messages.values():
            for version in range(message.latest + 1):
                for index, json_value in enumerate(samples(message, version, dice)):
                    more = "+" if index == SAMPLES - 1 else ""
                    name = f"org.apache.kafka.common.{room}.{message.name}{more}"
                    asked.append((message, version, bool(more), f"{name}\t{version}\t{json.dumps(json_value)}\n"))
    command = (*JAVA, "-Xmx256m", "-cp", f"{find_jars(release)}/*", str(Path(__file__).with_name("Encode.java")))
    text = "".join(line for *_, line in asked)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=300, env=ENVIRONMENT
    )
    if done.returncode:
        sys.exit(done.stderr)
    lines = []
    for (message, version, is_more, _), answer in zip(asked, done.stdout.splitlines(), strict=True):
        data, _, written = answer.partition("\t")
        facts = {"name": message.name, "version": version, "unknown_tag": is_more, "hex": data}
        lines.append(json.dumps({**facts, "json": json.loads(written)}) + "\n")
    return "".join(lines)


def main() -> None:
    failed = False
    for release in RELEASES:
        found = list(differences(release))
        failed |= bool(found)
        print(f"Kafka {release}: {'; '.join(found) or 'the table states its definitions'}", flush=True)
    if failed:
        sys.exit(1)
    text = encoded(RELEASES[-1])
    MESSAGES.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{MESSAGES.name}: {text.count(chr(10))} messages, {MESSAGES.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
