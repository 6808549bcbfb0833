"""Data directories as controllers write them: logs with elections, marks and transactions, and snapshots at the
marks.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgpack

from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.batch import Batch, decode, encode
from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    Endpoint,
    EndTransaction,
    LeaderChange,
    MetadataRecord,
    Record,
    RegisterBroker,
    SnapshotMark,
    Topic,
    Voter,
    Voters,
)
from metadata_log.image.delta import REPLAYS, MetadataDelta
from metadata_log.image.metadata_image import Provenance, evolved
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from snapshots.format import SnapshotMeta, genesis
from snapshots.store import SnapshotStore
from tests.metadata_log.image.histories import History
from tests.snapshots.serving import serving

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NODES = (1, 2, 3)
VOTERS = Voters(tuple(Voter(i, bytes([i]) * 16, (Endpoint("CONTROLLER", "127.0.0.1", 9090 + i),)) for i in NODES))
LOG_CONFIG = LogConfig(segment_bytes=16 << 10, tail_bytes=4 << 10)


class Node(History):
    """A single leader with its log, which writes a random history and its snapshots. Batches have up to 30 records."""

    def __init__(
        self,
        path: Path,
        seed: int,
        *,
        config: LogConfig = LOG_CONFIG,
        start: bytes | None = None,
        directory: Directory | None = None,
    ) -> None:
        """`directory`: another one than the real one at `path`."""
        super().__init__(seed)
        self.path = path
        directory = directory or RealDirectory(path)
        write_identity(directory, Identity(CLUSTER_ID, 1, b"\x01" * 16, 1, "controller"))
        self.metadata = directory.subdirectory("@metadata")
        self.store = SnapshotStore(self.metadata)
        self.store.write_bootstrap(VOTERS)
        self.journal = Log.open(self.metadata, chain=start or genesis(CLUSTER_ID, VOTERS), config=config)
        self.epoch = 0
        self.wall_ms = 1_700_000_000_000
        self.waiting: list[MetadataRecord] = []
        self.marks: list[OffsetAndEpoch] = []
        self.voters = VOTERS

    def take(self, record: MetadataRecord) -> None:
        for each in serving(self.image, record):
            self.append(each)
        if isinstance(record, RegisterBroker) and self.dice.random() < 0.8:
            epoch = self.image.brokers[record.broker_id].broker_epoch
            self.append(BrokerRegistrationChange(record.broker_id, epoch, fenced=False))

    def append(self, record: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        offset = self.journal.shape.end + len(self.waiting)
        delta.replay(record, offset)
        self.waiting.append(record)
        self.image = delta.finish(Provenance(offset + 1, self.epoch, self.wall_ms))
        if len(self.waiting) >= self.dice.randint(1, 30):
            self.write_out()

    def write_out(self) -> None:
        """Append the waiting records as one batch."""
        if self.waiting:
            records, self.waiting = self.waiting, []
            self.log_records(*records)

    def log_records(self, *records: Record) -> None:
        self.wall_ms += self.dice.randint(0, 60_000)
        self.journal.append(records, self.epoch, self.wall_ms)
        provenance = Provenance(self.journal.shape.end, self.epoch, self.journal.last_timestamp_ms)
        self.image = evolved(self.image, {"provenance": provenance})

    def log_unknown_record(self) -> Offset:
        """Append a durable record of a type that only a later release knows; return its offset."""
        return self.log_raw([50, 0, b"x", None, ["name"]])

    def log_raw(self, fields: list[object]) -> Offset:
        """Append a durable batch with one record of any content; return its offset."""
        return self.log_packed(msgpack.packb(fields))

    def log_packed(self, record: bytes) -> Offset:
        """Append a durable batch with one record of any bytes; return its offset."""
        self.write_out()
        shape = self.journal.shape
        batch = encode(
            record,
            base_offset=shape.end,
            epoch=self.epoch,
            record_count=1,
            first_timestamp_ms=self.wall_ms,
            last_timestamp_ms=self.wall_ms,
            is_control=False,
            previous_chain=shape.chain,
        )
        self.journal.append_batches([batch])
        self.journal.flush()
        return shape.end

    def log_of_all(self) -> list[MetadataRecord]:
        """Return all records of the log that may be in an image."""
        records = (each for batch in self.journal.read(0, 1 << 30) for each in decode_batch(batch))
        return [cast(MetadataRecord, each) for each in records if type(each) in REPLAYS]

    def elect(self, leader_id: int) -> None:
        self.write_out()
        self.epoch += self.dice.randint(1, 3)
        self.log_records(LeaderChange(leader_id, NODES, NODES[:2]))

    def transaction(self, *, commit: bool) -> None:
        """Create a topic in a metadata transaction over two batches."""
        self.write_out()
        image = self.image
        self.log_records(BeginTransaction("t"))
        topic = Topic(f"in-transaction-{self.journal.shape.end}", self.fresh_id())
        records: list[MetadataRecord] = [topic, *serving(self.image, self.partition(topic.topic_id, 0))]
        base = self.journal.shape.end
        self.log_records(*records)
        self.log_records(EndTransaction() if commit else AbortTransaction("changed my mind"))
        provenance = self.image.provenance
        if commit:
            delta = MetadataDelta(image)
            for offset, record in enumerate(records, base):
                delta.replay(record, offset)
            image = delta.finish(provenance)
        self.image = evolved(image, {"provenance": provenance})

    def mark(self) -> OffsetAndEpoch:
        """Append a mark, and write the snapshot at the mark, as the controllers do."""
        self.write_out()
        self.log_records(SnapshotMark("test"))
        self.journal.flush()
        end = self.journal.shape.end_and_epoch
        meta = SnapshotMeta(end, self.image.provenance.timestamp_ms, self.journal.shape.chain, self.voters, 1)
        self.store.write(meta, self.image)
        self.journal.note_snapshot(end)
        self.marks.append(end)
        return end

    def live(self, steps: int = 40) -> "Node":
        """Run elections, changes, transactions and marks. The log ends flushed and open."""
        self.elect(1)
        self.run(steps)
        self.transaction(commit=True)
        self.elect(2)
        self.transaction(commit=False)
        self.mark()
        self.work(steps)
        self.elect(1)
        self.mark()
        self.work(steps // 2)
        self.write_out()
        self.journal.flush()
        return self


def copies(node: Node, root: Path, ids: tuple[int, ...] = NODES) -> list[Path]:
    """Make the directories of a whole quorum, all with the history of `node`."""
    paths = []
    for node_id in ids:
        path = root / f"c{node_id}"
        shutil.copytree(node.path, path)
        write_identity(RealDirectory(path), Identity(CLUSTER_ID, node_id, bytes([node_id]) * 16, 1, "controller"))
        paths.append(path)
    return paths


def segments(path: Path) -> list[Path]:
    return sorted((path / "@metadata").glob("*.log"))


def batches_of(segment: Path) -> list[tuple[int, Batch]]:
    """Return the batches of a segment, each with its position."""
    data, position, found = segment.read_bytes(), SEGMENT_HEADER_BYTES, []
    while position < len(data) and data[position]:
        batch = decode(data, position)
        found.append((position, batch))
        position += len(batch.data)
    return found


def edit(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(bytes(data))


def flip(path: Path, position: int, bit: int = 0) -> None:
    def change(data: bytearray) -> None:
        data[position] ^= 1 << bit

    edit(path, change)


def seeds(count: int, seed: int = 1) -> Iterator[int]:
    dice = random.Random(seed)
    return (dice.randrange(1 << 30) for _ in range(count))
