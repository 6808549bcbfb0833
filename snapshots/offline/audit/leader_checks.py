"""Checks of the quorum's own records: one leader per epoch, and one voter at a time."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.records import LeaderChange, Voters
from snapshots.format import BOOTSTRAP_END
from snapshots.offline.audit.batches import Batches
from snapshots.offline.audit.findings import Finding, error
from snapshots.offline.audit.result import Leadership
from snapshots.offline.compaction import CannotCompact, base_of
from snapshots.offline.inputs import NodeLog
from snapshots.offline.look import FirstBatch
from snapshots.offline.punctuation import Punctuation
from snapshots.reader import read_meta


def leaders_of(
    punctuation: Mapping[str, Punctuation],
) -> tuple[tuple[Leadership, ...], dict[str, set[Offset]], list[Finding]]:
    """Return all leaders, the offsets at which each node's log has a LeaderChange, and each epoch with two leaders."""
    seen: dict[Epoch, dict[NodeId, tuple[str, Leadership]]] = defaultdict(dict)
    beginnings: dict[str, set[Offset]] = defaultdict(set)
    for node, found in punctuation.items():
        for placed in found.control:
            if isinstance(placed.record, LeaderChange):
                leader = placed.record.leader_id
                leadership = Leadership(placed.epoch, leader, placed.offset, placed.timestamp_ms)
                seen[placed.epoch].setdefault(leader, (node, leadership))
                beginnings[node].add(placed.offset)
    findings = []
    for epoch, leaders in seen.items():
        if len(leaders) > 1:
            detail = "; ".join(f"{leader} by {node} at {led.offset}" for leader, (node, led) in sorted(leaders.items()))
            lowest = min(leadership.offset for _, leadership in leaders.values())
            findings.append(error("two-leaders", f"epoch {epoch}: {detail}", offset=lowest))
    return tuple(sorted(led for leaders in seen.values() for _, led in leaders.values())), beginnings, findings


def check_beginnings(
    logs: Mapping[str, NodeLog], firsts: Iterable[FirstBatch], beginnings: Mapping[str, set[Offset]]
) -> Iterator[Finding]:
    """Check that each epoch begins with its LeaderChange. `firsts` has the first batch of each epoch on each node."""
    for node, epoch, offset, file, position in firsts:
        first_of_log = logs[node].segments[0].base_offset
        if offset not in beginnings[node] and not (offset == first_of_log > 0):
            detail = f"epoch {epoch} begins without a LeaderChange"
            yield error("epoch-without-leader", detail, node=node, offset=offset, file=file, position=position)


def check_voters(logs: Iterable[NodeLog], punctuation: Mapping[str, Punctuation]) -> Iterator[Finding]:
    """Check that each voter set differs from the one before it by one voter at most: then any two majorities share a voter.

    `quorum recover` begins an epoch with a leader that is the only voter, and may leave out many.
    """
    for log in logs:
        since, voters = _first_voters(log)
        opening: tuple[Offset, LeaderChange] | None = None
        for placed in punctuation[log.node].control if log.node in punctuation else ():
            if isinstance(placed.record, LeaderChange):
                opening = placed.offset, placed.record
            elif isinstance(placed.record, Voters) and placed.offset >= since:
                before, voters = voters, placed.record
                if before is None or len(_keys(before) ^ _keys(voters)) <= 1:
                    continue
                ids = [each.node_id for each in voters.voters]
                is_recovery = opening is not None and opening[0] == placed.offset - 1 and [*opening[1].voters] == ids
                rule = "voters-replaced" if is_recovery and len(ids) == 1 else "voters-changed-by-many"
                detail = f"voters {_text(before)} are followed by {_text(voters)}"
                yield error(rule, detail, node=log.node, offset=placed.offset)


def check_named_skips(
    logs: Mapping[str, NodeLog], batches: Batches, punctuation: Mapping[str, Punctuation]
) -> Iterator[Finding]:
    """Check that each skip names a batch of the log. A replay that has not dropped a batch stops at the record of its skip."""
    skips = [(node, at, skip) for node, records in punctuation.items() for at, skip in records.skipped()]
    if not skips:
        return
    places = batches.places_of(skip.offset for _, _, skip in skips)
    for node, at, skip in skips:
        is_below = not logs[node].segments or skip.offset < logs[node].segments[0].base_offset
        held = places.get(skip.offset, {}).get(node)
        if not is_below and (held is None or (held.base_offset, held.epoch, held.chain) != skip[:3]):
            detail = f"no batch begins at {skip.offset} with epoch {skip.epoch} and chain {skip.chain.hex()[:16]}"
            yield error("skip-of-another-batch", detail, node=node, offset=at)


def _first_voters(log: NodeLog) -> tuple[Offset, Voters | None]:
    """Return the end of the snapshot below the log, and its voters if it can be read."""
    with contextlib.suppress(CannotCompact, LogFormatError, FileNotFoundError):  # a finding of its own
        base = base_of(log)
        if base is None and log.has_bootstrap:
            base = BOOTSTRAP_END
        return (0, None) if base is None else (base.offset, read_meta(log.directory, base).voters)
    return 0, None


def _keys(voters: Voters) -> set[tuple[NodeId, bytes]]:
    return {(each.node_id, each.directory_id) for each in voters.voters}


def _text(voters: Voters) -> str:
    return "{" + ", ".join(str(each.node_id) for each in voters.voters) + "}"
