"""The audit against the baseline of an earlier audit: what is read, what is compared, and the next baseline.

    0 ---------------- R ------------ B ------------ H ------ end of a log
       not read again     read again        new
    R: the newest proven snapshot   B: the baseline   H: the newest committed batch, the next baseline

The audit reads each node's log from the segment with the record before R on, as if the log started at R. The chain at B is
compared on every node. With `is_full` the audit reads everything, and compares the same.

Only committed records become the baseline, because a node may cut others. Example:
  1. controller 1 leads and appends 100..119 alone; the audit runs; controller 1 dies, and controller 2 leads without 100..119;
  2. if the baseline were 120, controller 1's healthy truncation to 100 would be a finding tomorrow.
A node that was behind the baseline may still be behind. A node that had the baseline must have it, unless its disk is new.
"""

from collections.abc import Iterator, Mapping, Sequence

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, uuid_text
from metadata_log.store.log_notes import read_start
from snapshots.offline.audit.baseline import SNAPSHOTS_MAX, Baseline, Holder, ProvenSnapshot
from snapshots.offline.audit.batch_checks import NodeBatches
from snapshots.offline.audit.batches import Batches
from snapshots.offline.audit.findings import Finding, Severity, error
from snapshots.offline.audit.result import AuditResult, Compared
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.committed import committed_ends
from snapshots.offline.inputs import NodeLog
from snapshots.offline.shares.replayed import Replayed


