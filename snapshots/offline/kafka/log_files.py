"""The files of one node's metadata log, as a KRaft node of Apache Kafka keeps them.

    LOG_DIR/meta.properties                                                  the node's id
    LOG_DIR/__cluster_metadata-0/00000000000000000225.log                    a segment: the batches from offset 225 on
    LOG_DIR/__cluster_metadata-0/00000000000000000225-0000000004.checkpoint  a snapshot: the state below offset 225, epoch 4

Indexes, notes, and files that Kafka is about to delete (`.deleted`) or has not completed (`.part`) are no part of the log. No
function here writes. Example:
  1. The directory has segments 0 and 225, and the snapshots 225-4 and 274-6.
  2. `find_kafka_log` returns both segments and both snapshots in order, whether it was given LOG_DIR or the directory in it.
  3. Kafka deletes segment 0. The log starts at 225 now, and snapshot 225-4 has the state below.
"""

import re
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from snapshots.offline.kafka.batches import HEADER_BYTES, batch_length
from snapshots.offline.kafka.errors import KafkaFormatError

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
_SEGMENT: Final = re.compile(r"([0-9]{20})\.log")
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_PROPERTIES: Final = "meta.properties"
_PROPERTIES_BYTES_MAX: Final = 64 << 10
_NODE_ID: Final = re.compile(r"^node\.id=(\d{1,10})\s*$", re.MULTILINE)
_CLUSTER_ID: Final = re.compile(r"^cluster\.id=(\S{1,255})\s*$", re.MULTILINE)


class SegmentFile(NamedTuple):
    """One file of the log."""

    name: str
    base_offset: Offset
    size: int


class SnapshotFile(NamedTuple):
    """One complete snapshot; `end` is the end of the log that it stands for."""

    name: str
    end: OffsetAndEpoch
    size: int


class NoKafkaLogHere(LogFormatError):
    """The directory has no metadata log of Apache Kafka."""


class KafkaLog(NamedTuple):
    """One node's metadata log: what lay in its directory when the reader looked."""

    node: str
    """The node's name in findings: `node 1` if `meta.properties` was found, else the path of the directory."""
    directory: Directory
    segments: tuple[SegmentFile, ...]
    """In the order of their offsets."""
    snapshots: tuple[SnapshotFile, ...]
    """In the order of their ends."""
    node_id: int | None = None
    cluster_id: str | None = None
    """Both as `meta.properties` says."""

    @property
    def start_offset(self) -> Offset:
        """The offset of the first record that the segments still have."""
        return self.segments[0].base_offset if self.segments else 0

    def segments_needed(self, since: Offset, until: Offset | None) -> list[SegmentFile]:
        """Return the segments that may have a part of [since, until); all from `since` on if `until` is None."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), None]
        return [
            segment
            for segment, end in zip(self.segments, ends, strict=False)  # a directory may have snapshots only
            if (end is None or end > since) and (until is None or segment.base_offset < until)
        ]


def find_kafka_log(given: Directory) -> KafkaLog:
    """Find the log in a log directory of a node, or in its `__cluster_metadata-0`.

    Raises:
        NoKafkaLogHere: the directory has no metadata log.
    """
    inside = given.exists(METADATA_DIRECTORY)
    metadata = given.subdirectory(METADATA_DIRECTORY) if inside else given
    segments, snapshots = [], []
    for name in metadata.names():
        if match := _SEGMENT.fullmatch(name):
            segments.append(SegmentFile(name, int(match[1]), _size(metadata, name)))
        elif end := snapshot_end(name):
            snapshots.append(SnapshotFile(name, end, _size(metadata, name)))
    if not segments and not snapshots:
        raise NoKafkaLogHere(
            f"{given.path_text}: neither a log directory of Kafka (with {METADATA_DIRECTORY}/ in it) nor a directory of "
            "log segments"
        )
    properties = _properties(given) if inside else ""
    node_id, cluster_id = _NODE_ID.search(properties), _CLUSTER_ID.search(properties)
    return KafkaLog(
        metadata.path_text if node_id is None else f"node {node_id[1]}",
        metadata,
        tuple(sorted(segments, key=lambda segment: segment.base_offset)),
        tuple(sorted(snapshots, key=lambda snapshot: snapshot.end)),
        None if node_id is None else int(node_id[1]),
        None if cluster_id is None else cluster_id[1],
    )


def segment_base(name: str) -> Offset | None:
    """Return the base offset of a segment; None if the name is not a segment's."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else None


def snapshot_end(name: str) -> OffsetAndEpoch | None:
    """Return the end of the log that a snapshot stands for; None if the name is not a snapshot's."""
    match = _SNAPSHOT.fullmatch(name)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


def is_kafka(given: Directory) -> bool:
    """Return True if a directory has a metadata log of Kafka: by its name, or by the first batch of any file."""
    if given.exists(METADATA_DIRECTORY) or given.path_text.rstrip("/").endswith(f"/{METADATA_DIRECTORY}"):
        return True
    names = [name for name in given.names() if segment_base(name) is not None or snapshot_end(name) is not None]
    return any(is_kafka_file(given, name) for name in names)


def is_kafka_file(directory: Directory, name: str) -> bool:
    """Return True if a file begins with a batch of Kafka at the offset that the file's name says; a snapshot begins at 0."""
    file = directory.open(name)
    try:
        head = file.read_at(0, HEADER_BYTES)
        batch_length(head, 0)
    except KafkaFormatError:
        return False
    finally:
        file.close()
    return int.from_bytes(head[:8], "big") == (segment_base(name) or 0)


def _size(directory: Directory, name: str) -> int:
    file = directory.open(name)
    try:
        return file.size()
    finally:
        file.close()


def _properties(log_directory: Directory) -> str:
    """Return the text of `meta.properties`; empty if there is no such file."""
    if not log_directory.exists(_PROPERTIES):
        return ""
    return log_directory.read(_PROPERTIES, _PROPERTIES_BYTES_MAX).decode(errors="replace")
