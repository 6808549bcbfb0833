"""What is read from a copy of a Kafka's disk: the files of its metadata log, and each message in them."""

import json
import lzma
from collections.abc import Sequence
from random import Random

import google_crc32c

from snapshots.offline.kafka import dump
from snapshots.offline.kafka.batches import HEADER_BYTES, PREFIX_BYTES
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.records import decode_control, decode_value, to_json
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.kafka.given import DATA, contents

_CRC_AT, _CRC_END = 17, 21
_CONTROL_KEYS = (
    b"\x00\x00\x00\x02",
    b"\x00\x00\x00\x03",
    b"\x00\x00\x00\x04",
    b"\x00\x00\x00\x05",
    b"\x00\x00\x00\x06",
)


def _file_samples() -> list[bytes]:
    """The beginnings of segments, and whole snapshots."""
    files = contents("elr-4.1.1")
    return [
        data[:9_000]
        for path, data in sorted(files.items())
        if path.startswith("node-1/__") and path[-3:] in ("log", "int")
    ]


def sealed_batches(data: bytes) -> bytes:
    """`data` with a fitting CRC in whatever still looks like a batch."""
    out, position = bytearray(data), 0
    while position + HEADER_BYTES < len(out):
        length = PREFIX_BYTES + int.from_bytes(out[position + 8 : position + 12], "big")
        if not HEADER_BYTES < length <= len(out) - position:
            break
        out[position + _CRC_AT : position + _CRC_END] = _crc(out[position + _CRC_END : position + length])
        position += length
    return bytes(out)


def _crc(data: bytearray) -> bytes:
    value: int = google_crc32c.value(bytes(data))
    return value.to_bytes(4, "big")


def _files_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    data = mutated(rng, samples)
    return sealed_batches(data) if rng.random() < 0.7 else data


def _take_file(data: bytes) -> str | None:
    """As a segment and as a snapshot: a scan raises nothing, and every byte belongs to a batch or to a place."""
    directory, wanted = MemoryDirectory("/fuzz"), dump.Range()
    segment, snapshot = f"{0:020}.log", f"{9:020}-{1:010}.checkpoint"
    damaged = 0
    for name in (segment, snapshot):
        directory.write_atomic(name, data)
        places = list(dump.scan(directory, name, wanted))
        assert sum(place.length for place in places) == len(data)
        tally = dump.Tally()
        for line in dump.record_lines(iter(places), wanted, True, tally):
            json.loads(line)
        damaged += tally.damaged
    return "damaged" if damaged > 1 else None  # a segment has no footer, so as a snapshot it is not complete


def _message_samples() -> list[bytes]:
    """A byte that says which kind, and the value. What is longer than 2,000 bytes is left out."""
    lines = map(json.loads, lzma.decompress((DATA / "messages.jsonl.xz").read_bytes()).decode().splitlines())
    found = []
    for line in lines:
        value = bytes.fromhex(line["hex"])
        kinds = {
            "LeaderChangeMessage": 1,
            "SnapshotHeaderRecord": 2,
            "SnapshotFooterRecord": 3,
            "KRaftVersionRecord": 4,
        }
        kind = 5 if line["name"] == "VotersRecord" else kinds.get(line["name"], 0)
        found.append(bytes([kind]) + value)
    return [each for each in found if len(each) <= 2_000]


def _take_message(data: bytes) -> None:
    kind, value = data[0] % 6 if data else 0, data[1:]
    record = decode_control(_CONTROL_KEYS[kind - 1], value) if kind else decode_value(value)
    json.dumps(to_json(record))


TARGETS = (
    Target("kafka-log", _file_samples, _take_file, mutate=_files_mutated),
    Target("kafka-message", _message_samples, _take_message, (KafkaFormatError,)),
)
