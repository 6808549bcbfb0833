"""Kafka's messages, byte by byte: golden bytes, and every message and version as Kafka's own classes write it."""

import json
import lzma
import struct
from functools import cache
from typing import Any

import pytest

from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.messages import UNKNOWN_TAGS, decoder, unknown_tags
from snapshots.offline.kafka.primitives import unsigned_varint, varint, varlong
from snapshots.offline.kafka.records import Record, UnknownRecord, decode_control, decode_value, to_json
from snapshots.offline.kafka.schema import BOOL, BYTES, INT32, STRING, UUID, Array, Field, Message, Struct
from snapshots.offline.kafka.tables import CONTROL, METADATA
from tests.snapshots.kafka.given import DATA

BY_NAME = {message.name: message for message in (*METADATA.values(), *CONTROL.values())}


@cache
def kafkas_messages() -> list[dict[str, Any]]:
    text = lzma.decompress((DATA / "messages.jsonl.xz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def decoded(name: str, data: bytes) -> Record | UnknownRecord:
    message = BY_NAME[name]
    return decode_control(struct.pack(">hh", 0, message.key), data) if message.is_control else decode_value(data)


# --- all messages


def test_every_message_and_version_reads_as_kafka_wrote_it() -> None:
    """Kafka's own classes wrote the bytes and the JSON. An unknown tagged field is kept, and reported."""
    seen = set()
    for line in kafkas_messages():
        data = bytes.fromhex(line["hex"])
        record = decoded(line["name"], data)
        assert isinstance(record, Record)
        assert (record.name, record.version) == (line["name"], line["version"])
        found = to_json(record)
        assert (found.pop(UNKNOWN_TAGS, None), unknown_tags(record.fields)) == (
            ({"200": "AQID"}, [200]) if line["unknown_tag"] else (None, [])
        )
        assert found == line["json"]
        seen.add((record.name, record.version))
    assert seen == {(message.name, version) for message in BY_NAME.values() for version in range(message.latest + 1)}


def test_no_cut_or_longer_message_is_read() -> None:
    """Each message is cut at each byte, and gets one byte more. Each time the error is the typed one."""
    for line in kafkas_messages():
        data = bytes.fromhex(line["hex"])
        for size in range(len(data)) if len(data) < 400 else (0, 1, 2, 3, 40, len(data) - 1):
            with pytest.raises(KafkaFormatError):
                decoded(line["name"], data[:size])
        with pytest.raises(KafkaFormatError):
            decoded(line["name"], data + b"\x00")


def test_every_field_has_a_value_in_every_version() -> None:
    """A reader asks no version: a field that came later has its default."""
    for line in kafkas_messages():
        record = decoded(line["name"], bytes.fromhex(line["hex"]))
        assert isinstance(record, Record)
        assert set(record.fields) - {UNKNOWN_TAGS} == {field.name for field in record.message.fields}


# --- golden bytes


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0), ("01", 1), ("7f", 127), ("8001", 128), ("ac02", 300), ("ffffffff0f", 2**32 - 1), ("8000", 0),
    ],
)  # fmt: skip
def test_unsigned_varints(data: str, value: int) -> None:
    assert unsigned_varint(bytes.fromhex("55" + data), 1) == (value, 1 + len(data) // 2)


@pytest.mark.parametrize(
    ("data", "value"),
    [("00", 0), ("01", -1), ("02", 1), ("03", -2), ("d804", 300), ("feffffff0f", 2**31 - 1), ("ffffffff0f", -(2**31))],
)
def test_signed_varints_are_zigzags(data: str, value: int) -> None:
    raw = bytes.fromhex(data)
    assert varint(raw, 0) == varlong(raw, 0) == (value, len(raw))


def test_a_varint_that_is_too_long_is_damage() -> None:
    assert varlong(bytes.fromhex("ffffffffffffffffff01"), 0) == (-(2**63), 10)
    for read, data in ((varint, "808080808001"), (varint, "ffffffff1f"), (varlong, "ffffffffffffffffff02")):
        with pytest.raises(KafkaFormatError, match="more than"):
            read(bytes.fromhex(data), 0)
    with pytest.raises(IndexError):
        varint(b"\x80\x80", 0)


def read(fields: tuple[Field, ...], data: str, version: int = 0) -> dict[str, Any]:
    return decoder(Message("Test", 0, 9, fields), version)(bytes.fromhex(data), 0)


def test_compact_strings_and_bytes() -> None:
    """Length plus 1 as a varint; 0 is null, which only a nullable field may be."""
    name = (Field("name", STRING),)
    assert read(name, "06 6f72c3a96c 00") == {"name": "orél"}
    assert read(name, "01 00") == {"name": ""}
    assert read((Field("name", STRING, nullable=True),), "00 00") == {"name": None}
    assert read((Field("key", BYTES),), "03 ff00 00") == {"key": b"\xff\x00"}
    assert read(name, "8101" + "61" * 128 + "00") == {"name": "a" * 128}
    with pytest.raises(KafkaFormatError, match="null"):
        read(name, "00 00")
    with pytest.raises(KafkaFormatError, match="UTF-8"):
        read(name, "02 ff 00")
    with pytest.raises(KafkaFormatError, match="end inside"):
        read(name, "09 6f 00")


def test_compact_arrays() -> None:
    ids = (Field("ids", Array(INT32)),)
    assert read(ids, "01 00") == {"ids": ()}
    assert read(ids, "03 00000001 fffffffe 00") == {"ids": (1, -2)}
    assert read(ids, "8101" + "00000007" * 128 + "00") == {"ids": (7,) * 128}
    assert read((Field("ids", Array(INT32), nullable=True),), "00 00") == {"ids": None}
    assert read((Field("ids", Array(UUID)),), "02" + "0f" * 16 + "00") == {"ids": (b"\x0f" * 16,)}
    assert read((Field("names", Array(STRING)),), "03 0261 0262 00") == {"names": ("a", "b")}
    pair = Array(Struct((Field("id", INT32), Field("name", STRING))))
    assert read((Field("pairs", pair),), "02 00000001 0261 00 00") == {"pairs": ({"id": 1, "name": "a"},)}


@pytest.mark.parametrize("element", [INT32, UUID, STRING, Struct((Field("is_on", BOOL),))])
def test_an_array_longer_than_its_bytes_takes_no_memory(element: Any) -> None:
    """A length of 4 billion is refused before anything is allocated."""
    with pytest.raises(KafkaFormatError, match="end inside"):
        read((Field("ids", Array(element)),), "ffffffff0f 00000001 00")


def test_tagged_fields() -> None:
    """A field with a tag may be absent, and has its default then. Unknown tags are kept, those in a struct too."""
    fields = (
        Field("id", INT32),
        Field("isr", Array(INT32), tag=0, nullable=True, default=None),
        Field("on", BOOL, tag=3),
    )
    assert read(fields, "00000001 00") == {"id": 1, "isr": None, "on": False}
    assert read(fields, "00000001 01 03 01 01") == {"id": 1, "isr": None, "on": True}
    assert read(fields, "00000001 02 00 05 02 00000007 03 01 01") == {"id": 1, "isr": (7,), "on": True}
    assert read(fields, "00000001 01 09 02 beef") == {"id": 1, "isr": None, "on": False, UNKNOWN_TAGS: {9: b"\xbe\xef"}}
    inner = read((Field("all", Array(Struct(fields))),), "02 00000001 01 8801 00 00")
    assert unknown_tags(inner) == [136]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("00000001 02 03 01 01 00 01 00", "follows"),
        ("00000001 02 03 01 01 03 01 00", "follows"),
        ("00000001 01 03 02 0101", "does not fill"),
        ("00000001 01 03 09 01", "end inside"),
        ("00000001 01", "end inside"),
        ("00000001 00 00", "follow the last field"),
    ],
)
def test_damaged_tagged_fields(data: str, reason: str) -> None:
    fields = (
        Field("id", INT32),
        Field("isr", Array(INT32), tag=0, nullable=True, default=None),
        Field("on", BOOL, tag=3),
    )
    with pytest.raises(KafkaFormatError, match=reason):
        read(fields, data)


