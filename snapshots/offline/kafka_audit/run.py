"""The audit of the metadata logs of one Kafka cluster, of one controller or of all.

    1  walk        every byte: checksums, offsets, epochs; the same batches on all nodes; one leader for an epoch
    2  replay      one healthy log is transcribed into our records, and replayed strictly: each record must fit
    3  snapshots   each is whole, and has the state that the log makes at its end

The audit runs in this process, without Spark. The result has the form of our own audit, so text, JSON, CSV and page are the same.
A finding names the file, the byte and the offset of Kafka's log: a transcription keeps each offset. `laws` says which rules are
not asked, or are judged otherwise. Example:
  1. Three directories of a cluster; in node 2 one byte at 4,711 of a segment has flipped.
  2. The walk reports `damaged-batch` on node 2, byte 4,650, where the batch begins; nodes 1 and 3 agree.
  3. The log of node 1 is replayed, because it is healthy and the longest. The state equals every snapshot, also those of node 2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import ZERO_UUID, Offset
from snapshots.offline.audit.around import AROUND, WITH_RECORDS_MAX, neighbour_of
from snapshots.offline.audit.findings import Finding, Neighbour, Severity, error, in_order
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.inputs import NodeLog, SegmentFile, distinct
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import KafkaLog, find_kafka_log
from snapshots.offline.kafka.records import Placed, Record, records, to_json
from snapshots.offline.kafka.scan import scan_log
from snapshots.offline.kafka.transcribe.records import UNKNOWN, UNKNOWN_FIELD, Transcriber
from snapshots.offline.kafka.transcribe.states import CannotTranscribe, beginning_of
from snapshots.offline.kafka_audit.laws import judged
from snapshots.offline.kafka_audit.replaying import (
    ReplayedLog,
    check_states,
    load_snapshots,
    replay,
)
from snapshots.offline.kafka_audit.walk import Walked, walk
from snapshots.offline.rows import entity_text
from snapshots.offline.shares.leaders import RULE as LEADER_FENCED
from snapshots.offline.shares.misfits import Found

_SECRETS: Final = ("salt", "storedKey", "serverKey")

Progress = Callable[[str], object]


class _Place(NamedTuple):
    """The batch with an offset, on one node."""

    file: str
    position: int
    data: bytes
    near: tuple[Placed, ...]


def audit_kafka(directories: Iterable[Directory], progress: Progress = str) -> AuditResult:
    """Audit the logs in these directories, log directories or `__cluster_metadata-0` of one cluster.

    Raises:
        LogFormatError: a directory has no log of Kafka.
        OSError: a file cannot be read.
    """
    found = [find_kafka_log(directory) for directory in directories]
    names = distinct(log.node for log in found)
    logs = [log._replace(node=name) for log, name in zip(found, names, strict=True)]
    progress("reading the batches")
    walked = walk(logs)
    findings = [*walked.findings, *_clusters(logs)]
    reference = _reference(logs, walked, findings)
    replayed = None
    if reference is not None:
        progress(f"replaying the log of {reference.node}")
        cuts = {each.end.offset for log in logs for each in log.snapshots if each.end.offset}
        try:
            replayed = replay(reference, walked.nodes[reference.node], cuts)
        except LogFormatError as e:
            findings.append(error("snapshot-misfit", str(e), node=reference.node))
    progress("reading the snapshots")
    transcriber = Transcriber() if replayed is None else replayed.transcriber
    snapshots = []
    for log in logs:
        loaded, damaged = load_snapshots(log, transcriber)
        snapshots += loaded
        findings += damaged
    findings += check_states(replayed, snapshots)
    if replayed is not None and reference is not None:
        findings += _misfits(logs, reference, replayed)
        findings += [*_unknown(replayed), *_fenced(replayed)]
    return AuditResult(
        tuple(map(_node_log, logs)),
        walked.nodes,
        in_order(judged(findings)),
        walked.leaders,
        tuple(each.checked for each in snapshots),
        None if replayed is None else replayed.node,
        None if replayed is None else replayed.fold,
        None if replayed is None else replayed.activity,
    )


def _clusters(logs: Iterable[KafkaLog]) -> Iterator[Finding]:
    clusters = {log.cluster_id for log in logs if log.cluster_id is not None}
    if len(clusters) > 1:
        yield error("clusters-mixed", "cluster ids: " + ", ".join(sorted(clusters)))


def _reference(logs: Sequence[KafkaLog], walked: Walked, findings: list[Finding]) -> KafkaLog | None:
    """Return the node whose log is replayed: without findings in its log, with the longest history. Note logs that no replay can
    begin with.
    """
    bad = {f.node for f in findings if f.severity is Severity.ERROR}
    usable: list[tuple[Offset, Offset, int, KafkaLog]] = []
    for index, log in enumerate(logs):
        try:
            base = beginning_of(log)
        except CannotTranscribe as e:
            findings.append(error("no-snapshot", str(e), node=log.node, offset=log.start_offset))
            continue
        if log.node in walked.nodes and log.node not in bad:
            begin = 0 if base is None else base.end.offset
            usable.append((begin, -walked.nodes[log.node].end_offset, index, log))
    return min(usable)[3] if usable else None


# --- the replay's findings --------------------------------------------------------------------------------------------


def _misfits(logs: Sequence[KafkaLog], reference: KafkaLog, replayed: ReplayedLog) -> Iterator[Finding]:
    """Return a misfit as a finding of each node with the same batch: a node of ours would stop there."""
    fold = replayed.fold
    wanted = sorted({each.offset for each in fold.misfits})
    places = {log.node: _places(log, wanted) for log in logs} if wanted else {}
    for index, each in enumerate(fold.misfits):
        entity = entity_text(each.entity) if each.entity else None
        finding = error(each.rule, _detail(each), node=reference.node, offset=each.offset, entity=entity)
        held = places[reference.node].get(each.offset)
        if held is None:
            yield finding
            continue
        for node, found in places.items():
            same = found.get(each.offset)
            if same is not None and same.data == held.data:
                near = _neighbours(same) if index < WITH_RECORDS_MAX else ()
                yield finding._replace(node=node, file=same.file, position=same.position, records=near)
    for rule, count in sorted(fold.more.items()):
        yield error(rule, f"{count:,} more findings of this rule, which are not listed", node=reference.node)


def _places(log: KafkaLog, offsets: Sequence[Offset]) -> dict[Offset, _Place]:
    """Return the batch of each offset in one log."""
    found: dict[Offset, _Place] = {}
    left = list(offsets)
    for scanned in scan_log(log, left[0], left[-1] + 1):
        batch = scanned.batch
        if batch is None or scanned.error is not None:
            continue
        while left and left[0] < batch.base_offset:
            left.pop(0)
        while left and left[0] < batch.end_offset:
            offset = left.pop(0)
            try:
                near = tuple(each for each in records(batch) if abs(each.offset - offset) <= AROUND)
            except KafkaFormatError:
                near = ()
            found[offset] = _Place(scanned.file, scanned.position, batch.data, near)
    return found


def _neighbours(place: _Place) -> tuple[Neighbour, ...]:
    """Return the records around the place, as people see them."""
    found = []
    for each in place.near:
        fields = to_json(each.record)
        if isinstance(each.record, Record):
            fields |= {name: "(not shown)" for name in _SECRETS if name in fields}
        found.append(neighbour_of(each.offset, each.record.name, fields))
    return tuple(found)


def _detail(found: Found) -> str:
    if not found.followers:
        return found.reason
    what = "partitions" if found.rule == LEADER_FENCED else "records that do not fit and name this entity"
    return f"{found.reason}; and {found.followers:,} more {what}"


def _unknown(replayed: ReplayedLog) -> Iterator[Finding]:
    for each in replayed.transcriber.left.list():
        if each.reason in (UNKNOWN, UNKNOWN_FIELD):
            detail = f"{each.what}, {each.number:,} times: {each.reason}"
            yield error("unknown-record", detail, node=replayed.node, offset=each.first_offset)


def _fenced(replayed: ReplayedLog) -> Iterator[Finding]:
    end = max(replayed.fold.digests)
    for broker, example in sorted(replayed.fold.in_isr.items()):
        if replayed.fold.brokers.get(broker, False):
            detail = f"broker {broker} is fenced and in the ISR of {example}, at the log's end"
            yield error("fenced-in-isr", detail, node=replayed.node, offset=end)


# --- the form of our own audit ----------------------------------------------------------------------------------------


def _node_log(log: KafkaLog) -> NodeLog:
    identity = None
    if log.cluster_id is not None and log.node_id is not None:
        identity = Identity(log.cluster_id, log.node_id, ZERO_UUID, 0, "controller")
    return NodeLog(
        node=log.node,
        path=log.directory.path_text,
        identity=identity,
        segments=tuple(SegmentFile(*each) for each in log.segments),
        snapshots=tuple(each.end for each in log.snapshots if each.end.offset),
        has_bootstrap=any(each.end.offset == 0 for each in log.snapshots),
        flushed=None,
        start=None,
    )
