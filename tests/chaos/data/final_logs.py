"""The logs of replicas as stopped brokers have left them, read from copies by the library."""

import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from broker_agent.replica.log_directory import LogDirectory
from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import decode_data
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Uuid
from quorum.devcluster.layout import DevNode

READ_BYTES = 1 << 20


class ReplicaLog(NamedTuple):
    """One replica's log, whole."""

    broker: str
    start: int
    batches: tuple[Batch, ...]

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start

    @property
    def chain(self) -> bytes:
        """Two logs with the same chain have the same bytes."""
        return self.batches[-1].chain if self.batches else b""


def read_replicas(
    nodes: Iterable[DevNode], topic_id: Uuid, scratch: Path
) -> tuple[dict[int, list[ReplicaLog]], list[str]]:
    """By partition, the logs of all replicas; and what could not be read."""
    found: dict[int, list[ReplicaLog]] = {}
    problems: list[str] = []
    for node in nodes:
        copy = scratch / node.name
        shutil.copytree(node.log_directory, copy)
        directory = LogDirectory(RealDirectory(copy))
        for place in directory.places():
            if place.topic_id != topic_id:
                continue
            try:
                log = directory.open(place, wall_ms=time.time_ns() // 1_000_000)
            except LogFormatError as e:
                problems.append(f"{node.name}, partition {place.partition}: {e}")
                continue
            start, end = log.shape.start.offset, log.shape.end
            batches: list[Batch] = []
            while (offset := batches[-1].end_offset if batches else start) < end:
                batches += log.read(offset, READ_BYTES, end)
            log.close()
            found.setdefault(place.partition, []).append(ReplicaLog(node.name, start, tuple(batches)))
        shutil.rmtree(copy)
    return found, problems


def values_of(log: ReplicaLog) -> list[str]:
    """The values of all records."""
    return [(record.value or b"").decode() for batch in log.batches for record in decode_data(batch)]


def unequal(replicas: Mapping[int, list[ReplicaLog]], copies: int) -> list[str]:
    """The partitions whose logs are not `copies` logs with the same bytes."""
    found = []
    for partition, logs in sorted(replicas.items()):
        if len({(log.end, log.chain) for log in logs}) > 1 or len(logs) != copies:
            ends = ", ".join(f"{log.broker} [{log.start}, {log.end}) {log.chain.hex()[:8]}" for log in logs)
            found.append(f"the logs of partition {partition} are not {copies} equal ones: {ends}")
    return found
