"""Brokers for the tests of the pure consumer: logs with real batches and epoch tables, and the answers that the contract demands.

1. `append("a")` adds a batch of one record at the leader of partition 0, with the present leader epoch, and commits it.
2. `elect(2)` makes broker 2 the leader with the next epoch. `elect(2, cut=8)` is an unclean election: the log ends at 8 now.
3. Brokers that do not lead refuse, and name the leader if `has_hints`.
"""

from dataclasses import dataclass, field

from clients.consumer.effects import AskEpochs, AskOffsets, Fetch
from clients.metadata.cluster import Cluster, ClusterNode, PartitionView, TopicPartition
from clients.partition_values import (
    CurrentLeader,
    EndOfLog,
    EpochEnd,
    EpochQuestion,
    Fetched,
    FoundOffset,
    OffsetQuestion,
    PartitionFetch,
    TopicIdPartition,
)
from metadata_log.format.batch import Batch, genesis_chain
from metadata_log.format.data_batch import NO_STAMP, DataRecord, decode_data, encode_data, pack_records
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart, LogShape

TOPIC = "orders"
TOPIC_ID = b"orders".ljust(16)
BROKERS = (1, 2, 3)
GENESIS = genesis_chain("test", b"")
NOTHING_BELOW = OffsetAndEpoch(0, 0)


@dataclass
class FakeLog:
    """The log of one partition. All brokers have it; only the leader serves it."""

    leader: int | None = 1
    epoch: int = 1
    batches: list[Batch] = field(default_factory=list)
    start: OffsetAndEpoch = NOTHING_BELOW
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    @property
    def shape(self) -> LogShape:
        epochs: list[EpochStart] = []
        for batch in self.batches:
            if not epochs or epochs[-1].epoch != batch.epoch:
                epochs.append(EpochStart(batch.epoch, batch.base_offset))
        return LogShape(self.start, self.end, self.end, tuple(epochs), GENESIS, GENESIS)

    def append(self, values: list[str], timestamp_ms: int, *, commit: bool = True) -> Batch:
        records = pack_records([DataRecord(timestamp_ms, None, value.encode()) for value in values])
        batch = encode_data(records, NO_STAMP, base_offset=self.end, epoch=self.epoch, previous_chain=GENESIS)
        self.batches.append(batch)
        if commit:
            self.high_watermark = self.end
        return batch

    def cut(self, end: int) -> None:
        """Lose the batches that end above `end`."""
        self.batches = [batch for batch in self.batches if batch.end_offset <= end]
        self.high_watermark = min(self.high_watermark, self.end)

    def retain_from(self, offset: int) -> None:
        """Delete the batches below `offset`."""
        while self.batches and self.batches[0].end_offset <= offset:
            self.start = self.batches.pop(0).end

    def records(self) -> list[tuple[int, bytes | None]]:
        """Return the offset and the value of each committed record."""
        found = []
        for batch in self.batches:
            if batch.end_offset <= self.high_watermark:
                found += [(batch.base_offset + i, record.value) for i, record in enumerate(decode_data(batch))]
        return found


