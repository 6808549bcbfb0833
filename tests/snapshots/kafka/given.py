"""The logs in `data/`, and Kafka's own dump of them as values that can be compared."""

import json
import re
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline.kafka.records import UnknownRecord, records, to_json
from snapshots.offline.kafka.scan import Scanned, scan_file

DATA = Path(__file__).with_name("data")
LOGS = ("upgraded-3.7.2", "voters-3.9.1", "elr-4.1.1", "upgraded-4.2.0")
METADATA = "__cluster_metadata-0"
_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: -?\d+ producerId: (-?\d+) "
    r"producerEpoch: (-?\d+) partitionLeaderEpoch: (\d+) isTransactional: (\w+) isControl: (\w+) deleteHorizonMs: \S+ "
    r"position: (\d+) CreateTime: (\d+) size: (\d+) magic: 2 compresscodec: (?:none|NONE) crc: (\d+) isvalid: true"
)
_RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (\d+) sequence: -1 headerKeys: \[\] (\w+):? (\{.*\})"
)
_BARE = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: 4 valueSize: \d+ sequence: -1 headerKeys: \[\] controlType: LEADER_CHANGE\(2\)"
)
"""The tools before Kafka 4.0 print no fields of this record."""
_CONTROL_NAMES = {
    "LeaderChange": "LeaderChangeMessage",
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
}


class Seen(NamedTuple):
    """A file as one of two readers sees it."""

    batches: list[tuple[Any, ...]]
    """Base and end offset, sequence, producer id and epoch, leader epoch, transactional, control, position, time, size, CRC."""
    records: list[tuple[int, int, str, Any, Any]]
    """Offset, time, type, version (None for control records: Kafka's tool prints none), and fields (None: not printed)."""


@lru_cache(maxsize=1)
def contents(name: str) -> dict[str, bytes]:
    found = {}
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
    return found


def nodes(name: str) -> list[str]:
    return sorted({path.partition("/")[0] for path in contents(name)})


def unpack(name: str, node: str, target: Path) -> Path:
    """Write the log directory of one node, and return its path."""
    for path, data in contents(name).items():
        if path.startswith(f"{node}/") and not path.endswith("dump.txt"):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(data)
    return target / node


def kafkas_dump(name: str, node: str) -> dict[str, Seen]:
    """Return what Kafka's own tool saw, by file."""
    found: dict[str, Seen] = {}
    file = Seen([], [])
    for line in contents(name)[f"{node}/dump.txt"].decode().splitlines():
        if line.startswith("Dumping "):
            file = found.setdefault(line.removeprefix("Dumping "), Seen([], []))
        elif match := _BATCH.fullmatch(line):
            words = match.groups()
            base, last, count = map(int, words[:3])
            assert last - base + 1 == count
            marks = (word == "true" for word in words[7:9])
            file.batches.append((base, last + 1, *map(int, words[3:7]), *marks, *map(int, words[9:])))
        elif match := _RECORD.fullmatch(line):
            offset, time_ms, _, _, kind, text = match.groups()
            value = json.loads(text)
            if kind == "payload":
                file.records.append(
                    (int(offset), int(time_ms), value["type"], value["version"], renamed(value["data"]))
                )
            else:
                file.records.append((int(offset), int(time_ms), _kafkas_name(_CONTROL_NAMES[kind]), None, value))
        elif match := _BARE.fullmatch(line):
            file.records.append((int(match[1]), int(match[2]), "LEADER_CHANGE_MESSAGE", None, None))
        else:
            assert line.startswith(("Snapshot end offset", "Log starting offset")), line
    return found


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Return fields under the names of the latest Kafka; 3.7 has another name for one field."""
    return {name.replace("lastKnownELR", "lastKnownElr"): value for name, value in data.items()}


def as_far_as_printed(ours: Seen, theirs: Seen) -> Seen:
    """Return our view without the fields that Kafka's tool did not print."""
    pairs = zip(ours.records, theirs.records, strict=True)
    return ours._replace(records=[(*our[:4], None if their[4] is None else our[4]) for our, their in pairs])


def _kafkas_name(name: str) -> str:
    """Return the name of a type as Kafka's tools print it: TOPIC_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def our_view(directory: Path, file: str) -> Seen:
    """Return what our reader sees in a file. Nothing may be wrong with it, and nothing unknown."""
    seen = Seen([], [])
    for scanned in scan_file(LocalDirectory(directory), file):
        batch = scanned.batch
        assert batch is not None and scanned.error is None, scanned
        seen.batches.append(
            (
                *(batch.base_offset, batch.end_offset, batch.base_sequence, batch.producer_id, batch.producer_epoch),
                *(batch.epoch, batch.is_transactional, batch.is_control, scanned.position, batch.max_timestamp_ms),
                *(scanned.length, batch.crc),
            )
        )
        for placed in records(batch):
            record = placed.record
            assert not isinstance(record, UnknownRecord), record
            version = None if record.message.is_control else record.version
            seen.records.append(
                (placed.offset, placed.timestamp_ms, _kafkas_name(record.name), version, to_json(record))
            )
    return seen


def scanned_files(directory: Path, *names: str) -> list[Scanned]:
    return [scanned for name in names for scanned in scan_file(LocalDirectory(directory), name)]