def test_a_later_version_has_more_fields() -> None:
    fields = (Field("id", INT32), Field("rack", STRING, since=1), Field("isr", Array(INT32), since=2, tag=0))
    assert read(fields, "00000001 00") == {"id": 1, "rack": "", "isr": ()}
    assert read(fields, "00000001 0261 00", 1) == {"id": 1, "rack": "a", "isr": ()}
    assert read(fields, "00000001 00", 0)[("rack")] == ""
    assert read(fields, "00000001 01 00 01 01", 0)[UNKNOWN_TAGS] == {0: b"\x01"}  # version 0 has no tag 0


# --- records that this release does not know


def test_an_unknown_type_or_version_keeps_its_bytes() -> None:
    later_type, later_version = bytes.fromhex("01 63 00 aabb"), bytes.fromhex("01 02 07 aabb")
    assert decode_value(later_type) == UnknownRecord(False, 99, 0, later_type)
    assert decode_value(later_version) == UnknownRecord(False, 2, 7, later_version)
    control = decode_control(struct.pack(">hh", 0, 77), b"\x00\x01rest")
    assert control == UnknownRecord(True, 77, 1, b"\x00\x01rest")
    assert to_json(control) == {"_value": "AAFyZXN0"}
    assert (control.name, decode_value(later_type).name) == ("UnknownControl(77 v1)", "Unknown(99 v0)")


@pytest.mark.parametrize("data", ["", "01", "0102", "02 02 00 00", "ffffffffff 02 00"])
def test_a_damaged_frame(data: str) -> None:
    with pytest.raises(KafkaFormatError):
        decode_value(bytes.fromhex(data))


@pytest.mark.parametrize(("key", "value"), [("0000", "0000"), ("00000002", "00"), ("0000000200", "0000")])
def test_a_damaged_control_record(key: str, value: str) -> None:
    with pytest.raises(KafkaFormatError):
        decode_control(bytes.fromhex(key), bytes.fromhex(value))
