"""The laws of replicated partitions (P1 to P8), checked after every event of a data plane.

    committed  the committed history of each partition: who has it, and what is in it     P1, P3, P7
    leading    leaders: high watermarks, appends, lagging members, answers                P2, P4, P5, P6
    reading    the records that consumers get, and the acknowledgements of producers      P1, P7

The observer looks at the logs themselves, outside of the reach of faults. All is incremental: a replica whose shape, role and
high watermark have not changed costs one comparison.

Example: broker 101 leads orders-0 in leader epoch 3, and its high watermark moves from 10 to 12.
    1. `committed` reads the batches [10, 12) of its log, and appends them to the history of orders-0.
    2. Broker 102 says 12 too. The chain of its log at 12 is that of the history, so both logs are equal below 12 (P3).
    3. Broker 102 leads epoch 4. The chain of its log at 12 is that of the history, so it has all that was committed (P1).
"""

from typing import TYPE_CHECKING, Any

from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH
from metadata_log.format.records import Partition, PartitionChange
from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.broken import hold
from tests.sim.laws.partitions.committed import CommittedRecords, Place
from tests.sim.laws.partitions.leading import LeadingLaws

if TYPE_CHECKING:
    from tests.sim.data.plane import DataPlane
    from tests.sim.data.views import ReplicaView

__all__ = ["PartitionLaws"]


