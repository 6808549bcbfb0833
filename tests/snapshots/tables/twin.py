"""The dumb twin of the history: replays the log batch by batch, and compares whole images. Knows no entities and no Spark."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.ids import NO_LEADER, Offset, uuid_text
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, RegisterBroker
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.replay import Replay
from metadata_log.image.skips import skips_in
from quorum.controller.partitions.election_rules import min_isr_of
from quorum.controller.partitions.listing.partition_conditions import (
    is_unavailable,
    is_under_min_isr,
    is_under_replicated,
)
from snapshots.loader import load_packed
from snapshots.offline.compaction import base_of
from snapshots.offline.inputs import find_log
from snapshots.offline.scan import FileRange, scan

Facts = dict[tuple[object, ...], tuple[object, ...]]
"""What holds in one image: key -> value."""


class Interval(NamedTuple):
    """A fact with the images and times between which it held; None: it still holds."""

    key: tuple[object, ...]
    value: tuple[object, ...]
    from_offset: Offset
    from_ms: int
    to_offset: Offset | None
    to_ms: int | None
    began_before: bool


class Moment(NamedTuple):
    """An image, and the place where it began."""

    image: MetadataImage
    offset: Offset
    time_ms: int


def moments(path: Path, until: Offset | None = None) -> Iterator[Moment]:
    """Return the images of a log: first the one at its begin."""
    log = find_log(str(path))
    base = base_of(log)
    begin = EMPTY_IMAGE if base is None else load_packed(log.directory, base).image
    replay = Replay(begin)
    yield Moment(begin, begin.offset, begin.provenance.timestamp_ms)
    batches = [each for each in _batches(path) if each.base_offset >= begin.offset]
    replay.learn(skips_in(batches))
    for batch in batches:
        if until is not None and batch.end_offset > until:
            return
        before = replay.image
        replay.apply([batch])
        if replay.image.digest != before.digest or replay.open is None:
            yield Moment(replay.image, batch.end_offset, batch.last_timestamp_ms)


def _batches(path: Path) -> Iterator[Batch]:
    log = find_log(str(path))
    for segment in log.segments:
        file = log.directory.open(segment.name)
        try:
            for scanned in scan(file, FileRange(segment.name, 0, file.size(), None, None), log.durable_end):
                if scanned.batch is not None:
                    yield scanned.batch
        finally:
            file.close()


def intervals(past: Iterable[Moment], facts_of: "FactsOf") -> set[Interval]:
    """Return how long each fact held."""
    found: set[Interval] = set()
    open_: dict[tuple[object, ...], Interval] = {}
    for number, moment in enumerate(past):
        facts = facts_of(moment.image)
        for key in [key for key, known in open_.items() if facts.get(key) != known.value]:
            found.add(open_.pop(key)._replace(to_offset=moment.offset, to_ms=moment.time_ms))
        for key, value in facts.items():
            if key not in open_:
                open_[key] = Interval(key, value, moment.offset, moment.time_ms, None, None, number == 0)
    return found | set(open_.values())


class FactsOf:
    """The facts of one kind in an image."""

    def __call__(self, image: MetadataImage) -> Facts:
        raise NotImplementedError


class Leaders(FactsOf):
    def __call__(self, image: MetadataImage) -> Facts:
        return {
            (uuid_text(topic.topic_id), each.partition): (
                topic.name,
                None if each.leader == NO_LEADER else each.leader,
                each.leader_epoch,
            )
            for topic in image.topics()
            for each in topic.partitions()
        }


class Conditions(FactsOf):
    """With quorumctl's own definitions."""

    def __call__(self, image: MetadataImage) -> Facts:
        facts: Facts = {}
        for topic in image.topics():
            min_isr = min_isr_of(image, topic.name)
            for number, state in enumerate(topic.states()):
                holds = {
                    "under_replicated": is_under_replicated(state),
                    "under_min_isr": is_under_min_isr(state, min_isr),
                    "offline": is_unavailable(state),
                }
                for condition in [name for name, it_does in holds.items() if it_does]:
                    facts[uuid_text(topic.topic_id), number, condition] = (topic.name,)
        return facts


class Brokers(FactsOf):
    def __init__(self) -> None:
        self._seen: set[int] = set()

    def __call__(self, image: MetadataImage) -> Facts:
        self._seen |= {*image.brokers}
        facts: Facts = {}
        for broker_id in self._seen:
            broker: RegisterBroker | None = image.brokers.get(broker_id)
            mode = image.broker_modes.get(broker_id)
            shown = ("none", "fenced", "maintenance")[0 if mode is None else mode.mode]
            if broker is None:
                facts[(broker_id,)] = ("unregistered", None, shown, None)
                continue
            state = "online"
            if broker.fenced:
                state = "registered" if broker.reason == "registered" else "fenced"
            elif broker.in_controlled_shutdown:
                state = "stopping"
            incarnation = (broker.broker_epoch, uuid_text(broker.incarnation_id))
            facts[(broker_id,)] = (state, broker.reason or None, shown, incarnation)
        return facts


def config_changes(past: Iterable[Moment]) -> list[tuple[object, ...]]:
    """Return (offset, resource, key, old, new) of each change of a config, in order."""
    found: list[tuple[object, ...]] = []
    before: dict[tuple[str, str], str] | None = None
    for moment in past:
        after: dict[tuple[str, str], str] = {}
        for (kind, name), config in moment.image.configs.items():
            shown = {TOPIC_RESOURCE: f"topic {name}", BROKER_RESOURCE: f"broker {name}" if name else "all brokers"}[
                kind
            ]
            after |= {(shown, key): value for key, value in config.items()}
        if before is not None:
            differing = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
            found += [(moment.offset, *key, before.get(key), after.get(key)) for key in differing]
        before = after
    return found


def isr_changes(past: Iterable[Moment]) -> list[tuple[object, ...]]:
    """Return (offset, topic id, partition, before, after) of each change of an ISR."""
    found: list[tuple[object, ...]] = []
    before: dict[tuple[str, int], tuple[int, ...]] = {}
    for moment in past:
        after = {
            (uuid_text(topic.topic_id), each.partition): each.isr
            for topic in moment.image.topics()
            for each in topic.partitions()
        }
        for key, isr in after.items():
            if key in before and set(before[key]) != set(isr):
                found.append((moment.offset, *key, [*before[key]], [*isr]))
        before = after
    return sorted(found, key=str)
