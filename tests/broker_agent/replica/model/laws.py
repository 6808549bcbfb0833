"""The laws of one replicated partition. The model cluster calls them after each event; a broken law raises `LawBroken`.

The laws:

durable      a record that was acknowledged with acks=all is in the log of every later leader
in sync      each member of the controller's ISR has all acknowledged records on its disk, so it may be elected
min ISR      an acknowledged record was on the disks of min.insync.replicas brokers
committed    all replicas have the same records below their high watermarks
on disk      no replica knows a high watermark above the end of its own disk
monotonic    the high watermark of one leader epoch never goes back
one leader   one process at most leads in one leader epoch
no cut       no truncation goes below a high watermark (there are no unclean elections here)
no stop      no replica stops: the disks are good
no laggard   a member that was not caught up for the lag time is proposed for removal by the next tick
"""

from collections import defaultdict

from broker_agent.replica.leader import PartitionLeader
from metadata_log.format.ids import Epoch, NodeId, Offset
from tests.broker_agent.replica.logs import MemoryLog

Record = tuple[Epoch, str]


class LawBroken(AssertionError):
    """The message begins with the name of the law."""


class Laws:
    """The memory of all that was promised."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.acknowledged: dict[Offset, Record] = {}
        self.committed: dict[Offset, Record] = {}
        self.held: dict[tuple[Offset, Record], set[NodeId]] = defaultdict(set)
        """The brokers whose disks have, or once had, a record."""
        self.leads: dict[Epoch, tuple[NodeId, int]] = {}
        self.high_watermarks: dict[Epoch, Offset] = {}
        self._checked: tuple[object, ...] = ()

    def flushed(self, broker_id: NodeId, log: MemoryLog) -> None:
        for offset, record in log.records(log.flushed_end).items():
            self.held[offset, record].add(broker_id)

    def elected(self, broker_id: NodeId, broker_epoch: int, leader_epoch: Epoch, log: MemoryLog) -> None:
        leader = (broker_id, broker_epoch)
        if self.leads.setdefault(leader_epoch, leader) != leader:
            raise LawBroken(f"one leader: {self.leads[leader_epoch]} and {leader} lead epoch {leader_epoch}")
        records = log.records()
        for offset, record in self.acknowledged.items():
            if records.get(offset) != record:
                raise LawBroken(f"durable: leader {broker_id} of epoch {leader_epoch} lacks {offset}: {record}")

    def in_sync(self, isr: tuple[NodeId, ...], logs: dict[NodeId, MemoryLog]) -> None:
        state = (isr, len(self.acknowledged), *(logs[broker_id].flushed_end for broker_id in isr))
        if state == self._checked:
            return
        self._checked = state
        for broker_id in isr:
            records = logs[broker_id].records(logs[broker_id].flushed_end)
            for offset, record in self.acknowledged.items():
                if records.get(offset) != record:
                    raise LawBroken(f"in sync: {broker_id} of the ISR {isr} lacks {offset}: {record}")

    def acknowledge(self, records: dict[Offset, Record]) -> None:
        for offset, record in records.items():
            self.acknowledged[offset] = record
            if len(self.held[offset, record]) < self.min_isr:
                raise LawBroken(f"min ISR: {offset}: {record} is acknowledged, and on {self.held[offset, record]}")

    def replica(self, broker_id: NodeId, log: MemoryLog, high_watermark: Offset) -> None:
        if high_watermark > log.flushed_end:
            raise LawBroken(f"on disk: broker {broker_id} knows {high_watermark}, and has {log.flushed_end}")
        for offset, record in log.records(high_watermark).items():
            if self.committed.setdefault(offset, record) != record:
                raise LawBroken(f"committed: broker {broker_id} has {record}, not {self.committed[offset]} at {offset}")

    def leader(self, leader: PartitionLeader) -> None:
        before = self.high_watermarks.get(leader.leader_epoch, 0)
        if leader.high_watermark < before:
            raise LawBroken(f"monotonic: {before} -> {leader.high_watermark} in epoch {leader.leader_epoch}")
        self.high_watermarks[leader.leader_epoch] = leader.high_watermark


class LagWatch:
    """The dumb twin of the caught-up rule: it keeps all ends of the leader's log, with their times."""

    def __init__(self, leader: PartitionLeader, now_ms: int) -> None:
        self._leader = leader
        self._began_ms = now_ms
        self._ends = [(now_ms, leader.shape.end)]
        self._reached: dict[NodeId, Offset] = {}
        self._member_since: dict[NodeId, int] = {}

    def appended(self, now_ms: int) -> None:
        self._ends.append((now_ms, self._leader.shape.end))

    def fetched(self, broker_id: NodeId, offset: Offset) -> None:
        self._reached[broker_id] = max(offset, self._reached.get(broker_id, 0))

    def ticked(self, now_ms: int) -> None:
        leader = self._leader
        members = leader.isr.committed - {leader.me}
        self._member_since = {each: self._member_since.get(each, now_ms) for each in members}
        if not leader.isr.may_propose:
            return
        for broker_id in members:
            since_ms = max(self._lags_since(broker_id, now_ms), self._member_since[broker_id])
            if now_ms - since_ms > leader.config.lag_time_max_ms:
                raise LawBroken(f"no laggard: {broker_id} lags since {since_ms}, and stays at {now_ms}: {leader}")

    def _lags_since(self, broker_id: NodeId, now_ms: int) -> int:
        """When the leader's log first had more than the follower; now, if the follower has everything."""
        offset = self._reached.get(broker_id)
        if offset is None:
            return self._began_ms
        return next((at_ms for at_ms, end in self._ends if end > offset), now_ms)
