"""The files of a node's directory: segments, snapshots, the durable end, and the owner.

A directory may be a data directory (`meta.properties` and `@metadata/`), or an `@metadata` directory alone. It may
belong to a running node, so the order of reading matters. Example:
  1. `flushed` says 60, and the job reads this note first;
  2. the node appends and flushes 60..79, and truncates nothing below 60;
  3. the job lists and reads the segments. It ignores everything from 60 on, which may be half written or replaced.
If the job read the note last, it would trust records that it had read before they were complete.
"""

import json
from collections.abc import Iterable
from itertools import chain, count
from typing import Final, NamedTuple

from metadata_log.disk.identity import IDENTITY_NAME, Identity, read_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.store.log_notes import Flushed, LogStart, read_flushed, read_start
from metadata_log.store.segment import base_offset_of
from snapshots.format import BOOTSTRAP_END, parse_name
from snapshots.offline.readonly import ReadOnlyDirectory, location_of

METADATA_DIRECTORY: Final = "@metadata"
_OF_KAFKA: Final = "__cluster_metadata-0"
"""The directory of Kafka's metadata log. The jobs that read it look for it before they come here."""
SPLIT_BYTES_MIN: Final = 4 << 20
SPLIT_BYTES_MAX: Final = 64 << 20
"""The bounds of the default. A segment of the default size is one part, so the planning has not to read its headers."""
NAMES_LOOKED_INTO: Final = 100
"""So many names in a directory without a log are looked into, for a data directory that the error can name."""
SPLITS: Final = 8
"""How many tasks a small log has at least."""


class SegmentFile(NamedTuple):
    """One file of the log."""

    name: str
    base_offset: Offset
    size: int


class NodeLog(NamedTuple):
    """One node's log directory."""

    node: str
    """The node's name in findings: role and id if `meta.properties` has them, else the directory's name."""
    path: str
    """The `@metadata` directory."""
    identity: Identity | None
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[OffsetAndEpoch, ...]
    """Snapshots by offset and epoch, without the bootstrap one."""
    has_bootstrap: bool
    flushed: Flushed | None
    start: LogStart | None
    since: Offset = 0
    """The end of the snapshot on which the job stands; 0 if the job reads the log from its start."""

    @property
    def start_offset(self) -> Offset:
        """The start of the log: as in `log-start`, or else the start of the first segment. A job that stands on a snapshot reads
        the log as if the log started there.
        """
        if self.since:
            return self.since
        if self.start is not None:
            return self.start.start.offset
        return self.segments[0].base_offset if self.segments else 0

    def segments_needed(self, since: Offset, until: Offset | None) -> list[SegmentFile]:
        """Return the segments that may have a part of [since, until); all from `since` on if `until` is None."""
        needed = []
        for index, segment in enumerate(self.segments):
            is_before = index + 1 < len(self.segments) and self.segments[index + 1].base_offset <= since
            is_beyond = until is not None and segment.base_offset >= until and segment.base_offset > 0
            if not is_before and not is_beyond:
                needed.append(segment)
        return needed

    def standing_on(self, end: Offset) -> "NodeLog":
        """Return the log for a job that stands on the snapshot at `end`. The job reads from the segment with the record before
        `end` on, because the chain at `end` is there.
        """
        return self._replace(segments=tuple(self.segments_needed(end - 1, None)), since=end)

    @property
    def durable_end(self) -> Offset | None:
        """The end of the records that were durable once; None if the note is missing."""
        return None if self.flushed is None else self.flushed.end

    @property
    def directory(self) -> ReadOnlyDirectory:
        return ReadOnlyDirectory(self.path)


class NoLogHere(LogFormatError):
    """The directory has no metadata log."""


def find_log(path: str) -> NodeLog:
    """Find the log in `path`, a data directory or an `@metadata` directory.

    Raises:
        NoLogHere: the directory has no log.
        LogFormatError: `meta.properties` or `log-start` is damaged.
    """
    given = ReadOnlyDirectory(path)
    try:
        names = given.names()
    except NotADirectoryError:
        raise NoLogHere(
            f"{path} is a file; name the data directory of a node, with {METADATA_DIRECTORY}/ in it"
        ) from None
    if METADATA_DIRECTORY in names:
        return _read(given.subdirectory(METADATA_DIRECTORY), given)
    if given.path_text.endswith("/" + METADATA_DIRECTORY):
        return _read(given, ReadOnlyDirectory(given.path_text.removesuffix("/" + METADATA_DIRECTORY)))
    if any(base_offset_of(name) is not None or parse_name(name) is not None for name in names):
        return _read(given, given)
    raise NoLogHere(_why_no_log(path, given, names))