class AgainstBaseline:
    """One audit against a baseline, or the first audit if there is none yet."""

    def __init__(self, before: Baseline | None, logs: Sequence[NodeLog], *, is_full: bool) -> None:
        self._before = before
        self._whole = {log.node: log for log in logs}
        is_all = is_full or before is None
        self.logs = tuple(logs) if before is None or is_all else tuple(_standing(log, before) for log in logs)
        """The logs, without the parts that are not read."""
        self._committed_on = _proven_ends(logs)
        """By node: the end below which its records are committed."""
        self.committed = max(self._committed_on.values(), default=0)
        """The end of the next baseline: records below are committed."""
        self._same: dict[str, bool] = {}
        """Nodes whose log reaches the baseline: True if it has the baseline's chain."""

    @property
    def wanted(self) -> set[Offset]:
        """The ends whose chains and digests are compared or noted."""
        ends = {self.committed} if self._before is None else {self.committed, self._before.end}
        return ends - {0}

    def has_next(self, node: str, end: Offset) -> bool:
        """Return True if the log of `node`, which ends at `end`, has the records below the next baseline, and no others there."""
        return self.committed <= min(end, self._committed_on.get(node, 0))

    # --- checks -------------------------------------------------------------------------------------------------------

    def check_chains(
        self, batches: Batches, nodes: Mapping[str, NodeBatches], damaged: Sequence[Finding]
    ) -> Iterator[Finding]:
        """Compare the chain at the baseline on every node. `damaged` has the findings in batches: a log with one of them may lack
        the baseline's batch for that reason.
        """
        before = self._before
        if before is None:
            return
        chains = batches.chains_at({before.end})
        is_unsure = {each.node for each in damaged if each.severity is Severity.ERROR and each.rule != "log-too-short"}
        missing: list[Finding] = []
        for node, log in self._whole.items():
            chain = chains.get((node, before.end)) or _noted_chain(log, before.end)
            end = nodes[node].end_offset if node in nodes else log.start_offset
            if chain is not None:
                self._same[node] = chain == before.chain
            elif node in is_unsure:
                continue
            elif end < before.end:
                missing.append(self._missing(log, end))
            elif _start_now(log) < before.end:
                self._same[node] = False
        for node in sorted(node for node, is_same in self._same.items() if not is_same):
            yield self._rewritten(node, batches, chains.get((node, before.end)))
        has_any = bool(self._same)
        held = set(before.holders)
        yield from (each for each in missing if not has_any or _holder(self._whole[each.node or ""]) in held)
        if not has_any and not missing and not is_unsure:
            lowest = min((_start_now(log) for log in self._whole.values()), default=0)
            detail = f"the baseline is {before.end}, and the logs start at {lowest} and above; audit more often"
            yield error("baseline-trimmed", detail, offset=before.end)

    def _missing(self, log: NodeLog, end: Offset) -> Finding:
        assert self._before is not None
        file = log.segments[-1].name if log.segments else None
        detail = f"the log ends at {end}, and an audit has proven it up to {self._before.end}"
        return error("baseline-missing", detail, node=log.node, file=file, offset=end)

    def _rewritten(self, node: str, batches: Batches, chain: bytes | None) -> Finding:
        before = self._before
        assert before is not None
        held = batches.places_of([before.end - 1]).get(before.end - 1, {}).get(node)
        file, position = (None, None) if held is None else (held.file, held.position)
        now = "no batch ends there now" if chain is None else f"now it is {chain.hex()[:16]}"
        detail = f"the chain at {before.end} was {before.chain.hex()[:16]} at an earlier audit; {now}"
        return error("history-rewritten", detail, node=node, file=file, position=position, offset=before.end)

    def check_snapshots(self, snapshots: Sequence[CheckedSnapshot]) -> Iterator[Finding]:
        """Find snapshots that have changed since an audit has proven them."""
        proven = {} if self._before is None else {each.end: each.sha256 for each in self._before.snapshots}
        for each in snapshots:
            known = proven.get(each.place)
            if each.rule is None and known is not None and known != each.sha256:
                detail = f"SHA-256 {each.sha256.hex()[:16]}; it was {known.hex()[:16]} at an earlier audit"
                yield error("baseline-snapshot", detail, node=each.node, file=each.name, offset=each.end)

    def check_state(self, replayed: Replayed, reference: str) -> Iterator[Finding]:
        """Compare the state at the baseline, if the log of `reference` has the baseline's history."""
        before = self._before
        if before is None or not self._same.get(reference) or before.end not in replayed.digests:
            return
        digest, count = replayed.digests[before.end]
        if (digest, count) != (before.digest, before.records):
            detail = (
                f"{before.records} records, digest {before.digest.hex()[:16]} at an earlier audit; "
                f"the log makes {count}, digest {digest.hex()[:16]}"
            )
            yield error("baseline-state", detail, node=reference, offset=before.end)

    # --- the result ---------------------------------------------------------------------------------------------------

    def compared(self, result: AuditResult, batches: Batches) -> Compared:
        """Return the comparison, with the next baseline if the audit has no error."""
        after = self._next(result, batches)
        needed = {log.node: log for log in self.logs}
        left_out = sum(len(log.segments) - len(needed[node].segments) for node, log in self._whole.items())
        return Compared(
            self._before, None if isinstance(after, str) else after, after if isinstance(after, str) else "",
            tuple(sorted(node for node, is_same in self._same.items() if is_same)),
            {log.node: log.since for log in self.logs}, left_out,
        )  # fmt: skip

    def _next(self, result: AuditResult, batches: Batches) -> Baseline | str:
        """Return the next baseline, or the reason for none."""
        before, end, node = self._before, self.committed, result.reference
        if result.count(Severity.ERROR):
            return "the audit has errors"
        if node is None or result.fold is None:
            return "no log could be replayed"
        if before is not None and end < before.end:
            return f"the directories prove only that the records below {end} are committed"
        chains = batches.chains_at({end})
        chain, epoch = chains.get((node, end)), batches.epoch_at(node, end)
        is_here = self.has_next(node, result.nodes[node].end_offset) and end in result.fold.digests
        if chain is None or epoch is None or not is_here:
            return "nothing newer is proven to be committed on the log that was replayed"
        digest, records = result.fold.digests[end]
        ids = {log.identity.cluster_id for log in self._whole.values() if log.identity is not None}
        holders = tuple(_holder(log) for log in self._whole.values() if chains.get((log.node, end)) == chain)
        cluster_id = min(ids) if ids else None if before is None else before.cluster_id
        return Baseline(cluster_id, end, epoch, chain, digest, records, holders, self._proven(result, end))

    def _proven(self, result: AuditResult, end: Offset) -> tuple[ProvenSnapshot, ...]:
        """Return the snapshots that this audit has compared with the log, and those that an earlier one has."""
        assert result.fold is not None
        known = set() if self._before is None else set(self._before.snapshots)
        found = {
            ProvenSnapshot(each.place, each.sha256)
            for each in result.snapshots
            if each.end <= end and (each.end in result.fold.digests or ProvenSnapshot(each.place, each.sha256) in known)
        }
        return tuple(sorted(found)[-SNAPSHOTS_MAX:])


def _standing(log: NodeLog, before: Baseline) -> NodeLog:
    """Return the log from the newest proven snapshot on; the whole log if it has none, or starts above."""
    proven = {each.end for each in before.snapshots}
    ends = [end.offset for end in log.snapshots if end in proven and log.start_offset < end.offset <= before.end]
    return log.standing_on(ends[-1]) if ends else log


def _proven_ends(logs: Sequence[NodeLog]) -> dict[str, Offset]:
    try:
        return {log.node: found.end for log, found in zip(logs, committed_ends(logs), strict=True)}
    except LogFormatError:
        return {}  # the audit says what is wrong


def _holder(log: NodeLog) -> Holder:
    return Holder(log.node, None if log.identity is None else uuid_text(log.identity.directory_id))


def _noted_chain(log: NodeLog, end: Offset) -> bytes | None:
    """Return the chain at `end` if the log starts there."""
    return log.start.chain if log.start is not None and log.start.start.offset == end else None


def _start_now(log: NodeLog) -> Offset:
    """Return the start of the log, which the node may have raised during the audit."""
    try:
        start = read_start(log.directory)
    except LogFormatError:
        return log.start_offset
    return log.start_offset if start is None else max(log.start_offset, start.start.offset)
