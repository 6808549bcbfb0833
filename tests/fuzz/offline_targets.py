"""The inputs of the offline jobs without Spark: copies of logs and of Kafka's disks, and the jobs' own notes."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import msgpack

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from snapshots.offline.audit.baseline import Baseline, CannotUseBaseline, Holder, ProvenSnapshot, read_baseline
from snapshots.offline.committed import committed_end
from snapshots.offline.dump_source import Shown, dump_of
from snapshots.offline.history.begin import reaching_back
from snapshots.offline.history.growth import SUMMED
from snapshots.offline.history.output import BASELINE_NAME, HistoryRefused, place_of
from snapshots.offline.history.output import read_baseline as read_history
from snapshots.offline.inputs import find_log
from snapshots.offline.kafka.dump import Range
from snapshots.offline.kafka.importing import import_log
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.offline.kafka_audit.run import audit_kafka
from tests.fuzz.disk_targets import directories_mutated, node_samples
from tests.fuzz.kafka_targets import sealed_batches
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.kafka.given import contents

_KAFKA_DIRECTORY: Final = "__cluster_metadata-0"


@cache
def _scratch() -> Path:
    path = Path(tempfile.mkdtemp(prefix="metaquorum-fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


# --- the log of a node ------------------------------------------------------------------------------------------------


def _take_directory(data: bytes) -> str | None:
    """The log is found, its end is proven, and a dump shows each batch and each record, or names the damage."""
    place = _scratch() / "node"
    shutil.rmtree(place, ignore_errors=True)
    (place / "@metadata").mkdir(parents=True)
    for name, content in msgpack.unpackb(data).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    log = find_log(str(place))
    assert committed_end([log]).end >= 0
    reaching_back(log, None)
    damaged = 0
    for batches in (True, False):
        for beyond in (True, False):
            lines, tally = dump_of(str(place), "own", Shown(batches, Range(), beyond, True))
            for line in lines:
                json.loads(line)
            damaged += tally.damaged
    return "damaged" if damaged else None


# --- a disk of Kafka --------------------------------------------------------------------------------------------------


@cache
def _kafka_samples() -> tuple[bytes, ...]:
    """Two nodes of a cluster, the beginnings of their logs alone; and one node with its snapshots."""
    files = contents("elr-4.1.1")
    nodes: dict[str, dict[str, bytes]] = {}
    for path, data in sorted(files.items()):
        node, _, name = path.partition("/")
        if name == "meta.properties" or (name.startswith(_KAFKA_DIRECTORY) and name[-4:] in (".log", "oint")):
            nodes.setdefault(node, {})[name] = data
    one, two = (nodes[each] for each in sorted(nodes)[:2])
    bare = [{name: data[:12_000] for name, data in each.items() if "checkpoint" not in name} for each in (one, two)]
    whole = [
        {name: data for name, data in each.items() if "checkpoint" in name or len(data) < 9_000} for each in (one,)
    ]
    return tuple(msgpack.packb(each) for each in (bare, [one], whole))


def _kafka_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    nodes: list[dict[str, bytes]] = msgpack.unpackb(rng.choice(samples))
    for _ in range(rng.choice((1, 1, 2, 3))):
        files = rng.choice(nodes)
        if not files:
            continue
        name = rng.choice(sorted(files))
        if rng.random() < 0.1:
            del files[name]
        elif rng.random() < 0.1:
            base = rng.choice((0, 1, 225, 2**62, 10**19))
            files[f"{_KAFKA_DIRECTORY}/{base:020}-{rng.choice((0, 4, 2**31)):010}.checkpoint"] = files.pop(name)
        else:
            hurt = mutated(rng, [files[name]])
            files[name] = sealed_batches(hurt) if rng.random() < 0.7 else hurt
    data: bytes = msgpack.packb(nodes)
    return data


def _take_kafka(data: bytes) -> str | None:
    """The audit has a verdict about each directory, and the import writes a snapshot, or nothing at all."""
    directories = []
    for number, files in enumerate(msgpack.unpackb(data)):
        directory = MemoryDirectory(f"/node-{number}")
        directory.subdirectory(_KAFKA_DIRECTORY)
        for path, content in files.items():
            inside, _, name = path.rpartition("/")
            (directory.subdirectory(inside) if inside else directory).write_atomic(name, content)
        directories.append(directory)
    found = audit_kafka(directories)
    out = MemoryDirectory("/out")
    try:
        made = import_log(find_kafka_log(directories[0]), out)
    except LogFormatError:
        assert not [name for name in out.names() if name.endswith(".checkpoint")]
        return "refused"
    assert made.path.rpartition("/")[2] in out.names()
    return None if found.is_clean else "findings"


# --- the notes of the jobs --------------------------------------------------------------------------------------------


def _baseline_samples() -> list[bytes]:
    holders = (Holder("controller 1", "AQEBAQEBAQEBAQEBAQEBAQ"), Holder("copy", None))
    snapshots = (ProvenSnapshot(OffsetAndEpoch(3_000, 3), b"s" * 32),)
    return [Baseline("4L6g3nShT", 3_575, 3, b"c" * 32, b"d" * 32, 812, holders, snapshots).to_text().encode()]


def _take_baseline(data: bytes) -> None:
    path = _scratch() / "baseline.json"
    path.write_bytes(data)
    found = read_baseline(str(path), ())
    assert found is not None
    path.write_text(found.to_text())
    assert read_baseline(str(path), ()) == found


def _history_samples() -> list[bytes]:
    brokers = [{"broker_id": 101, "state": "online", "from_offset": 4, "from_time": 900, "began_before": False}]
    sizes = {"topics": 2, "partitions": 4, "brokers": 1}
    newest = {**sizes, **dict.fromkeys(SUMMED, 3), "date": "2026-11-30", "day": None}
    found = {
        "schema_version": 1, "run": 2, "node": "controller 1", "tables": ["changes"], "since": 0, "end": [60, 1_000, 3],
        "chain": "ab" * 32, "election": [3, 1], "growth": {**sizes, "newest": newest}, "brokers": brokers, "state_rows": 12,
    }  # fmt: skip
    return [json.dumps(found).encode()]


def _take_history(data: bytes) -> None:
    place = _scratch() / "history"
    place.mkdir(exist_ok=True)
    (place / BASELINE_NAME).write_bytes(data)
    found = read_history(place_of(str(place)))
    assert found is not None
    assert isinstance(found.run, int) and isinstance(found.end.offset, int) and isinstance(found.node, str)


TARGETS = (
    Target("offline-directory", node_samples, _take_directory, (LogFormatError,), directories_mutated),
    Target("kafka-directories", _kafka_samples, _take_kafka, (LogFormatError,), _kafka_mutated),
    Target("audit-baseline", _baseline_samples, _take_baseline, (CannotUseBaseline,)),
    Target("history-baseline", _history_samples, _take_history, (HistoryRefused,)),
)