def find_logs(paths: Iterable[str]) -> tuple[NodeLog, ...]:
    """Find the logs in `paths`, and give each one a unique node name."""
    logs = [find_log(path) for path in paths]
    return tuple(log._replace(node=name) for log, name in zip(logs, distinct(log.node for log in logs), strict=True))


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names; a name that was there before gets a number: `controller 1 (2)`."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        found.append(next(each for each in chain([name], numbered) if each not in found))
    return found


def lies_in(path: str, log: NodeLog) -> bool:
    """Return True if a result at `path`, a local path or a URL, would lie in the directory of a node, where no job may write."""
    data = location_of(log.path).removesuffix(f"/{METADATA_DIRECTORY}")
    return f"{location_of(path)}/".startswith(f"{data}/")


def split_bytes_of(logs: Iterable[NodeLog], given: int) -> int:
    """Return about how many bytes one task reads: `given`, or an eighth of the logs if it is 0."""
    size = sum(segment.size for log in logs for segment in log.segments)
    return given or min(SPLIT_BYTES_MAX, max(SPLIT_BYTES_MIN, size // SPLITS))


def records_in(paths: Iterable[str]) -> int:
    """Return how many records the logs in `paths` have, as far as their notes tell: for people who wait."""
    return sum(max(0, (log.durable_end or 0) - log.start_offset) for log in map(find_log, paths))


def standing_text(logs: Iterable[NodeLog]) -> str:
    """Return the option `standing` of the tables (see `datasource`)."""
    return json.dumps({log.path: log.since for log in logs if log.since})


def _why_no_log(path: str, given: ReadOnlyDirectory, names: list[str]) -> str:
    """Say why `path` has no log. A person often names the directory above, for example that of `quorumctl dev up`."""
    if not names:
        return (
            f"{path} does not exist, or is empty; name the data directory of a node, with {METADATA_DIRECTORY}/ in it"
        )
    reason = f"{path}: neither a data directory (with {METADATA_DIRECTORY}/ in it) nor a directory of log segments"
    if _OF_KAFKA in names:
        return (
            f"{path} has a log of Apache Kafka, not of metaquorum, and nothing was done; "
            "audit, history, query, report, dump and import kafka read such a log"
        )
    for name in names[:NAMES_LOOKED_INTO]:
        if given.exists(f"{name}/{_OF_KAFKA}"):
            return f"{reason}; {given.path_text}/{name} has a log of Apache Kafka: name it"
        for below in (name, f"{name}/data"):
            if given.exists(f"{below}/{METADATA_DIRECTORY}"):
                return f"{reason}; {given.path_text}/{below} is a data directory: name it"
    return f"{reason}; name the data directory of a node"


def _read(metadata: ReadOnlyDirectory, data: ReadOnlyDirectory) -> NodeLog:
    flushed = read_flushed(metadata)  # first: see the top of this file
    start = read_start(metadata)
    identity = read_identity(data) if data.exists(IDENTITY_NAME) else None
    segments, snapshots = [], []
    for name in metadata.names():
        base_offset = base_offset_of(name)
        parsed = parse_name(name)
        if base_offset is not None:
            segments.append(SegmentFile(name, base_offset, metadata.size_of(name)))
        elif parsed is not None and not parsed[1]:
            snapshots.append(parsed[0])
    if start is not None and start.resetting:
        segments = []
    return NodeLog(
        node=_node_name(identity, data),
        path=metadata.path_text,
        identity=identity,
        segments=tuple(sorted(segments, key=lambda segment: segment.base_offset)),
        snapshots=tuple(sorted(end for end in snapshots if end != BOOTSTRAP_END)),
        has_bootstrap=BOOTSTRAP_END in snapshots,
        flushed=flushed,
        start=start,
    )


def _node_name(identity: Identity | None, data: ReadOnlyDirectory) -> str:
    if identity is None:
        return data.path_text.rsplit("/", 1)[-1]
    return f"{identity.role} {identity.node_id}"
