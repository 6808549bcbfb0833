"""The first pass over the logs of all nodes: is every byte intact, and do the nodes have the same batches?

The logs are read side by side, each from one batch to the next, so the pass needs no memory for them. Example:
  1. Nodes 1, 2 and 3 have the batch [40,49) of epoch 3, the same bytes; the pass goes on with 49.
  2. Node 2 has other bytes in [49,50) of epoch 3: `history-differs`, at node 2, because two nodes agree. Node 2 is not compared
     any more: what follows may differ for the same reason.
  3. Node 3 has [50,52) of epoch 3, and nodes 1 and 2 have [50,51) of epoch 4: node 3 was the leader of epoch 3, and died before
     others had its batch. The finding is a `divergent-tail`. But if node 3 has a snapshot above 50, offset 50 was committed, and
     the finding is `history-differs`.

A batch whose offset or epoch is wrong, with a right checksum, is a finding, and is not compared.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.ids import Epoch, NodeId, Offset
from snapshots.offline.audit.batch_checks import NodeBatches
from snapshots.offline.audit.findings import Finding, error
from snapshots.offline.audit.result import Leadership
from snapshots.offline.kafka.batches import Batch
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import KafkaLog
from snapshots.offline.kafka.messages import Fields
from snapshots.offline.kafka.records import Placed, Record, records
from snapshots.offline.kafka.scan import Scanned, scan_log

FINDINGS_MAX: Final = 1_000
"""Maximum number of findings about batches on one node; more are only counted."""
_EPOCH_END: Final = 16
"""The place behind the epoch in a batch's header. Offset and length come before, and the scan has compared both."""


class Walked(NamedTuple):
    """The result of the first pass."""

    nodes: dict[str, NodeBatches]
    findings: list[Finding]
    leaders: tuple[Leadership, ...]
    voters: dict[str, frozenset[NodeId]]
    """The newest voters that each node's log names; empty if it names none."""


class _Node:
    """One node's log while it is read."""

    def __init__(self, log: KafkaLog, hashed_from: Offset) -> None:
        self.log = log
        self.findings: list[Finding] = []
        self.leaders: list[Leadership] = []
        self.voter_ids: frozenset[NodeId] = frozenset()
        self.is_compared = True
        self.accused_end: Offset | None = None
        """The end of the batch with which this node differs from others."""
        self.end: Offset = log.start_offset
        self._hashed_from = hashed_from
        self._chain = bytes(CHAIN_BYTES)
        self._voters: set[tuple[NodeId, bytes]] | None = None
        self._epoch: Epoch = 0
        self._files: set[str] = set()
        self._batches = self._records = self._size = 0
        self._first_ms: int | None = None
        self._last_ms = 0
        self._left_out = 0
        self._ends = [*log.snapshots]
        """The snapshots whose ends the reading has not reached."""

    def batches(self) -> Iterator[Scanned]:
        """Return the batches that are intact and in their place. Note all others as findings."""
        for scanned in scan_log(self.log):
            if scanned.error is not None or scanned.batch is None:
                self._note(scanned)
                continue
            self._count(scanned, scanned.batch)
            if scanned.batch.is_control:
                self._control(scanned, scanned.batch)
            yield scanned
        if self._left_out:
            self.tell("damaged-batch", f"{self._left_out:,} more findings about batches, which are not listed")

    def tell(
        self, rule: str, detail: str, file: str | None = None, position: int | None = None, offset: Offset | None = None
    ) -> None:
        self.findings.append(error(rule, detail, node=self.log.node, file=file, position=position, offset=offset))

    def numbers(self) -> NodeBatches | None:
        """Return the numbers of the log; None if no batch is intact."""
        if self._first_ms is None:
            return None
        return NodeBatches(
            len(self._files), self._batches, self._records, self._size, self.log.start_offset, self.end, self._epoch,
            self._chain, self._first_ms, self._last_ms, None,
        )  # fmt: skip

    def _note(self, scanned: Scanned) -> None:
        if len(self.findings) >= FINDINGS_MAX:
            self._left_out += 1
            return
        batch, offset = scanned.batch, scanned.expected_offset
        if scanned.is_torn:
            rule = "torn-tail"
        elif batch is None:
            rule = "offset-gap" if not scanned.length and offset is not None else "damaged-batch"
        elif offset is not None and batch.base_offset != offset:
            rule = "offset-gap"
        else:
            if batch.base_offset == self.accused_end:
                return  # the epoch of the batch before is the wrong one, and has a finding
            rule = "epoch-regression" if batch.epoch < self._epoch else "epoch-without-leader"
        at = self.end if offset is None else offset
        self.tell(rule, scanned.error or "", scanned.file, scanned.position, at)

    def _count(self, scanned: Scanned, batch: Batch) -> None:
        self.end, self._epoch = batch.end_offset, batch.epoch
        while self._ends and self._ends[0].end.offset <= batch.base_offset:
            self._ends.pop(0)
        if self._ends and self._ends[0].end.offset < batch.end_offset:
            name, end, _ = self._ends.pop(0)
            self.tell("snapshot-boundary", f"the snapshot ends inside the batch {batch}", name, offset=end.offset)
        self._files.add(scanned.file)
        self._batches += 1
        self._records += batch.record_count
        self._size += len(batch.data)
        self._first_ms = batch.first_timestamp_ms if self._first_ms is None else self._first_ms
        self._last_ms = max(self._last_ms, batch.max_timestamp_ms)
        if batch.base_offset >= self._hashed_from:
            self._chain = hashlib.sha256(self._chain + batch.data).digest()

    def _control(self, scanned: Scanned, batch: Batch) -> None:
        try:
            for placed in records(batch):
                if isinstance(placed.record, Record):
                    self._quorum_record(scanned, placed, placed.record)
        except KafkaFormatError as e:
            self.tell("record-malformed", str(e), scanned.file, scanned.position, batch.base_offset)

    def _quorum_record(self, scanned: Scanned, placed: Placed, record: Record) -> None:
        fields: Fields = record.fields
        if record.name == "LeaderChangeMessage":
            self.voter_ids = frozenset(each["voterId"] for each in fields["voters"])
            self.leaders.append(Leadership(placed.epoch, fields["leaderId"], placed.offset, placed.timestamp_ms))
        elif record.name == "VotersRecord":
            before, now = self._voters, {(each["voterId"], each["voterDirectoryId"]) for each in fields["voters"]}
            self._voters = now
            self.voter_ids = frozenset(voter_id for voter_id, _ in now)
            if before is not None and len(before ^ now) > 1:
                detail = f"voters {_ids(before)} are followed by {_ids(now)}"
                self.tell("voters-changed-by-many", detail, scanned.file, scanned.position, placed.offset)