class FakeLeaders:
    """Brokers 1 to 3, and the logs of one topic."""

    def __init__(self, partitions: int = 1) -> None:
        self.topic_id = TOPIC_ID
        self.logs = [FakeLog() for _ in range(partitions)]
        self.has_hints = True
        self.refusals: dict[int, ErrorCode] = {}
        """For a partition the error of each answer."""
        self.damaged: set[int] = set()
        """The partitions whose next answer has a flipped bit."""

    def append(self, *values: str, partition: int = 0, timestamp_ms: int = 0, commit: bool = True) -> None:
        self.logs[partition].append(list(values), timestamp_ms, commit=commit)

    def elect(self, leader: int | None, *, partition: int = 0, cut: int | None = None) -> None:
        log = self.logs[partition]
        log.leader, log.epoch = leader, log.epoch + 1
        if cut is not None:
            log.cut(cut)

    def cluster(self) -> Cluster:
        """Return the view of a client that knows everything."""
        views = [PartitionView(TOPIC, number, log.leader, log.epoch) for number, log in enumerate(self.logs)]
        nodes = {node_id: ClusterNode(node_id, f"b{node_id}", 9092) for node_id in BROKERS}
        return Cluster("cluster", nodes, {view.key: view for view in views}, {TOPIC: self.topic_id} if views else {})

    # --- answers -----------------------------------------------------------------------------------------------------

    def has_news(self, fetch: Fetch) -> bool:
        """Return True if the leader answers before the wait is over."""
        damaged = set(self.damaged)
        answers = self.fetched(fetch)
        self.damaged = damaged
        return any(each.code is not ErrorCode.NONE or each.batches for each in answers)

    def fetched(self, fetch: Fetch) -> list[Fetched]:
        room = fetch.request.max_bytes
        answers: list[Fetched] = []
        for wanted in fetch.request.partitions:
            answer = self._fetched(fetch.node.node_id, wanted, room, is_first=not any(each.batches for each in answers))
            room -= len(answer.batches)
            answers.append(answer)
        return answers

    def _fetched(self, node_id: int, wanted: PartitionFetch, room: int, *, is_first: bool) -> Fetched:
        place = wanted.place
        code, hint = self._judge(node_id, place, wanted.leader_epoch)
        if code is not ErrorCode.NONE:
            return Fetched(place, code, current_leader=hint)
        log = self.logs[place.partition]
        if not log.start.offset <= wanted.offset <= log.end:
            return Fetched(place, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=log.start.offset)
        data, room = b"", min(room, wanted.max_bytes)
        for batch in log.batches:
            if batch.end_offset <= wanted.offset or batch.end_offset > log.high_watermark:
                continue
            if len(batch.data) > room and not (is_first and not data):
                break
            data += batch.data
            room -= len(batch.data)
        if place.partition in self.damaged and data:
            self.damaged.discard(place.partition)
            data = data[:-1] + bytes([data[-1] ^ 1])
        return Fetched(place, ErrorCode.NONE, "", log.high_watermark, log.start.offset, data)

    def offsets(self, ask: AskOffsets) -> list[FoundOffset]:
        return [self._offset(ask.node.node_id, question) for question in ask.questions]

    def _offset(self, node_id: int, question: OffsetQuestion) -> FoundOffset:
        place = question.place
        code, hint = self._judge(node_id, place, question.leader_epoch)
        if code is not ErrorCode.NONE:
            return FoundOffset(place, code, current_leader=hint)
        log = self.logs[place.partition]
        if question.wanted is EndOfLog.EARLIEST:
            return FoundOffset(place, offset=log.start.offset)
        if question.wanted is EndOfLog.LATEST:
            return FoundOffset(place, offset=log.high_watermark)
        assert isinstance(question.wanted, int)
        for batch in log.batches:
            if batch.first_timestamp_ms >= question.wanted and batch.end_offset <= log.high_watermark:
                return FoundOffset(place, offset=batch.base_offset)
        return FoundOffset(place)

    def epochs(self, ask: AskEpochs) -> list[EpochEnd]:
        return [self._epoch(ask.node.node_id, question) for question in ask.questions]

    def _epoch(self, node_id: int, question: EpochQuestion) -> EpochEnd:
        place = question.place
        code, hint = self._judge(node_id, place, question.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return EpochEnd(place, code, current_leader=hint)
        return EpochEnd(place, end=self.logs[place.partition].shape.end_of_epoch(question.leader_epoch))

    def _judge(
        self, node_id: int, place: TopicIdPartition, epoch: int | None
    ) -> tuple[ErrorCode, CurrentLeader | None]:
        if place.partition in self.refusals:
            return self.refusals[place.partition], None
        if place.topic_id != self.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        log = self.logs[place.partition]
        hint = CurrentLeader(log.leader, log.epoch) if self.has_hints else None
        if log.leader != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, hint
        if epoch is not None and epoch < log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, hint
        if epoch is not None and epoch > log.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH, None
        return ErrorCode.NONE, None


def key(partition: int = 0) -> TopicPartition:
    return TopicPartition(TOPIC, partition)
