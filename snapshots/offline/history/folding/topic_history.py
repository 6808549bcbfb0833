"""The history of one topic, in one pass over its records: leaderships, conditions, ISR changes, and what changed.

    records of the state (generation 0)   -> the image at the begin
    records of the log, step by step      -> the partitions that moved; each move makes rows
    the end                               -> open intervals, and the state for the next run

Beside the image the pass keeps the open intervals of the topic's partitions, so the memory grows with the partitions of one
topic, and not with the log. The effect of each record is that of replay (`MetadataDelta`).

Nearly all records are changes of partitions. A step of such records only is not decoded, and makes no image: the remembered steps
of `snapshots.offline.shares.steps` know the effect of the bytes, and `moves` knows the rows. Every other step makes an image.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import NamedTuple, cast

from metadata_log.format.codec import decode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER, Offset, parse_uuid
from metadata_log.format.partition_bytes import CHANGE_MARK, ID_AT, NUMBER_AT, NUMBER_SIZES, pack
from metadata_log.format.partition_state import (
    ISR,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    REPLICAS,
    PartitionState,
    partition_of,
)
from metadata_log.format.records import MetadataRecord, PartitionChange
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.entity_key import EntityKey
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage
from metadata_log.image.topic_image import TopicImage
from snapshots.offline.history.folding import conditions
from snapshots.offline.history.folding.changes import change, record_changes
from snapshots.offline.history.folding.intervals import closed, day_of, moment, opened
from snapshots.offline.history.folding.moves import Moves
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.folding.timelines import BrokerTimeline, MinIsrTimeline
from snapshots.offline.history.tables import (
    CHANGES,
    ISR_CHANGES,
    LEADERSHIP,
    PARTITION_CONDITIONS,
    Row,
    Values,
    values_of,
)
from snapshots.offline.shares.steps import Shape, place_of
from snapshots.offline.shares.steps import Steps as RememberedSteps

Packed = tuple[Offset, bytes]
"""The offset and the bytes of a record."""
OpenRow = tuple[str, Row]
"""A table, and an interval of it that is open."""
TableRow = tuple[str, Values]
"""A table, and a row of it."""


class Timelines(NamedTuple):
    """The facts about the whole cluster."""

    brokers: BrokerTimeline
    min_isr: MinIsrTimeline


class _Part(NamedTuple):
    """A partition between two steps."""

    shape: Shape
    leader_epoch: int
    partition_epoch: int


class TopicHistory:
    """The pass over one topic. Call `load`, then `step` for each step, then `finish`. The topics of one task share the remembered
    steps and moves.
    """

    def __init__(self, key: EntityKey, timelines: Timelines, remembered: RememberedSteps, moves: Moves) -> None:
        self._key = key
        self._topic_id = parse_uuid(key[1])
        self._brokers, self._min_isr = timelines
        self._remembered = remembered
        self._moves = moves
        self._image: MetadataImage = EMPTY_IMAGE
        """The image at the last step that made one. The states of partitions that changed since are in `_remembered`."""
        self._delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
        self._topic: TopicImage | None = None
        self._leaderships: dict[int, Row] = {}
        self._conditions: dict[int, dict[str, Row]] = {}
        self._known_min_isr: int | None = None
        self.counts: dict[date, Counter[str]] = {}
        """How many topics and partitions were created and removed, of each day."""
        self._rows: list[TableRow] = []
        """The rows of the current step."""

    @property
    def topic(self) -> TopicImage | None:
        """The topic, as at the last step that made an image; None: it does not exist."""
        return self._topic

    def load(self, records: Iterable[Packed], open_rows: Iterable[OpenRow], begin: Step, *, goes_on: bool) -> None:
        """Begin with the state at `begin`. `goes_on`: the tables of an earlier run end there, with these open intervals."""
        self._replay(records)
        for table, row in open_rows:
            if table == LEADERSHIP:
                self._leaderships[row["partition"]] = row
            else:
                self._conditions.setdefault(row["partition"], {})[row["condition"]] = row
        topic = self._topic
        if topic is None:
            return
        self._known_min_isr = self._min_isr.at(topic.name, begin.offset)
        if not goes_on:
            for number, state in enumerate(topic.states()):
                self._open(topic, number, state, begin, began_before=True)

    def steps_of_configs(self) -> list[Step]:
        """Return the steps at which `min.insync.replicas` of the topic may change; none if the topic does not exist."""
        return [] if self._topic is None else self._min_isr.steps(self._topic.name)

    def step(self, step: Step, records: Sequence[Packed]) -> list[TableRow]:
        """Apply the records of one step, and return its rows; at a step of a config there may be no record.

        Raises:
            LogFormatError: a record cannot be decoded, or does not fit.
        """
        self._rows = []
        topic = self._topic
        if topic is not None and all(packed[1:ID_AT] == CHANGE_MARK for _, packed in records):
            self._move(topic, records, step)
        else:
            self._any(records, step)
        return self._rows

    def finish(self) -> Iterator[OpenRow]:
        """Return the open intervals."""
        for row in self._leaderships.values():
            yield LEADERSHIP, row
        for some in self._conditions.values():
            for row in some.values():
                yield PARTITION_CONDITIONS, row

    def image(self) -> MetadataImage:
        """Return the image after the last step."""
        self._remembered.flush(self._delta)
        self._finish(self._delta)
        return self._image

    def _replay(self, records: Iterable[Packed]) -> tuple[TopicImage | None, set[int]]:
        """Replay records, and make the image. Return the topic before, and the numbers of the partitions that changed."""
        delta = MetadataDelta(self.image(), kind=DeltaKind.FOLDING)
        before = self._topic
        for offset, packed in records:
            delta.replay(_decoded(packed, offset), offset)
        self._finish(delta)
        return before, delta.changed.partitions.get(self._topic_id, set())

    def _finish(self, delta: MetadataDelta) -> None:
        """Let the image be that of `delta`, and go on from there."""
        self._image = delta.finish(NOWHERE)
        self._topic = self._image.topic_by_id(self._topic_id)
        self._delta = MetadataDelta(self._image, kind=DeltaKind.FOLDING)

    # --- a step of changes only ---

    def _move(self, topic: TopicImage, records: Iterable[Packed], step: Step) -> None:
        """Apply changes of partitions."""
        olds: dict[bytes, _Part] = {}
        now = self._remembered.now
        for offset, packed in records:
            number_end = NUMBER_AT + NUMBER_SIZES.get(packed[NUMBER_AT], len(packed))
            key = packed[ID_AT:number_end]
            entry = now.get(key) or self._remembered.open(self._delta, key)
            known = None if entry is None else entry[0].steps.get(packed[number_end:])
            if entry is None or known is None:
                self._move_anew(topic, packed, offset, olds)
                continue
            if key not in olds:
                olds[key] = _Part(*entry)
            entry[0] = known[0]
            entry[1] += known[1]
            entry[2] += 1
        self._end_step(topic, [(place_of(key)[1], old, self._part(key)) for key, old in olds.items()], step)

    def _move_anew(self, topic: TopicImage, packed: bytes, offset: Offset, olds: dict[bytes, _Part]) -> None:
        """Apply a change whose bytes are new to the shape of its partition."""
        record = cast(PartitionChange, _decoded(packed, offset))
        number = pack(record.partition)
        key = record.topic_id + number
        entry = self._remembered.now.get(key) or self._remembered.open(self._delta, key)
        if entry is not None and key not in olds:
            olds[key] = _Part(*entry)
        fields = packed[NUMBER_AT + len(number) :] if packed[NUMBER_AT:].startswith(number) else packed
        self._remembered.replay(self._delta, record, key, fields, topic.name, offset)

    def _part(self, key: bytes) -> _Part:
        """Return a partition that exists."""
        entry = self._remembered.now.get(key) or self._remembered.open(self._delta, key)
        assert entry is not None, key
        return _Part(*entry)

    def _end_step(self, topic: TopicImage, moved: list[tuple[int, _Part, _Part]], step: Step) -> None:
        known, self._known_min_isr = self._known_min_isr, self._min_isr.at(topic.name, step.offset)
        for number, old, new in sorted(moved):
            self._moved(topic, number, old, new, step)
        if known != self._known_min_isr:
            for number in range(topic.partition_count):
                part = self._part(self._topic_id + pack(number))
                self._judge(topic, number, part.shape, step, last_leader=part.shape.leader)

    # --- any other step ---

    def _any(self, records: Iterable[Packed], step: Step) -> None:
        before, numbers = self._replay(records)
        after = self._topic
        self._count(step, before, after)
        if before is None and after is not None:
            self._created(after, step)
        elif before is not None and after is None:
            self._removed(before, step)
        elif before is not None and after is not None:
            for number in range(before.partition_count, after.partition_count):
                self._added(after, number, step)
            olds = [(number, state) for number in numbers if (state := before.state(number)) is not None]
            keys = [self._topic_id + pack(number) for number, _ in olds]
            moved = [
                (number, self._part_of(old), self._part(key)) for (number, old), key in zip(olds, keys, strict=True)
            ]
            self._end_step(after, moved, step)

    def _part_of(self, state: PartitionState) -> _Part:
        return _Part(self._remembered.shape_of(state), state[LEADER_EPOCH], state[PARTITION_EPOCH])

    def _created(self, topic: TopicImage, step: Step) -> None:
        self._known_min_isr = self._min_isr.at(topic.name, step.offset)
        self._rows += ((CHANGES, row) for row in record_changes(self._key, None, topic.record, step, topic.name))
        for number in range(topic.partition_count):
            self._added(topic, number, step)

    def _added(self, topic: TopicImage, number: int, step: Step) -> None:
        state = topic.state(number)
        assert state is not None
        self._open(topic, number, state, step, began_before=False)
        record = partition_of(self._topic_id, number, state)
        self._rows += ((CHANGES, row) for row in record_changes(self._key, None, record, step, topic.name))

    def _removed(self, topic: TopicImage, step: Step) -> None:
        self._rows += ((CHANGES, row) for row in record_changes(self._key, topic.record, None, step, topic.name))
        for row in self._leaderships.values():
            ended = closed(row, step, end_reason=conditions.TOPIC_REMOVED, next_leader=None, principal=step.principal)
            self._end(LEADERSHIP, ended)
        for some in self._conditions.values():
            for row in some.values():
                self._end(PARTITION_CONDITIONS, closed(row, step))
        self._leaderships.clear()
        self._conditions.clear()

    # --- one partition ---

    def _moved(self, topic: TopicImage, number: int, old: _Part, new: _Part, step: Step) -> None:
        if old == new:
            return
        move = self._moves.between(old.shape, new.shape)
        name = f"{topic.name}-{number}"
        for field, was, now in move.fields or _epochs_between(old, new):
            self._rows.append((CHANGES, change(step, "changed", "partition", name, field, was, now)))
        if move.isr is not None:
            time, day = moment(step.time_ms)
            leader = conditions.shown_leader(new.shape.leader)
            partition = (topic.name, self._key[1], number, leader, new.leader_epoch)
            self._rows.append((ISR_CHANGES, (step.offset, time, *partition, *move.isr, day)))
        if (old.shape.leader, old.leader_epoch) != (new.shape.leader, new.leader_epoch):
            self._lead(topic, number, old, new, step)
        self._judge(topic, number, new.shape, step, last_leader=old.shape.leader)

    def _lead(self, topic: TopicImage, number: int, old: _Part, new: _Part, step: Step) -> None:
        """End a leadership, and begin the next one."""
        ended = closed(
            self._leaderships[number], step, principal=step.principal,
            end_reason=conditions.end_reason(old.shape.state, new.shape.state, step, self._brokers),
            next_leader=conditions.shown_leader(new.shape.leader),
        )  # fmt: skip
        self._end(LEADERSHIP, ended)
        self._leaderships[number] = self._leadership(topic, number, new, step, began_before=False)

    def _named(self, topic: TopicImage, number: int) -> Row:
        return {"topic": topic.name, "topic_id": self._key[1], "partition": number}

    def _leadership(self, topic: TopicImage, number: int, part: _Part, step: Step, *, began_before: bool) -> Row:
        leader, named = conditions.shown_leader(part.shape.leader), self._named(topic, number)
        return opened(step, began_before=began_before, **named, leader=leader, leader_epoch=part.leader_epoch)

    def _open(self, topic: TopicImage, number: int, state: PartitionState, step: Step, *, began_before: bool) -> None:
        part = self._part_of(state)
        self._leaderships[number] = self._leadership(topic, number, part, step, began_before=began_before)
        assert self._known_min_isr is not None
        for condition in self._moves.conditions(part.shape, self._known_min_isr):
            row = self._condition(topic, number, condition, state, step, NO_LEADER, began_before=began_before)
            self._conditions.setdefault(number, {})[condition] = row

    def _condition(
        self, topic: TopicImage, number: int, condition: str, state: PartitionState, step: Step, last_leader: int,
        *, began_before: bool,
    ) -> Row:  # fmt: skip
        return opened(
            step, began_before=began_before, **self._named(topic, number), condition=condition,
            replicas=[*state[REPLICAS]], isr=[*state[ISR]], min_isr=self._known_min_isr,
            last_leader=conditions.shown_leader(last_leader), absent=conditions.absent(state, step, self._brokers),
        )  # fmt: skip

    def _judge(self, topic: TopicImage, number: int, shape: Shape, step: Step, *, last_leader: int) -> None:
        """End and begin the conditions of a partition."""
        assert self._known_min_isr is not None
        holds = self._moves.conditions(shape, self._known_min_isr)
        known = self._conditions.get(number)
        if not holds and not known:
            return
        known = self._conditions.setdefault(number, {})
        for condition in (conditions.UNDER_REPLICATED, conditions.UNDER_MIN_ISR, conditions.OFFLINE):
            if condition in holds and condition not in known:
                row = self._condition(topic, number, condition, shape.state, step, last_leader, began_before=False)
                known[condition] = row
            elif condition not in holds and condition in known:
                self._end(PARTITION_CONDITIONS, closed(known.pop(condition), step))

    def _end(self, table: str, row: Row) -> None:
        self._rows.append((table, values_of(table, row)))

    def _count(self, step: Step, before: TopicImage | None, after: TopicImage | None) -> None:
        if (before is None) is not (after is None):
            self._counted(step)["topics_created" if before is None else "topics_removed"] += 1
        more = (0 if after is None else after.partition_count) - (0 if before is None else before.partition_count)
        if more:
            self._counted(step)["partitions_created" if more > 0 else "partitions_removed"] += abs(more)

    def _counted(self, step: Step) -> Counter[str]:
        return self.counts.setdefault(day_of(step.time_ms), Counter())


def _decoded(packed: bytes, offset: Offset) -> MetadataRecord:
    """Decode a record of a topic. The task that read the log has seen its type and version, and maybe nothing else.

    Raises:
        InvalidRecord: the record cannot be decoded.
    """
    try:
        return cast(MetadataRecord, decode_record(packed))
    except LogFormatError as e:
        raise InvalidRecord(offset, str(e)) from None  # Spark shows the first of a chain


def _epochs_between(old: _Part, new: _Part) -> Iterator[tuple[str, str, str]]:
    """Return the rows of a move that changes epochs only."""
    if old.leader_epoch != new.leader_epoch:
        yield "leader_epoch", str(old.leader_epoch), str(new.leader_epoch)
    if old.partition_epoch != new.partition_epoch:
        yield "partition_epoch", str(old.partition_epoch), str(new.partition_epoch)
