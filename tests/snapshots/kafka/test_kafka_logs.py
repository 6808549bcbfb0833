"""Logs that real Kafkas wrote: our reader sees what Kafka's own dump tool saw."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline.kafka.log_files import find_kafka_log, is_kafka
from snapshots.offline.kafka.messages import unknown_tags
from snapshots.offline.kafka.records import Record
from snapshots.offline.kafka.scan import read_log, read_snapshot, scan_file, scan_log
from snapshots.offline.kafka.tables import CONTROL, METADATA
from tests.snapshots.kafka.given import LOGS, as_far_as_printed, kafkas_dump, nodes, our_view, unpack
from tests.snapshots.kafka.given import METADATA as ROOM

NEVER_WRITTEN = {
    "FenceBrokerRecord",  # of metadata versions before 3.3, which no release since 3.7 formats
    "UnfenceBrokerRecord",
    "AbortTransactionRecord",  # of a controller that died between two batches of a transaction
}
"""Types that no log in `data/` has. `test_messages.py` reads them as Kafka's classes write them."""


@pytest.mark.parametrize("name", LOGS)
def test_every_file_reads_as_kafka_reads_it(name: str, tmp_path: Path) -> None:
    """Every batch header, and every field of every record, of segments and snapshots of all nodes."""
    for node in nodes(name):
        directory = unpack(name, node, tmp_path) / ROOM
        theirs = kafkas_dump(name, node)
        assert any(file.endswith(".log") for file in theirs) and any(file.endswith(".checkpoint") for file in theirs)
        assert sorted(theirs) == sorted(
            path.name for path in directory.iterdir() if path.suffix in (".log", ".checkpoint")
        )
        for file, seen in theirs.items():
            ours = as_far_as_printed(our_view(directory, file), seen)
            assert ours.batches == seen.batches
            assert ours.records == seen.records


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_across_its_segments(name: str, tmp_path: Path) -> None:
    """Offsets have no gap from the first segment to the last, and a range is cut at the offsets that the caller names."""
    log = find_kafka_log(LocalDirectory(unpack(name, nodes(name)[0], tmp_path)))
    assert log.node == nodes(name)[0].replace("-", " ")
    offsets = [placed.offset for placed in read_log(log)]
    assert offsets == list(range(log.start_offset, offsets[-1] + 1))
    since, until = offsets[len(offsets) // 3], offsets[len(offsets) // 2]
    assert [placed.offset for placed in read_log(log, since, until)] == list(range(since, until))


def test_together_the_logs_have_every_record(tmp_path: Path) -> None:
    """Each type in the table was written by a real Kafka, except those that no release since 3.7 can be made to write."""
    seen: Counter[str] = Counter()
    for name in LOGS:
        for node in nodes(name):
            log = find_kafka_log(LocalDirectory(unpack(name, node, tmp_path / name)))
            for placed in read_log(log):
                assert isinstance(placed.record, Record) and not unknown_tags(placed.record.fields)
                seen[placed.record.name] += 1
            for snapshot in log.snapshots:
                seen.update(placed.record.name for placed in read_snapshot(log.directory, snapshot.name))
    names = {message.name for message in (*METADATA.values(), *CONTROL.values())}
    assert names - set(seen) == NEVER_WRITTEN


@pytest.mark.parametrize("name", LOGS)
def test_an_epoch_begins_with_its_leader(name: str, tmp_path: Path) -> None:
    """Each log from offset 0 on has failovers: several epochs, each begun by a LeaderChange of a controller."""
    log = find_kafka_log(LocalDirectory(unpack(name, nodes(name)[0], tmp_path)))
    epochs = [placed.epoch for placed in read_log(log)]
    began = {p.epoch for p in read_log(log) if isinstance(p.record, Record) and p.record.name == "LeaderChangeMessage"}
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= (1 if log.start_offset else 2)
    assert set(epochs) - began <= {epochs[0]}


@pytest.mark.parametrize("name", LOGS)
def test_the_bootstrap_file_is_read_too(name: str, tmp_path: Path) -> None:
    """The file beside the log has the features that the format tool chose."""
    directory = unpack(name, nodes(name)[0], tmp_path)
    found = [scanned.batch for scanned in scan_file(LocalDirectory(directory), "bootstrap.checkpoint")]
    assert found and all(batch is not None for batch in found)


def test_a_directory_of_kafka_is_known_by_its_bytes(tmp_path: Path) -> None:
    directory = unpack("elr-4.1.1", "node-1", tmp_path)
    assert is_kafka(LocalDirectory(directory))
    assert is_kafka(LocalDirectory((directory / ROOM).rename(tmp_path / "copied")))
    assert not is_kafka(LocalDirectory(tmp_path))


def rolled(directory: Path, segment_bytes: int) -> list[int]:
    """Cut the one segment of a log into several at ends of batches, as Kafka rolls it. Return their base offsets."""
    whole = directory / f"{0:020}.log"
    data, bases = whole.read_bytes(), [0]
    files = {0: b""}
    for scanned in scan_file(LocalDirectory(directory), whole.name):
        assert scanned.batch is not None
        if len(files[bases[-1]]) >= segment_bytes:
            bases.append(scanned.batch.base_offset)
            files[bases[-1]] = b""
        files[bases[-1]] += data[scanned.position : scanned.position + scanned.length]
    for base, part in files.items():
        (directory / f"{base:020}.log").write_bytes(part)
    return bases


def test_a_log_of_many_segments_starts_above_0_at_a_snapshot(tmp_path: Path) -> None:
    """Kafka deletes the segments below its oldest snapshot. What is left is read from its start, or from the snapshot's end."""
    node = unpack("voters-3.9.1", "node-102", tmp_path)
    directory = node / ROOM
    before = list(read_log(find_kafka_log(LocalDirectory(node))))
    bases = rolled(directory, 2_000)
    log = find_kafka_log(LocalDirectory(node))
    assert len(bases) > 5 and [segment.base_offset for segment in log.segments] == bases
    assert list(read_log(log)) == before
    oldest = next(snapshot.end.offset for snapshot in log.snapshots if snapshot.end.offset > bases[2])
    for base, following in pairwise(bases):
        if following <= oldest:
            (directory / f"{base:020}.log").rename(directory / f"{base:020}.log.deleted")
    log = find_kafka_log(LocalDirectory(node))
    assert 0 < log.start_offset <= oldest
    assert list(read_log(log)) == before[log.start_offset :]
    assert list(read_log(log, oldest)) == before[oldest:]


def test_a_scan_needs_only_the_segments_of_its_range(tmp_path: Path) -> None:
    node = unpack("voters-3.9.1", "node-102", tmp_path)
    bases = rolled(node / ROOM, 2_000)
    log = find_kafka_log(LocalDirectory(node))
    files = {scanned.file for scanned in scan_log(log, bases[2], bases[3])}
    assert files == {f"{bases[2]:020}.log"}
    assert {scanned.file for scanned in scan_log(log, bases[3] - 1, bases[3] + 1)} == {
        f"{base:020}.log" for base in bases[2:4]
    }
