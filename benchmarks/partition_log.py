"""Measures the log of a replica on a real disk: appends of a leader and of a follower, reads, openings, and creations.

    python -m benchmarks.partition_log [--directory DIRECTORY] [--mebibytes 64]

One process, one log at a time, except for the creations: a broker opens many logs at once, and most of that time is spent waiting
for the disk. The producer is idempotent, and every 8 MiB are flushed.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace
from broker_agent.replica.partition_log import PartitionLog
from metadata_log.disk.files import RealDirectory
from metadata_log.format.data_batch import DataRecord, ProducerStamp, pack_records

NOW_MS: Final = 1_700_000_000_000
TOPIC_ID: Final = bytes(range(16))
FLUSH_BYTES: Final = 8 << 20
READ_BYTES: Final = 1 << 20
LOGS: Final = 100
"""How many logs are created and opened for each number of threads."""


@contextmanager
def timed(what: str, mebibytes: float = 0.0, count: int = 1) -> Iterator[None]:
    """Print the time of one of `count` pieces of work, and the rate of all."""
    begin = time.perf_counter()
    yield
    took = time.perf_counter() - begin
    rate = f", {mebibytes / took:,.0f} MiB/s" if mebibytes else ""
    print(f"{what}: {1_000 * took / count:.3f} ms{rate}")


def append(log: PartitionLog, records: int, size: int, mebibytes: int) -> None:
    packed = pack_records([DataRecord(NOW_MS, b"key", bytes(size)) for _ in range(records)])
    batches = max(1, min(20_000, (mebibytes << 20) // len(packed.packed)))
    sequence, unflushed = 0, 0
    producer_id = records * 1_000_000 + size
    written = batches * len(packed.packed) / (1 << 20)
    with timed(f"append a batch of {records} records of {size} bytes", written, batches):
        for _ in range(batches):
            log.append(packed, ProducerStamp(producer_id, 0, sequence), 1, NOW_MS)
            sequence += records
            unflushed += len(packed.packed)
            if unflushed > FLUSH_BYTES:
                log.flush()
                unflushed = 0
        log.flush()


def measure(root: Path, mebibytes: int) -> None:
    logs = LogDirectory(RealDirectory(root))
    place_of_log = ReplicaPlace(TOPIC_ID, 0)
    leader = logs.open(place_of_log, wall_ms=NOW_MS)
    follower = LogDirectory(RealDirectory(root / "follower")).open(place_of_log, wall_ms=NOW_MS)
    for records, size in ((1, 100), (100, 100), (100, 1_000), (1_000, 1_000)):
        append(leader, records, size, mebibytes)
    whole = leader.size_bytes / (1 << 20)
    place = 0
    with timed("read everything", whole):
        while batches := leader.read(place, READ_BYTES, leader.shape.end):
            place = batches[-1].end_offset
    with timed("append everything as a follower", whole):
        while batches := leader.read(follower.shape.end, READ_BYTES, leader.shape.end):
            follower.append_fetched(batches, NOW_MS)
        follower.flush()
    last = leader.read(leader.shape.end - 1, 1, leader.shape.end)[0]
    with timed("truncate the last batch"):
        leader.truncate(last.base_offset, NOW_MS)
    leader.close()
    with timed("open the log", whole):
        logs.open(place_of_log, wall_ms=NOW_MS).close()
    for threads in (1, 8):
        many = LogDirectory(RealDirectory(root / f"threads-{threads}"))
        places = [ReplicaPlace(TOPIC_ID, i) for i in range(LOGS)]
        for what in ("create", "open"):
            with ThreadPoolExecutor(threads) as pool, timed(f"{what} an empty log, {threads} at once", count=LOGS):
                opened = list(pool.map(lambda each: many.open(each, wall_ms=NOW_MS), places))  # noqa: B023 - used at once
            for log in opened:
                log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where to write (a temporary directory)")
    parser.add_argument("--mebibytes", type=int, default=64, help="how much to append at most of each kind (64)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as root:
        measure(Path(root), options.mebibytes)


if __name__ == "__main__":
    main()
