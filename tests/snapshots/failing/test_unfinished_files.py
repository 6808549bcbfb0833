"""The `.part` files of jobs that were killed, or that met a full disk: none stays."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.codec import encode_valid
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Config, Voters
from snapshots.format import SnapshotMeta, part_name, snapshot_name
from snapshots.offline import compaction
from snapshots.offline.inputs import NodeLog
from snapshots.offline.kafka.importing import import_log
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.offline.packed.fold import CANONICAL
from snapshots.offline.schema import arrow_schema
from tests.killing import killed_everywhere
from tests.snapshots.kafka.given import unpack

LOG = NodeLog("controller 1", "/nowhere", None, (), (), False, None, None)
PAYLOADS = [encode_valid(Config(2, name, "retention.ms", "5")) for name in "abc"]


class Folded:
    """The records of a fold, as Spark would give them to the task that writes."""

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: Any) -> "Folded":  # noqa: N802
        rows = [{"order_key": b"", "payload": payload} for payload in PAYLOADS]
        self.answers = [*task(iter([pa.RecordBatch.from_pylist(rows, schema=arrow_schema(CANONICAL))]))]
        return self

    def collect(self) -> list[pa.RecordBatch]:
        return self.answers


def compact_to(out: Path, end: int, log: NodeLog = LOG) -> compaction.Compacted:
    meta = SnapshotMeta(OffsetAndEpoch(end, 1), 1_000, b"c" * 32, Voters(()), 1)
    return compaction._write(log, Folded(), meta, str(out))


def compact_the_first(out: Path) -> None:
    compact_to(out, 100)


def names(out: Path) -> set[str]:
    return {path.name for path in out.iterdir() if path.name != ".lock"}


def test_a_killed_compaction_leaves_nothing_behind_the_next_one(tmp_path: Path) -> None:
    """The next night ends at another offset: the part file of the killed job stayed for ever."""
    given = tmp_path / "given"
    given.mkdir()
    first, second = (snapshot_name(OffsetAndEpoch(end, 1)) for end in (100, 200))
    left = set()
    for copy in killed_everywhere(compact_the_first, given, tmp_path / "killed"):
        left |= names(copy)
        before = names(copy) & {first}
        compact_to(copy, 200)
        assert names(copy) == {second, *before}
    assert left == {first, part_name(OffsetAndEpoch(100, 1))}


def test_a_compaction_that_meets_a_full_disk_gives_the_bytes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_to(tmp_path, 100)
    fill(monkeypatch)
    with pytest.raises(OSError, match=r"No space left on device: '.*/0+200-0+1\.checkpoint\.part'"):
        compact_to(tmp_path, 200)
    assert names(tmp_path) == {snapshot_name(OffsetAndEpoch(100, 1))}


def test_an_import_that_meets_a_full_disk_gives_the_bytes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = find_kafka_log(RealDirectory(unpack("elr-4.1.1", "node-1", tmp_path / "kafka")))
    out = RealDirectory(tmp_path / "out")
    (tmp_path / "out" / part_name(OffsetAndEpoch(7, 1))).write_bytes(b"of an import that was killed")
    fill(monkeypatch)
    with pytest.raises(OSError, match="No space left on device"):
        import_log(log, out)
    assert names(tmp_path / "out") == set()


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk have room for names, and for nothing else."""

    def full(descriptor: int, data: bytes, position: int) -> int:
        if len(data) > 20:  # the lock's holder
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    monkeypatch.setattr(os, "pwrite", full)
