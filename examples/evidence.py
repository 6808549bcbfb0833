"""The evidence for the steps of the demo: the active controller's metadata, and the bytes on the disks.

The demo reads the disks of running daemons with the read-only code of the offline jobs, up to the noted durable end.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from narrator import DoesNotHold
from quorum_rpc.v1 import admin_pb2, broker_pb2

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import BrokerRegistrationChange, PartitionChange
from metaquorum import AdminClient, AdminError
from quorum.devcluster.layout import DevNode
from snapshots.offline.inputs import find_log
from snapshots.offline.scan import FileRange, scan

T = TypeVar("T")
POLL_S = 0.02
NAMES_PER_REQUEST = 10_000

ONLINE = broker_pb2.BrokerState.Value("ONLINE")
STATE_NAMES = {number: name.lower() for name, number in broker_pb2.BrokerState.items()}


class Partition(NamedTuple):
    """One partition as the active controller describes it."""

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Metadata(NamedTuple):
    """All partitions, as of one offset."""

    partitions: dict[tuple[str, int], Partition]
    topic_ids: dict[str, bytes]
    as_of: Offset

    def led_by(self, broker_id: int) -> int:
        return sum(each.leader == broker_id for each in self.partitions.values())

    def in_sync_on(self, broker_id: int) -> int:
        return sum(broker_id in each.isr for each in self.partitions.values())

    def short(self) -> int:
        """How many partitions have a replica that is not in sync."""
        return sum(set(each.isr) != set(each.replicas) for each in self.partitions.values())

    def leaders(self) -> set[int | None]:
        return {each.leader for each in self.partitions.values()}


async def until(
    expected: str, probe: Callable[[], Awaitable[T | None]], within_s: float, seen: Callable[[], object]
) -> T:
    """Calls `probe` until the result is not None, and returns the result. An AdminError (no leader yet) counts as None.

    Raises:
        DoesNotHold: every result within `within_s` was None. The error shows `seen`.
    """
    deadline_s = time.monotonic() + within_s
    trouble: AdminError | None = None
    while time.monotonic() < deadline_s:
        try:
            trouble, found = None, await probe()
        except AdminError as e:
            trouble, found = e, None
        if found is not None:
            return found
        await asyncio.sleep(POLL_S)
    shown = f"{seen()}" + (f" ({trouble})" if trouble is not None else "")
    raise DoesNotHold(f"{expected} within {within_s:g} s", shown)


async def metadata(client: AdminClient) -> Metadata:
    """Every partition of every topic."""
    names = [topic.name async for topic in client.topics()]
    partitions: dict[tuple[str, int], Partition] = {}
    topic_ids: dict[str, bytes] = {}
    as_of = 0
    for at in range(0, len(names), NAMES_PER_REQUEST):
        request = admin_pb2.DescribeTopicsRequest(names=names[at : at + NAMES_PER_REQUEST])
        async for page in client.pages(request, admin_pb2.DescribeTopicsResponse):
            as_of = page.as_of_offset
            for topic in page.topics:
                topic_ids[topic.name] = topic.topic_id
                partitions.update(((topic.name, each.partition), _partition(each)) for each in topic.partitions)
    return Metadata(partitions, topic_ids, as_of)


def _partition(described: admin_pb2.PartitionDescription) -> Partition:
    leader = described.leader_id if described.HasField("leader_id") else None
    return Partition(leader, described.leader_epoch, tuple(described.replicas), tuple(described.isr))


async def broker_states(client: AdminClient) -> dict[int, str]:
    """Broker id -> online, fenced, ... as the active controller sees it."""
    return {each.broker_id: STATE_NAMES.get(each.state, str(each.state)) async for each in client.brokers()}


def said(node: DevNode) -> list[dict[str, Any]]:
    """The log lines of the daemon and of its earlier processes, oldest first."""
    if not node.log_path.exists():
        return []
    lines = node.log_path.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


# --- the disks -----------------------------------------------------------------------------------------------------


def batches(data_directory: Path) -> Iterator[Batch]:
    """The durable batches of the log on the disk, oldest first."""
    log = find_log(str(data_directory))
    for segment in log.segments:
        file = log.directory.open(segment.name)
        try:
            for scanned in scan(file, FileRange(segment.name, 0, segment.size, None, None), log.durable_end):
                if scanned.batch is None:
                    raise DoesNotHold("an intact log", f"{data_directory}/{segment.name}: {scanned.error}")
                yield scanned.batch
        finally:
            file.close()


def records(data_directory: Path, begin: Offset = 0) -> Iterator[tuple[Offset, Any]]:
    """Offset and record, from `begin` on."""
    for batch in batches(data_directory):
        if batch.end_offset > begin:
            for index, record in enumerate(decode_batch(batch)):
                if batch.base_offset + index >= begin:
                    yield batch.base_offset + index, record


def chain_at(data_directory: Path, end: Offset) -> bytes | None:
    """The hash chain over everything below `end`; None if no batch ends at `end`."""
    return next((batch.chain for batch in batches(data_directory) if batch.end_offset == end), None)


class Departure(NamedTuple):
    """The traces of a broker's controlled shutdown, as offsets in the log."""

    led_elsewhere: tuple[Offset, ...]
    """Partitions that got another leader."""
    others: tuple[Offset, ...]
    """Partitions that only lost an in-sync replica."""
    offline_at: Offset | None


def departure(data_directory: Path, broker_id: int, begin: Offset) -> Departure:
    """The records after `begin` that moved the leaders of `broker_id` and fenced the broker."""
    led_elsewhere: list[Offset] = []
    others: list[Offset] = []
    for offset, record in records(data_directory, begin):
        if isinstance(record, PartitionChange) and record.leader is not None:
            led_elsewhere.append(offset)
        elif isinstance(record, PartitionChange) and record.isr is not None and broker_id not in record.isr:
            others.append(offset)
        elif isinstance(record, BrokerRegistrationChange) and record.broker_id == broker_id and record.fenced:
            return Departure(tuple(led_elsewhere), tuple(others), offset)
    return Departure(tuple(led_elsewhere), tuple(others), None)


def sha256(path: Path) -> str:
    """The hash of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Damage(NamedTuple):
    """A damaged byte, and the place that the audit should name."""

    file: str
    position: int
    batch_position: int
    offset: Offset


def flip_one_byte(data_directory: Path) -> Damage:
    """Flips a bit in the middle of the largest batch of the oldest segment."""
    log = find_log(str(data_directory))
    segment = log.segments[0]
    file = log.directory.open(segment.name)
    try:
        stretch = FileRange(segment.name, 0, segment.size, None, None)
        largest = max(scan(file, stretch, log.durable_end), key=lambda scanned: scanned.length)
    finally:
        file.close()
    assert largest.batch is not None
    position = largest.position + largest.length // 2
    with (data_directory / "@metadata" / segment.name).open("r+b") as writable:
        writable.seek(position)
        (byte,) = writable.read(1)
        writable.seek(position)
        writable.write(bytes([byte ^ 1]))
    return Damage(segment.name, position, largest.position, largest.batch.base_offset)
