"""The history of one topic, in one pass over its records: leaderships, conditions, ISR changes, and what changed.

    records of the state (generation 0)   -> the image at the begin
    records of the log, step by step      -> an image per step; the difference of two images makes rows
    the end                               -> open intervals, and the state for the next run

Beside the image the pass keeps the open intervals of the topic's partitions, so the memory grows with the partitions of one
topic, and not with the log. The effect of each record is that of replay (`MetadataDelta`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple, cast

from metadata_log.format.ids import NO_LEADER, Offset, parse_uuid
from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH, REPLICAS, PartitionState, partition_of
from metadata_log.format.records import MetadataRecord, PartitionChange
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.entity_key import EntityKey
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage
from metadata_log.image.topic_image import TopicImage
from snapshots.offline.history.folding import conditions
from snapshots.offline.history.folding.changes import partition_changes, record_changes
from snapshots.offline.history.folding.intervals import closed, day_of, event, opened
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.folding.timelines import BrokerTimeline, MinIsrTimeline
from snapshots.offline.history.tables import CHANGES, COUNTS, ISR_CHANGES, LEADERSHIP, PARTITION_CONDITIONS, Row

Placed = tuple[Offset, MetadataRecord]
TableRow = tuple[str, Row]
Change = tuple[int, PartitionState | None, PartitionState]
"""A partition's number, and its states before and after a step; None: the partition is new."""


class Timelines(NamedTuple):
    """The facts about the whole cluster."""

    brokers: BrokerTimeline
    min_isr: MinIsrTimeline