class PartitionLaws:
    """Looks at every data plane after each of its events, and at what leaves it."""

    def __init__(self, history: History, coverage: Coverage) -> None:
        self.history = history
        self._coverage = coverage
        self._committed: dict[Place, CommittedRecords] = {}
        self._leading = LeadingLaws()
        self._held: dict[Place, dict[NodeId, Offset]] = {}
        """The durable end of each replica, as it was last seen."""
        self.acknowledged: dict[Place, int] = {}
        """One past the last record that was acknowledged with acks=all, of each partition."""

    # --- metadata ----------------------------------------------------------------------------------------------------

    def committed(self, step: Step) -> None:
        """One more batch of metadata is committed."""
        for record in step.records:
            if isinstance(record, PartitionChange | Partition):
                place = record.topic_id, record.partition
                topic = step.after.topic_by_id(record.topic_id)
                state = None if topic is None else topic.state(record.partition)
                if state is not None:
                    self._leading.elected(place, state[LEADER_EPOCH], state[LEADER])
                    self._check_in_sync(place, state[ISR])

    def of(self, place: Place) -> CommittedRecords:
        """What is committed there."""
        found = self._committed.get(place)
        if found is None:
            topic = self.history.image.topic_by_id(place[0])
            name = f"{topic.name if topic is not None else place[0].hex()[:8]}-{place[1]}"
            found = self._committed[place] = CommittedRecords(name)
        return found

    def places(self) -> list[Place]:
        """The partitions in which something was committed, the first ones first."""
        return list(self._committed)

    def exists(self, place: Place) -> bool:
        """True if the partition has not been deleted."""
        return self.history.image.topic_by_id(place[0]) is not None

    # --- replicas ----------------------------------------------------------------------------------------------------

    def leads(self, plane: "DataPlane", view: "ReplicaView") -> None:
        """P1: a replica begins to lead."""
        assert view.leader is not None
        place, leader_epoch = view.place, view.leader.leader_epoch
        self._coverage["data: replica begins to lead"] += 1
        known = self.of(place)
        end = known.end_before(leader_epoch)
        has = known.has(view.log, end)
        text = f"{plane.name} leads {known.name} in epoch {leader_epoch}: its log {view.log.shape.end} lacks records below {end}"
        hold(has, "P1 LeaderHasCommitted", text)

    def looked(self, plane: "DataPlane", view: "ReplicaView") -> None:
        """A replica has changed."""
        known = self.of(view.place)
        shape, high_watermark = view.log.shape, view.high_watermark
        start = shape.start.offset
        known.start_by_retention = max(known.start_by_retention, start)
        held = self._held.setdefault(view.place, {})
        held[plane.broker_id] = shape.flushed_end
        if high_watermark > max(view.seen_high_watermark, start):
            end = known.end
            known.moved(plane.name, view.log, view.leader_epoch, high_watermark)
            topic = self.history.image.topic_by_id(view.place[0])
            state = None if topic is None else topic.state(view.place[1])
            if known.end > end and state is not None:
                self._check_in_sync(view.place, state[ISR])
        if view.leader is not None and view.watch is not None:
            self._leading.looked(plane, view.place, view.leader, view.watch, known.name)
        on_disk = high_watermark <= shape.flushed_end
        hold(on_disk, "P8 OnDisk", f"{plane.name}: {known.name} knows {high_watermark}, and has {shape.flushed_end}")

    def _check_in_sync(self, place: Place, isr: tuple[NodeId, ...]) -> None:
        """P1: each member of the ISR in the metadata has all that is committed, so each may be elected."""
        known, held = self._committed.get(place), self._held.get(place, {})
        if known is None or known.end == 0:
            return
        lacking = [each for each in isr if held.get(each, 0) < known.end]
        text = f"{known.name}: {lacking} of the ISR {isr} have less than {known.end}: {held}"
        hold(not lacking, "P1 InSyncHasCommitted", text)

    def lags(self, plane: "DataPlane", view: "ReplicaView", now_ms: int) -> None:
        """P5."""
        if view.watch is not None:
            self._leading.lags(plane, view.watch, now_ms, self.of(view.place).name)

    # --- answers -----------------------------------------------------------------------------------------------------

    def answers_as_leader(self, plane: "DataPlane", place: Place) -> None:
        """P6: an answer without an error leaves. No broker has taken over the leaderships because this one was silent."""
        moved_at = plane.leaders_moved_at()
        name = self.of(place).name
        text = f"{plane.name} answers for {name}; its leaders were moved at {moved_at}, and it has read {plane.offset}"
        hold(plane.offset >= moved_at, "P6 NoAnswerAfterLease", text)

    def acknowledges(self, plane: "DataPlane", place: Place, base_offset: int, count: int, packed: bytes) -> None:
        """P1: an acknowledgement with acks=all leaves: the records are committed where the answer says."""
        known = self.of(place)
        batch = known.batch_with(base_offset)
        if batch is None:
            deleted = base_offset < known.start
            hold(deleted, "P1 AckedIsCommitted", f"{plane.name}: {known.name} {base_offset} is not committed")
            return
        same = batch.base_offset == base_offset and batch.record_count == count and batch.data.endswith(packed)
        hold(same, "P1 AckedIsCommitted", f"{plane.name}: {known.name} has other records at {base_offset}")
        holding = sorted(each for each, end in self._held[place].items() if end >= batch.end_offset)
        enough = len(holding) >= plane.min_isr(place)
        hold(enough, "P1 AckedByMinIsr", f"{plane.name}: {known.name} {base_offset} is acknowledged, and on {holding}")
        self.acknowledged[place] = max(batch.end_offset, self.acknowledged.get(place, 0))
        self._coverage["data: write acknowledged by all"] += 1

    def tells_consumer(self, plane: "DataPlane", place: Place, leader_epoch: Epoch, high_watermark: int) -> None:
        """P2: an answer to a consumer leaves."""
        self._leading.told_consumer(plane.name, place, leader_epoch, high_watermark)

    def consumed(self, who: str, place: Place, offset: int, batches: "tuple[Any, ...]") -> None:
        """P7: a consumer that asked for `offset` has got these batches."""
        if not batches:
            return
        known = self.of(place)
        first = batches[0]
        contiguous = first.base_offset <= offset < first.end_offset
        hold(contiguous, "P7 ReadOnce", f"{who}: asked {known.name} for {offset}, and got {first.base_offset}")
        for batch in batches:
            of = known.batch_with(batch.base_offset)
            same = of is not None and of.data == batch.data
            hold(same, "P7 ReadCommitted", f"{who}: {known.name} gave {batch.base_offset}, which is not committed")
