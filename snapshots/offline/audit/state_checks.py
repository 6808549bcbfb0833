"""The strict replay of one log as findings: records that do not fit, snapshots with another state, and fenced brokers.

One healthy log is replayed. A misfit is a finding of each node that has the same batch, because each of them would stop there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from snapshots.format import snapshot_name
from snapshots.offline.audit.around import AROUND, WITH_RECORDS_MAX, neighbours
from snapshots.offline.audit.batch_checks import Places
from snapshots.offline.audit.batches import Batches
from snapshots.offline.audit.findings import Finding, error
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.compaction import CannotCompact, base_of
from snapshots.offline.inputs import NodeLog
from snapshots.offline.punctuation import Punctuation
from snapshots.offline.rows import entity_text
from snapshots.offline.shares.job import replay_in_shares, source_of
from snapshots.offline.shares.leaders import RULE as LEADER_FENCED
from snapshots.offline.shares.misfits import Found
from snapshots.offline.shares.replayed import Replayed
from snapshots.offline.shares.share import BASE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def base_end(log: NodeLog) -> Offset:
    """Return the offset from which on the node's log can be replayed; a huge number if it cannot."""
    try:
        base = base_of(log)
    except CannotCompact:
        return 1 << 63
    return 0 if base is None else base.offset


def replay_log(
    spark: "SparkSession",
    log: NodeLog,
    end: Offset,
    found: Punctuation,
    snapshots: Sequence[CheckedSnapshot],
    wanted: Iterable[Offset] = (),
) -> Replayed | None:
    """Replay the log of a node up to `end`, with digests at the ends of all snapshots, and at the `wanted` ends. Return None if
    that is not possible, or if the node has removed a part of its log meanwhile.
    """
    since = base_end(log)
    if since > end or any(s.rule is not None for s in snapshots if s.node == log.node and s.end == since > 0):
        return None
    cuts = {cut for cut in (*wanted, *(snapshot.end for snapshot in snapshots)) if since <= cut <= end} | {end}
    skips = [skip for _, skip in found.skipped()]
    try:
        replayed = replay_in_shares(spark, source_of(log, base_of(log), end, skips), cuts)
    except LogFormatError:
        return None
    return replayed if replayed.is_whole else None


def check_state(
    logs: Mapping[str, NodeLog],
    batches: Batches,
    node: str,
    replayed: Replayed,
    snapshots: Iterable[CheckedSnapshot],
    chains: Mapping[tuple[str, Offset], bytes],
) -> list[Finding]:
    """Return the findings of the replay of `node`'s log. `chains` has the logs' chains at the snapshots' ends."""
    found = [*_snapshot_states(node, replayed, snapshots, chains)]
    found += _misfits(logs, batches, node, replayed)
    end = max(replayed.digests)
    named = {key for each in replayed.misfits if each.rule == LEADER_FENCED for key in (each.entity, each.because)}
    for broker, example in sorted(replayed.in_isr.items()):
        if replayed.brokers.get(broker, False) and ("broker", str(broker)) not in named:
            detail = f"broker {broker} is fenced and in the ISR of {example}, at the log's end"
            found.append(error("fenced-in-isr", detail, node=node, offset=end))
    return found


def _snapshot_states(
    node: str,
    replayed: Replayed,
    snapshots: Iterable[CheckedSnapshot],
    chains: Mapping[tuple[str, Offset], bytes],
) -> Iterator[Finding]:
    for snapshot in snapshots:
        digest, count = replayed.digests.get(snapshot.end, (snapshot.digest, snapshot.records))
        is_same_history = chains.get((node, snapshot.end)) == snapshot.chain
        if snapshot.rule is None and is_same_history and (digest, count) != (snapshot.digest, snapshot.records):
            detail = (
                f"{snapshot.records} records, digest {snapshot.digest.hex()[:16]}; "
                f"the log makes {count}, digest {digest.hex()[:16]}"
            )
            yield error("snapshot-state", detail, node=snapshot.node, file=snapshot.name, offset=snapshot.end)


def _misfits(logs: Mapping[str, NodeLog], batches: Batches, node: str, replayed: Replayed) -> Iterator[Finding]:
    wanted = {each.offset for each in replayed.misfits}
    shown = {at for each in replayed.misfits[:WITH_RECORDS_MAX] for at in _around(each.offset)}
    places = batches.places_of(wanted | shown)
    for index, each in enumerate(replayed.misfits):
        if each.rule == BASE:
            base = base_of(logs[node])
            name = None if base is None else snapshot_name(base)
            yield error(BASE, each.reason, node=node, file=name, offset=base_end(logs[node]), entity=_entity(each))
            continue
        for finding in everywhere(
            error(each.rule, _detail(each), offset=each.offset, entity=_entity(each)), node, places
        ):
            if index < WITH_RECORDS_MAX and finding.node is not None:
                held = [places.get(at, {}).get(finding.node) for at in _around(each.offset)]
                near = [(batch.file, batch.position) for batch in held if batch is not None]
                records = neighbours(logs[finding.node].directory, near, each.offset)
                finding = finding._replace(records=records)
            yield finding
    for rule, count in sorted(replayed.more.items()):
        yield error(rule, f"{count:,} more findings of this rule, which are not listed", node=node)


def _around(offset: Offset) -> range:
    return range(offset - AROUND, offset + AROUND + 1)


def _entity(found: Found) -> str | None:
    return entity_text(found.entity) if found.entity else None


def _detail(found: Found) -> str:
    if not found.followers:
        return found.reason
    count = f"{found.followers:,} more "
    if found.rule == LEADER_FENCED:
        return f"{found.reason}; and {count}partition{'s' * (found.followers > 1)}"
    records = "record does" if found.followers == 1 else "records do"
    return f"{found.reason}; and {count}{records} not fit, which name this entity"


def everywhere(finding: Finding, reference: str, places: Places) -> Iterator[Finding]:
    """Return the finding of each node that has the same batch as `reference` at the finding's offset."""
    held = places.get(-1 if finding.offset is None else finding.offset, {})
    if reference not in held:
        yield finding._replace(node=reference)
        return
    for node, batch in sorted(held.items()):
        if batch.chain == held[reference].chain:
            yield finding._replace(node=node, file=batch.file, position=batch.position)


def placed(findings: Iterable[Finding], batches: Batches) -> Iterator[Finding]:
    """Return findings that have a node and an offset with file and position of their batch."""
    found = [*findings]
    places = batches.places_of(each.offset for each in found if each.offset is not None)
    for each in found:
        held = places.get(each.offset or 0, {}).get(each.node or "")
        yield each if held is None else each._replace(file=held.file, position=held.position)