class TopicHistory:
    """The pass over one topic. Call `load`, then `step` for each step, then `finish`."""

    def __init__(self, key: EntityKey, timelines: Timelines) -> None:
        self._key = key
        self._topic_id = parse_uuid(key[1])
        self._brokers, self._min_isr = timelines
        self._image: MetadataImage = EMPTY_IMAGE
        self._topic: TopicImage | None = None
        self._now: dict[int, PartitionState] = {}
        """The states of partitions that are newer than the image."""
        self._laws = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
        self._leaderships: dict[int, Row] = {}
        self._conditions: dict[tuple[int, str], Row] = {}
        self._known_min_isr: int | None = None
        self._counts: dict[date, Counter[str]] = {}

    @property
    def topic(self) -> TopicImage | None:
        """The topic, as it was when a record that is no change of a partition came last; None: it does not exist."""
        return self._topic

    @property
    def image(self) -> MetadataImage:
        """The image after the last step."""
        if self._now:
            delta = MetadataDelta(self._image, kind=DeltaKind.FOLDING)
            for number, state in self._now.items():
                delta.put_state(self._topic_id, number, state)
            self._now.clear()
            self._finish(delta)
        return self._image

    def _finish(self, delta: MetadataDelta) -> None:
        self._image = delta.finish(NOWHERE)
        self._topic = self._image.topic_by_id(self._topic_id)

    def load(self, records: Iterable[Placed], open_rows: Iterable[TableRow], begin: Step, *, goes_on: bool) -> None:
        """Begin with the state at `begin`. `goes_on`: the tables of an earlier run end there, with these open intervals."""
        delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.FOLDING)
        for place, record in records:
            delta.replay(record, place)
        self._finish(delta)
        for table, row in open_rows:
            if table == LEADERSHIP:
                self._leaderships[row["partition"]] = row
            else:
                self._conditions[row["partition"], row["condition"]] = row
        topic = self.topic
        if topic is None:
            return
        self._known_min_isr = self._min_isr.at(topic.name, begin.offset)
        if not goes_on:
            for number, state in enumerate(topic.states()):
                self._open(topic, number, state, begin, began_before=True)

    def steps_of_configs(self) -> list[Step]:
        """Return the steps at which `min.insync.replicas` of the topic may change; none if the topic does not exist."""
        topic = self.topic
        return [] if topic is None else self._min_isr.steps(topic.name)

    def step(self, step: Step, records: Iterable[Placed]) -> Iterator[TableRow]:
        """Apply the records of one step; at a step of a config there may be none."""
        some = [*records]
        topic = self._topic
        if topic is not None and all(type(record) is PartitionChange for _, record in some):
            yield from self._only_changes(topic, cast(list[tuple[Offset, PartitionChange]], some), step)
            return
        delta = MetadataDelta(self.image, kind=DeltaKind.FOLDING)
        before = self._topic
        for offset, record in some:
            delta.replay(record, offset)
        self._finish(delta)
        after = self._topic
        self._count(step, before, after)
        if before is None and after is not None:
            yield from self._created(after, step)
        elif before is not None and after is None:
            yield from self._removed(before, step)
        elif before is not None and after is not None:
            numbers = sorted(delta.changed.partitions.get(self._topic_id, ()))
            yield from self._changed(after, [(each, before.state(each), after.state(each)) for each in numbers], step)

    def finish(self) -> Iterator[TableRow]:
        """Return the open intervals, and the counts of the days."""
        for row in self._leaderships.values():
            yield LEADERSHIP, row
        for row in self._conditions.values():
            yield PARTITION_CONDITIONS, row
        for day, counts in self._counts.items():
            yield COUNTS, {"date": day, **counts}

    # --- one step ---

    def _created(self, topic: TopicImage, step: Step) -> Iterator[TableRow]:
        self._known_min_isr = self._min_isr.at(topic.name, step.offset)
        for row in record_changes(self._key, None, topic.record, step, topic.name):
            yield CHANGES, row
        for number, state in enumerate(topic.states()):
            yield from self._added(topic, number, state, step)

    def _added(self, topic: TopicImage, number: int, state: PartitionState, step: Step) -> Iterator[TableRow]:
        self._open(topic, number, state, step, began_before=False)
        record = partition_of(self._topic_id, number, state)
        for row in record_changes(self._key, None, record, step, topic.name):
            yield CHANGES, row

    def _removed(self, topic: TopicImage, step: Step) -> Iterator[TableRow]:
        for row in record_changes(self._key, topic.record, None, step, topic.name):
            yield CHANGES, row
        for leadership in self._leaderships.values():
            yield (
                LEADERSHIP,
                closed(
                    leadership, step, end_reason=conditions.TOPIC_REMOVED, next_leader=None, principal=step.principal
                ),
            )
        for condition in self._conditions.values():
            yield PARTITION_CONDITIONS, closed(condition, step)
        self._leaderships.clear()
        self._conditions.clear()

    def _only_changes(
        self, topic: TopicImage, records: Iterable[tuple[Offset, PartitionChange]], step: Step
    ) -> Iterator[TableRow]:
        """Apply changes of partitions, nearly all records of a log: no image is made for them."""
        olds: dict[int, PartitionState] = {}
        for offset, record in records:
            number = record.partition
            state = self._now.get(number) or topic.state(number)
            if state is None:
                self._laws.replay(record, offset)
                raise AssertionError(f"{record} fits, and there is no such partition")
            olds.setdefault(number, state)
            self._now[number] = self._laws.state_after(state, record, topic.name, offset)
        yield from self._changed(topic, [(number, olds[number], self._now[number]) for number in sorted(olds)], step)

    def _changed(
        self,
        topic: TopicImage,
        changed: Iterable[tuple[int, PartitionState | None, PartitionState | None]],
        step: Step,
    ) -> Iterator[TableRow]:
        known, self._known_min_isr = self._known_min_isr, self._min_isr.at(topic.name, step.offset)
        for number, old, new in changed:
            assert new is not None
            if old is None:
                yield from self._added(topic, number, new, step)
            elif old != new:
                yield from self._partition_changed(topic, number, old, new, step)
        if known != self._known_min_isr:
            for number, state in enumerate(topic.states()):
                now = self._now.get(number, state)
                yield from self._judge(topic, number, now, step, last_leader=now[LEADER])

    def _partition_changed(
        self, topic: TopicImage, number: int, old: PartitionState, new: PartitionState, step: Step
    ) -> Iterator[TableRow]:
        for row in partition_changes(f"{topic.name}-{number}", old, new, step):
            yield CHANGES, row
        if set(old[ISR]) != set(new[ISR]):
            yield ISR_CHANGES, self._isr_change(topic, number, old, new, step)
        if (old[LEADER], old[LEADER_EPOCH]) != (new[LEADER], new[LEADER_EPOCH]):
            reason = conditions.end_reason(old, new, step, self._brokers)
            next_leader = conditions.shown_leader(new[LEADER])
            yield (
                LEADERSHIP,
                closed(
                    self._leaderships[number],
                    step,
                    end_reason=reason,
                    next_leader=next_leader,
                    principal=step.principal,
                ),
            )
            self._leaderships[number] = self._leadership(topic, number, new, step, began_before=False)
        yield from self._judge(topic, number, new, step, last_leader=old[LEADER])

    def _isr_change(self, topic: TopicImage, number: int, old: PartitionState, new: PartitionState, step: Step) -> Row:
        return event(
            step, **self._named(topic, number), leader=conditions.shown_leader(new[LEADER]),
            leader_epoch=new[LEADER_EPOCH], before=[*old[ISR]], after=[*new[ISR]],
            left=[each for each in old[ISR] if each not in new[ISR]],
            joined=[each for each in new[ISR] if each not in old[ISR]],
        )  # fmt: skip

    # --- intervals ---

    def _named(self, topic: TopicImage, number: int) -> Row:
        return {"topic": topic.name, "topic_id": self._key[1], "partition": number}

    def _leadership(
        self, topic: TopicImage, number: int, state: PartitionState, step: Step, *, began_before: bool
    ) -> Row:
        leader = conditions.shown_leader(state[LEADER])
        named = self._named(topic, number)
        return opened(step, began_before=began_before, **named, leader=leader, leader_epoch=state[LEADER_EPOCH])

    def _open(self, topic: TopicImage, number: int, state: PartitionState, step: Step, *, began_before: bool) -> None:
        self._leaderships[number] = self._leadership(topic, number, state, step, began_before=began_before)
        assert self._known_min_isr is not None
        for condition in conditions.conditions_of(state, self._known_min_isr):
            row = self._condition(topic, number, condition, state, step, NO_LEADER, began_before=began_before)
            self._conditions[number, condition] = row

    def _condition(
        self, topic: TopicImage, number: int, condition: str, state: PartitionState, step: Step, last_leader: int,
        *, began_before: bool,
    ) -> Row:  # fmt: skip
        return opened(
            step, began_before=began_before, **self._named(topic, number), condition=condition,
            replicas=[*state[REPLICAS]], isr=[*state[ISR]], min_isr=self._known_min_isr,
            last_leader=conditions.shown_leader(last_leader), absent=conditions.absent(state, step, self._brokers),
        )  # fmt: skip

    def _judge(
        self, topic: TopicImage, number: int, state: PartitionState, step: Step, *, last_leader: int
    ) -> Iterator[TableRow]:
        """End and begin the conditions of a partition."""
        assert self._known_min_isr is not None
        holds = conditions.conditions_of(state, self._known_min_isr)
        for condition in (conditions.UNDER_REPLICATED, conditions.UNDER_MIN_ISR, conditions.OFFLINE):
            key = (number, condition)
            if condition in holds and key not in self._conditions:
                row = self._condition(topic, number, condition, state, step, last_leader, began_before=False)
                self._conditions[key] = row
            elif condition not in holds and key in self._conditions:
                yield PARTITION_CONDITIONS, closed(self._conditions.pop(key), step)

    def _count(self, step: Step, before: TopicImage | None, after: TopicImage | None) -> None:
        if (before is None) is not (after is None):
            self._counted(step)["topics_created" if before is None else "topics_removed"] += 1
        more = (0 if after is None else after.partition_count) - (0 if before is None else before.partition_count)
        if more:
            self._counted(step)["partitions_created" if more > 0 else "partitions_removed"] += abs(more)

    def _counted(self, step: Step) -> Counter[str]:
        return self._counts.setdefault(day_of(step.time_ms), Counter())
