"""`python -m benchmarks.offline.year --out DIR`: the data directories of a cluster of 30 brokers after a year. No daemon runs.

`benchmarks.offline.cluster` makes the batches, and this file writes them with the log of the controllers: segments, chain, the
note `flushed`, `meta.properties`. A few snapshots stay at the newest marks, as the controllers keep them.

The partitions are in a small model (`Seat`), and all other entities are in a real image. So a record costs some microseconds,
and not a replay. A snapshot has the records of the image, with the partitions of the model in between. The test of this file
replays a small year with `metadata_log.image.replay`, strictly, and compares the snapshot. Example, one mark:
  1. the image has topic-00007 without partitions, and the model has its twelve partitions;
  2. the snapshot has the record of the topic, then the twelve partitions, then the next topic.

Equal seeds give equal bytes. The time in the log runs evenly over a year. The nodes have the same segments, as hard links: so
nothing may write to them.
"""

import argparse
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from benchmarks.offline.cluster import CONTROLLERS, Cluster
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.batch import Batch, encode
from metadata_log.format.codec import encode_valid
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import (
    FIRST_CONTROL_TYPE,
    TYPE_NUMBERS,
    Endpoint,
    MetadataRecord,
    Partition,
    PartitionChange,
    Record,
    SnapshotMark,
    Topic,
    Voter,
    Voters,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.store.log import Log
from snapshots.format import SnapshotMeta, genesis, snapshot_name
from snapshots.store import SnapshotStore
from snapshots.writer import write_records

CLUSTER_ID: Final = "yEarOfThirtyBrokers-0g"
VOTERS: Final = Voters(
    tuple(Voter(node, bytes([node]) * 16, (Endpoint("CONTROLLER", f"controller-{node}", 9093),)) for node in CONTROLLERS)
)  # fmt: skip
FIRST_MS: Final = 1_700_000_000_000
YEAR_MS: Final = 365 * 24 * 3_600_000
PARTITIONS_MAX: Final = 20_000
"""How many partitions a year of 10 million records has at its end: a rolling restart a week writes eight records for each."""
RECORDS_PER_PARTITION_MIN: Final = 50
"""How many records each partition of a small log has at least. The events of a small log are those of some weeks of a year."""
SHARES: Final = {"restart": 0.84, "fail": 0.05, "flap": 0.05, "reassign": 0.02, "administer": 0.04}
"""Which part of the records each kind of event writes."""
FAILOVERS: Final = 100
MARKS: Final = 26
"""How many failovers and how many snapshot marks a year has."""
SNAPSHOTS_KEPT: Final = 4
MANIFEST: Final = "year.json"
FORMAT: Final = 2
"""The version of the generator. A year of another version is made anew."""
WRITE_BATCHES: Final = 256

Progressing = Callable[[Offset], None]


class YearLog:
    """The log of the year, the image of everything but partitions, and the snapshots."""

    def __init__(self, path: Path, records: int) -> None:
        self._directory = RealDirectory(path).subdirectory("@metadata")
        SnapshotStore(self._directory).write_bootstrap(VOTERS)
        self._chain = genesis(CLUSTER_ID, VOTERS)
        self._log = Log.open(self._directory, chain=self._chain)
        self._records = records
        self._waiting: list[Batch] = []
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._kept: list[OffsetAndEpoch] = []
        self.end: Offset = 0
        self.epoch = 0
        self.wall_ms = FIRST_MS

    def append(self, records: Sequence[Record]) -> Offset:
        """Append one batch, and return its base offset."""
        base = self.end
        is_control = TYPE_NUMBERS[type(records[0])] >= FIRST_CONTROL_TYPE
        self.wall_ms = FIRST_MS + YEAR_MS * base // self._records
        batch = encode(
            b"".join(map(encode_valid, records)), base_offset=base, epoch=self.epoch, record_count=len(records),
            first_timestamp_ms=self.wall_ms, last_timestamp_ms=self.wall_ms, is_control=is_control,
            previous_chain=self._chain,
        )  # fmt: skip
        if not is_control:
            for offset, record in enumerate(records, base):
                if type(record) is not PartitionChange and type(record) is not Partition:
                    self._delta.replay(record, offset)  # type: ignore[arg-type]
        self._chain, self.end = batch.chain, batch.end_offset
        self._waiting.append(batch)
        if len(self._waiting) >= WRITE_BATCHES:
            self.write_out()
        return base

    def write_out(self) -> None:
        self._log.append_batches(self._waiting)
        self._waiting.clear()

    def mark(self, cluster: Cluster) -> OffsetAndEpoch:
        """Append a snapshot mark, and write the snapshot."""
        self.append([SnapshotMark("a year in the life of 30 brokers")])
        self.write_out()
        self._log.flush()
        image = self._delta.finish(Provenance(self.end, self.epoch, self.wall_ms))
        self._delta = MetadataDelta(image)
        end = OffsetAndEpoch(self.end, self.epoch)
        meta = SnapshotMeta(end, self.wall_ms, self._chain, VOTERS, 1)
        write_records(self._directory, meta, _with_partitions(image, cluster))
        self._log.note_snapshot(end)
        self._kept.append(end)
        if len(self._kept) > SNAPSHOTS_KEPT:
            self._directory.remove(snapshot_name(self._kept.pop(0)))
        return end

    def close(self) -> None:
        self._log.close()


def _with_partitions(image: MetadataImage, cluster: Cluster) -> Iterator[MetadataRecord]:
    for record in image.canonical_records():
        yield record
        if isinstance(record, Topic):
            for seat in cluster.seats.by_topic[record.topic_id]:
                yield seat.record


def partitions_of(records: int) -> int:
    """Return how many partitions the cluster of a log of `records` records has."""
    return min(PARTITIONS_MAX, records // RECORDS_PER_PARTITION_MIN)


def make_year(
    out: Path,
    records: int,
    nodes: int = 3,
    seed: int = 1,
    partitions: int | None = None,
    progress: Progressing = lambda _: None,
) -> list[Path]:
    """Write a year of about `records` records into `out`, or find it there; return the data directories of the nodes.

    `partitions`: about how many the cluster has at the end; None: `partitions_of`.

    A year that was begun and not finished, or has other numbers, is deleted first.

    Raises:
        FileExistsError: `out` has other files.
    """
    paths = [out / f"controller-{node}" for node in CONTROLLERS[:nodes]]
    count = partitions_of(records) if partitions is None else partitions
    manifest = {"format": FORMAT, "records": records, "nodes": nodes, "seed": seed, "partitions": count}
    if (out / MANIFEST).exists() and json.loads((out / MANIFEST).read_text()) == manifest:
        return paths
    _clear(out)
    _live(paths[0], records, seed, count, progress)
    for place, path in enumerate(paths):
        if place > 0:
            _copy(paths[0], path, SNAPSHOTS_KEPT - place)
        identity = Identity(CLUSTER_ID, CONTROLLERS[place], VOTERS.voters[place].directory_id, 1, "controller")
        write_identity(RealDirectory(path), identity._replace(genesis_chain=genesis(CLUSTER_ID, VOTERS)))
    (out / MANIFEST).write_text(json.dumps(manifest))
    return paths


def _clear(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    ours = {MANIFEST, *(f"controller-{node}" for node in CONTROLLERS)}
    strange = sorted(path.name for path in out.iterdir() if path.name not in ours)
    if strange:
        raise FileExistsError(f"{out} has other files ({strange[0]}). Nothing was written; name an empty directory")
    (out / MANIFEST).unlink(missing_ok=True)
    for node in CONTROLLERS:
        shutil.rmtree(out / f"controller-{node}", ignore_errors=True)


def _live(path: Path, records: int, seed: int, partitions: int, progress: Progressing) -> None:
    dice = random.Random(seed)
    log = YearLog(path, records)
    cluster = Cluster(dice, log.append, partitions)
    events: dict[str, Callable[[], None]] = {
        "restart": cluster.restart_next,
        "fail": cluster.fail,
        "flap": cluster.flap,
        "reassign": cluster.reassign,
        "administer": lambda: cluster.administer(log.end / records),
    }
    written = dict.fromkeys(events, 0)
    failovers = marks = 0
    while log.end < records:
        if log.end * FAILOVERS >= failovers * records:
            log.epoch += dice.randint(1, 3)
            cluster.elect()
            failovers += 1
        if log.end <= 1:
            cluster.begin()
            begun = log.end
        if log.end * MARKS >= (marks + 1) * records:
            log.mark(cluster)
            marks += 1
        # The kind that has written the smallest part of its share comes next.
        behind = {kind: SHARES[kind] * (log.end - begun) - written[kind] for kind in events}
        kind = max(behind, key=lambda each: behind[each] + dice.random())
        before = log.end
        events[kind]()
        written[kind] += log.end - before
        progress(log.end)
    log.mark(cluster)
    log.close()


def _copy(source: Path, target: Path, snapshots: int) -> None:
    """Make the directory of another node: the same segments as links, and the newest `snapshots` snapshots."""
    (target / "@metadata").mkdir(parents=True)
    names = sorted(path.name for path in (source / "@metadata").iterdir() if path.is_file())
    dropped = [name for name in names if name.endswith(".checkpoint") and not name.startswith("0" * 20)][:-snapshots]
    for name in names:
        here, there = source / "@metadata" / name, target / "@metadata" / name
        if name.endswith((".log", ".checkpoint")) and name not in dropped:
            os.link(here, there)
        elif name not in dropped:
            shutil.copy2(here, there)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline.year", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="about how many records the year has")
    parser.add_argument("--out", type=Path, required=True, help="where the data directories of the nodes go")
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 2, 3), help="how many controllers")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        paths = make_with_bar(arguments.out, arguments.records, arguments.nodes, arguments.seed)
    except FileExistsError as e:
        print(e, file=sys.stderr)
        return 1
    for path in paths:
        print(path)
    return 0


def make_with_bar(out: Path, records: int, nodes: int = 3, seed: int = 1, partitions: int | None = None) -> list[Path]:
    """Make the year, with a progress bar on standard error."""
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"a year of {records:,} records", total=records)
        paths = make_year(out, records, nodes, seed, partitions, lambda end: bar.update(task, completed=end))
        bar.update(task, completed=records)
    return paths


if __name__ == "__main__":
    sys.exit(main())
