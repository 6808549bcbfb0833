"""The strict replay of one share. The replay goes on behind records that do not fit.

The production delta applies each record, so each law is defined once. A record that does not fit changes nothing and is noted.
Two more laws are checked here, which no node checks: no partition is led by a fenced broker (`leaders`), and no topic id is used
twice, even long after its topic was removed.

*Transactions* as in `metadata_log.image.replay`: the records take effect at once, and an abort returns to the image before the
transaction. This image is made when the first record of the transaction comes, because most transactions concern few shares.

The digests of all shares add up to the image's, because share 0 alone counts the common records.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Final, cast

from metadata_log.format.codec import UnknownRecord, decode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.partition_bytes import CHANGE_MARK, ID_AT, NUMBER_AT, NUMBER_SIZES, number_of, pack
from metadata_log.format.partition_runs import run_of
from metadata_log.format.partition_state import ISR, LEADER
from metadata_log.format.records import (
    FIRST_CONTROL_TYPE,
    METADATA_VERSION,
    TYPE_NUMBERS,
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    ClearElr,
    EndTransaction,
    EpochsRaised,
    FeatureLevel,
    MetadataRecord,
    Partition,
    PartitionChange,
    PartitionColumns,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
    level_problem,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.digest import record_hash
from metadata_log.image.image_editor import DeltaKind, Law
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage
from snapshots.offline.rows import FROM_SNAPSHOT, peek_type
from snapshots.offline.shares.dealing import (
    BATCH_BEGINS,
    COMMON,
    MALFORMED,
    PROBLEM,
    SIZE,
    UNKNOWN,
    unknown_text,
)
from snapshots.offline.shares.leaders import Leaders, LedBy
from snapshots.offline.shares.misfits import Found, Misfits
from snapshots.offline.shares.steps import Steps

MARKERS: Final = "transaction-markers"
BASE: Final = "snapshot-misfit"
_COMMON_CLASSES: Final = tuple(cls for cls, number in TYPE_NUMBERS.items() if number in COMMON)
_NEEDS_STATES: Final = (RemoveTopic, EpochsRaised, ClearElr)
"""Records whose effect depends on the states of many partitions."""
_OF_BROKERS: Final = (RegisterBroker, BrokerRegistrationChange, UnregisterBroker)


class Share:
    """One share of a log, and what its replay finds."""

    def __init__(self, number: int, cuts: Sequence[Offset]) -> None:
        self._number = number
        self._cuts = [*sorted(cuts)]
        self._loading: MetadataDelta | None = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.LOADING)
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._steps = Steps()
        self._leaders = Leaders()
        self._topics: dict[Uuid, str] = {}
        """The live topics. Needed to name a partition."""
        self._dead_topics: set[Uuid] = set()
        self._open: str | None = None
        """The name of the open transaction."""
        self._before: tuple[MetadataImage, Leaders] | None = None
        """The state before the first record of the open transaction in this share."""
        self._died_inside: list[Uuid] = []
        """Topics that the open transaction has removed."""
        self.image = EMPTY_IMAGE
        """The image at the last cut."""
        self.misfits = Misfits()
        self.digests: dict[Offset, tuple[int, int]] = {}
        """Digest and number of canonical records at each cut, without the common records unless this is share 0."""

    def take(self, generation: int, offsets: bytes, sizes: bytes, payload: bytes) -> None:
        """Take one row of `DEALT`, in order."""
        places, lengths = array("q"), array("I")
        places.frombytes(offsets)
        lengths.frombytes(sizes)
        if generation == FROM_SNAPSHOT:
            self._load(places, lengths, payload)
        else:
            self._end_loading()
            self._replay(places, lengths, payload)

    def finish(self) -> None:
        """Note the digests at the cuts that are left."""
        self._end_loading()
        self._end_batch()
        while self._cuts:
            self._cut()

    # --- the snapshot below the log ---

    def _load(self, places: Sequence[int], sizes: Sequence[int], payload: bytes) -> None:
        loading, at = self._loading, 0
        assert loading is not None, "the snapshot comes first"
        for place, size in zip(places, sizes, strict=True):
            length = size & SIZE
            packed = payload[at : at + length]
            at += length
            if size & PROBLEM:
                self._note_problem(place, packed)
                continue
            record = cast(MetadataRecord | PartitionColumns, decode_record(packed))
            try:
                if isinstance(record, PartitionColumns):
                    loading.extend(run_of(record), place)
                else:
                    loading.replay(record, place)
            except InvalidRecord as e:
                reason = f"record {place} of the snapshot: {e.reason}"
                self.misfits.add(record, 0, BASE, reason, is_told=self._is_told(record))

    def _end_loading(self) -> None:
        if self._loading is None:
            return
        image = self._loading.finish(NOWHERE)
        self._loading, self._delta = None, MetadataDelta(image)
        self._leaders.fenced.update(broker_id for broker_id, broker in image.brokers.items() if broker.fenced)
        for topic in image.topics_by_id.unordered_values():
            self._topics[topic.topic_id] = topic.name
            self._leaders.led.update(state[LEADER] for state in topic.states())

    # --- the log ---

    def _replay(self, places: Sequence[Offset], sizes: Sequence[int], payload: bytes) -> None:
        now, sizes_of_numbers, at = self._steps.now, NUMBER_SIZES, 0
        next_cut = self._cuts[0] if self._cuts else 1 << 63
        for offset, size in zip(places, sizes, strict=True):
            if size > SIZE:
                if size & BATCH_BEGINS:
                    self._end_batch()
                    while offset >= next_cut:
                        self._cut()
                        next_cut = self._cuts[0] if self._cuts else 1 << 63
                if size & PROBLEM:
                    at += size & SIZE
                    self._note_problem(offset, payload[at - (size & SIZE) : at])
                    continue
                size &= SIZE
            end = at + size
            if payload[at + 1 : at + ID_AT] == CHANGE_MARK and size > NUMBER_AT:
                number_end = at + NUMBER_AT + sizes_of_numbers.get(payload[at + NUMBER_AT], size)
                key = payload[at + ID_AT : number_end]
                entry = now.get(key) or self._steps.open(self._delta, key)
                step = None if entry is None else entry[0].steps.get(payload[number_end:end])
                if step is not None and (self._open is None or self._before is not None):
                    # The effect that the delta had at the first change of this kind. Nearly all records end here.
                    assert entry is not None
                    leader = entry[0].leader
                    entry[0] = shape = step[0]
                    entry[1] += step[1]
                    entry[2] += 1
                    if shape.leader != leader:
                        place = payload[at + ID_AT : at + NUMBER_AT], number_of(payload[at + NUMBER_AT : number_end])
                        self._leaders.moved(leader, shape.leader, place, offset)
                    at = end
                    continue
            self._take(offset, payload[at:end])
            at = end

    def _note_problem(self, offset: Offset, text: bytes) -> None:
        rule, _, reason = text.decode().partition("\n")
        self.misfits.tell(Found(offset, rule, (), reason))

    def _take(self, offset: Offset, piece: bytes) -> None:
        try:
            record = decode_record(piece)
        except LogFormatError as e:
            is_told = self._number == 0 or peek_type(piece) not in COMMON
            self.misfits.tell(Found(offset, MALFORMED, (), str(e), is_told=is_told))
            return
        if isinstance(record, UnknownRecord):
            is_told = self._number == 0 or record.type_number not in COMMON
            self.misfits.tell(Found(offset, UNKNOWN, (), unknown_text(record), is_told=is_told))
        elif isinstance(record, BeginTransaction | EndTransaction | AbortTransaction):
            self._mark(record, offset)
        elif TYPE_NUMBERS[type(record)] >= FIRST_CONTROL_TYPE:
            reason = f"a control record, {type(record).__name__}, in a data batch"
            self.misfits.tell(Found(offset, MALFORMED, (), reason))
        else:
            if self._open is not None and self._before is None:
                self._before = self._image_now(), self._leaders.copy()
                self._died_inside.clear()
            try:
                self._apply(cast(MetadataRecord, record), offset, piece)
            except InvalidRecord as e:
                self.misfits.add(record, offset, e.law, e.reason, is_told=self._is_told(record))

    def _is_told(self, record: Record | PartitionColumns) -> bool:
        """Return True if this share reports a misfit of the record. Of records that all shares have, share 0 alone does."""
        is_common = isinstance(record, _COMMON_CLASSES) or record == ClearElr(None, None)
        return self._number == 0 or not is_common

    def _apply(self, record: MetadataRecord, offset: Offset, piece: bytes) -> None:
        """Replay one record.

        Raises:
            InvalidRecord: the record does not fit, and has changed nothing.
        """
        delta, leaders = self._delta, self._leaders
        if isinstance(record, PartitionChange):
            number = pack(record.partition)
            fields = piece[NUMBER_AT + len(number) :] if piece[NUMBER_AT:].startswith(number) else piece
            topic = self._topics.get(record.topic_id, "")
            old = self._steps.replay(delta, record, record.topic_id + number, fields, topic, offset)
            if record.leader is not None and record.leader != old.leader:
                leaders.moved(old.leader, record.leader, (record.topic_id, record.partition), offset)
            return
        if isinstance(record, _NEEDS_STATES):
            if record.topic_id is None:
                self._steps.flush(delta)
            else:
                self._steps.flush_topic(delta, record.topic_id)
        led = [*self._leaders_of(record.topic_id)] if isinstance(record, RemoveTopic) else []
        delta.replay(record, offset)
        if isinstance(record, Partition):
            leaders.came(record.leader, (record.topic_id, record.partition), offset)
        elif isinstance(record, _OF_BROKERS):
            broker = delta.broker(record.broker_id)
            leaders.broker(record.broker_id, broker is not None and broker.fenced, offset)
        elif isinstance(record, FeatureLevel) and record.name == METADATA_VERSION:
            self._steps.forget(delta)
        elif isinstance(record, RemoveTopic):
            leaders.led.subtract(led)
            self._dead_topics.add(record.topic_id)
            self._died_inside.append(record.topic_id)
            self._topics.pop(record.topic_id, None)
        elif isinstance(record, Topic):
            self._topics[record.topic_id] = record.name
            if record.topic_id in self._dead_topics:
                raise InvalidRecord(offset, "this topic id was used before", Law.TOPIC_ID)

    def _leaders_of(self, topic_id: Uuid) -> Iterator[NodeId]:
        for number in range(self._delta.partition_count(topic_id)):
            state = self._delta.partition_state(topic_id, number)
            assert state is not None
            yield state[LEADER]

    # --- transactions ---

    def _mark(self, record: BeginTransaction | EndTransaction | AbortTransaction, offset: Offset) -> None:
        name = type(record).__name__
        if isinstance(record, BeginTransaction):
            problem = level_problem(record, self._delta.level)
            if problem is not None:
                self._marker_misfit(offset, Law.LEVEL, problem)
            elif self._open is not None:
                self._marker_misfit(offset, MARKERS, f"transaction {record.name!r} begins inside {self._open!r}")
            else:
                self._open = record.name
            return
        if self._open is None:
            self._marker_misfit(offset, MARKERS, f"{name} without a transaction")
            return
        self._open = None
        if isinstance(record, AbortTransaction) and self._before is not None:
            image, self._leaders = self._before
            self._topics = {topic.topic_id: topic.name for topic in image.topics_by_id.unordered_values()}
            self._dead_topics.difference_update(self._died_inside)
            self._delta = MetadataDelta(image)
            self._steps.now.clear()
            self._steps.forget(self._delta)
        self._before = None

    def _marker_misfit(self, offset: Offset, rule: str, reason: str) -> None:
        self.misfits.tell(Found(offset, rule, ("transaction",), reason, is_told=self._number == 0))

    # --- ends of batches, and cuts ---

    def _end_batch(self) -> None:
        """Check the leaders, unless a transaction is open: it takes effect at its end."""
        if self._leaders.may_be_broken and self._open is None:
            for found in self._leaders.check(self._led_by, self._partitions):
                self.misfits.tell(found)

    def _led_by(self, topic_id: Uuid, number: int) -> LedBy | None:
        entry = self._steps.now.get(topic_id + pack(number))
        state = self._delta.partition_state(topic_id, number)
        if state is None:
            return None
        return LedBy(
            topic_id, f"{self._topics[topic_id]}-{number}", state[LEADER] if entry is None else entry[0].leader
        )

    def _partitions(self) -> Iterator[tuple[Uuid, int]]:
        for topic_id in self._topics:
            for number in range(self._delta.partition_count(topic_id)):
                yield topic_id, number

    def _image_now(self) -> MetadataImage:
        """Return the image after the records so far, and go on from there."""
        self._steps.flush(self._delta)
        image = self._delta.finish(NOWHERE)
        self._delta = MetadataDelta(image)
        return image

    def _cut(self) -> None:
        """Note the digest at the next cut. Inside a transaction it is that of the image before."""
        self.image = image = self._image_now() if self._before is None else self._before[0]
        digest, count = image.digest, image.record_count
        if self._number != 0:
            common: list[MetadataRecord] = [*starmap(FeatureLevel, image.features.items())]
            common += [*image.brokers.values(), *image.broker_modes.values()]
            for record in common:
                digest -= record_hash(record)
                count -= 1
        self.digests[self._cuts.pop(0)] = digest, count

    # --- the state at the last cut ---

    def record_types(self) -> Counter[str]:
        """Count the canonical records at the last cut by type, without the common records unless this is share 0."""
        types = Counter(
            type(record).__name__ for record in self.image.canonical_records() if not isinstance(record, Partition)
        )
        types["Partition"] = self.image.partition_count
        if self._number != 0:
            for cls in _COMMON_CLASSES:
                del types[cls.__name__]
        return types

    def in_isr(self) -> dict[NodeId, str]:
        """Return the brokers in any ISR with a leader at the last cut, each with one partition as an example. The ISR of a
        partition without a leader may have fenced members, so that the log still says who has the data.
        """
        examples: dict[NodeId, str] = {}
        for topic in self.image.topics():
            for number, state in enumerate(topic.states()):
                if state[LEADER] in state[ISR] and not examples.keys() >= set(state[ISR]):
                    examples = {**dict.fromkeys(state[ISR], f"{topic.name}-{number}"), **examples}
        return examples