def walk(logs: Sequence[KafkaLog]) -> Walked:
    """Read all logs side by side."""
    common = max((log.start_offset for log in logs), default=0)
    nodes = [_Node(log, common) for log in logs]
    _compare(nodes)
    findings = [finding for node in nodes for finding in node.findings]
    leaders, two = _leaders(nodes)
    numbers = {node.log.node: found for node in nodes if (found := node.numbers()) is not None}
    return Walked(numbers, [*findings, *two], leaders, {node.log.node: node.voter_ids for node in nodes})


def _compare(nodes: Sequence[_Node]) -> None:
    readers = [(node, node.batches()) for node in nodes]
    heads: dict[int, Scanned] = {}
    while True:
        for index, (_, reader) in enumerate(readers):
            if index not in heads and (found := next(reader, None)) is not None:
                heads[index] = found
        if not heads:
            return
        lowest = min(_base(scanned) for scanned in heads.values())
        here = [index for index, scanned in heads.items() if _base(scanned) == lowest]
        copies = [(nodes[index], heads.pop(index)) for index in here]
        compared = [(node, scanned) for node, scanned in copies if node.is_compared]
        if len({_bytes(scanned) for _, scanned in compared}) > 1:
            _differ(lowest, compared)


def _differ(offset: Offset, copies: list[tuple[_Node, Scanned]]) -> None:
    """Note a difference, and compare no more the nodes that are wrong, or behind."""
    newest = max(_batch(scanned).epoch for _, scanned in copies)
    bodies = {_bytes(scanned)[_EPOCH_END:] for _, scanned in copies if _batch(scanned).epoch == newest}
    same_time: list[tuple[_Node, Scanned]] = []
    older: list[tuple[_Node, Scanned]] = []
    for node, scanned in copies:
        # One batch in two epochs: the epoch, which no checksum covers, is damaged in one of the files.
        is_same = _batch(scanned).epoch == newest or _bytes(scanned)[_EPOCH_END:] in bodies
        (same_time if is_same else older).append((node, scanned))
    for node, scanned in older:
        proven = max((each.end.offset for each in node.log.snapshots), default=0)
        rule = "history-differs" if proven > offset else "divergent-tail"
        detail = f"the batch is of epoch {_batch(scanned).epoch}, and other nodes have one of epoch {newest} there"
        if proven > offset:
            detail += f"; a snapshot at {proven} says that this batch was committed"
        _accuse(node, scanned, rule, detail)
    votes = Counter(_bytes(scanned) for _, scanned in same_time).most_common()
    if len(votes) < 2:
        return
    has_favourite = votes[0][1] > votes[1][1]
    for node, scanned in same_time:
        if has_favourite and _bytes(scanned) == votes[0][0]:
            continue
        others = ", ".join(other.log.node for other, copy in same_time if _bytes(copy) != _bytes(scanned))
        odd = "most nodes have the other batch" if has_favourite else "the audit cannot tell which batch is right"
        _accuse(node, scanned, "history-differs", f"another batch than that of {others}; {odd}")


def _accuse(node: _Node, scanned: Scanned, rule: str, detail: str) -> None:
    batch = _batch(scanned)
    node.is_compared, node.accused_end = False, batch.end_offset
    node.tell(rule, detail, scanned.file, scanned.position, batch.base_offset)


def _leaders(nodes: Sequence[_Node]) -> tuple[tuple[Leadership, ...], Iterator[Finding]]:
    seen: dict[Epoch, dict[NodeId, tuple[str, Leadership]]] = defaultdict(dict)
    for node in nodes:
        for leadership in node.leaders:
            seen[leadership.epoch].setdefault(leadership.leader_id, (node.log.node, leadership))
    two = (
        error(
            "two-leaders",
            f"epoch {epoch}: "
            + "; ".join(f"{leader} by {node} at {led.offset}" for leader, (node, led) in sorted(found.items())),
            offset=min(led.offset for _, led in found.values()),
        )
        for epoch, found in seen.items()
        if len(found) > 1
    )
    return tuple(sorted(led for found in seen.values() for _, led in found.values())), two


def _batch(scanned: Scanned) -> Batch:
    assert scanned.batch is not None
    return scanned.batch


def _base(scanned: Scanned) -> Offset:
    return _batch(scanned).base_offset


def _bytes(scanned: Scanned) -> bytes:
    return _batch(scanned).data


def _ids(voters: set[tuple[NodeId, bytes]]) -> str:
    return "{" + ", ".join(str(node_id) for node_id, _ in sorted(voters)) + "}"
