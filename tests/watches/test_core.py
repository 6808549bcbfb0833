"""The pure half of watches: verdicts on positions, the index of filters, the queue of a reader, the table of records."""

from dataclasses import fields
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.records import FIRST_CONTROL_TYPE, RECORD_TYPES, Entity, FeatureLevel, SkippedBatch
from metadata_log.image.metadata_image import MetadataImage
from tests.watches.fake_log import FakeLog
from tests.watches.histories import KINDS, NAMES, TOPICS, Historian
from watches.core.changes import HIDDEN, SUBJECTS
from watches.core.filter_index import FilterIndex
from watches.core.filters import EVERYTHING, OTHER, SESSION, Area, EntityFilter, Filter, Subject, filter_of
from watches.core.position import Continue, Place, Position, Reset, ResetReason, Verdict, Wait, verdict
from watches.core.reader_queue import Message, Pushed, ReaderQueue
from watches.core.state import size_of, state_of

CHAIN, OTHER_CHAIN = b"c" * 32, b"d" * 32
AT_40 = Position(2, 40, 5, CHAIN)


def place(**changes: Any) -> Place:
    """What a node knows that has the history of `AT_40`, up to 90."""
    return Place(10, 90, 6, 5, CHAIN)._replace(**changes)


@pytest.mark.parametrize(
    ("position", "where", "expected"),
    [
        (AT_40, place(), Continue()),
        (AT_40._replace(generation=1), place(), Continue()),
        (AT_40._replace(generation=3), place(), Wait()),
        (AT_40, place(end=39, last_epoch=5), Wait()),
        (AT_40, place(end=39, last_epoch=6), Reset(ResetReason.OTHER_HISTORY)),
        (AT_40._replace(generation=1), place(end=39, last_epoch=6), Reset(ResetReason.OTHER_GENERATION)),
        (AT_40, place(start=41, chain=None, epoch=None), Reset(ResetReason.BELOW_LOG_START)),
        (AT_40, place(chain=OTHER_CHAIN), Reset(ResetReason.OTHER_HISTORY)),
        (AT_40, place(epoch=4), Reset(ResetReason.OTHER_HISTORY)),
        (AT_40, place(chain=None), Reset(ResetReason.OTHER_HISTORY)),
        (AT_40._replace(generation=1), place(chain=OTHER_CHAIN), Reset(ResetReason.OTHER_GENERATION)),
        (Position(2, 0, 0, b""), place(start=0, epoch=0), Continue()),
        (Position(2, 0, 0, b""), place(), Reset(ResetReason.BELOW_LOG_START)),
    ],
)
def test_the_verdict_on_a_position(position: Position, where: Place, expected: Verdict) -> None:
    """A node goes on only in the same history, waits only while it may come to the position, and resets otherwise."""
    assert verdict(position, 2, where) == expected


@pytest.mark.parametrize(("start", "at", "is_sure"), [(20, 30, True), (39, 39, True), (39, 40, False), (40, 45, True)])
def test_a_position_between_a_batch_and_its_skip_is_not_sure(start: int, at: int, is_sure: bool) -> None:
    """One node may have shown the batch before an operator skipped it, another node not."""
    skip = (at, SkippedBatch(start, 5, CHAIN, start, start + 1))
    expected = Continue() if is_sure else Reset(ResetReason.OTHER_HISTORY)
    assert verdict(AT_40, 2, place(skips=(skip,))) == expected


ENTITY_FILTERS = st.builds(EntityFilter, st.sampled_from(("", *KINDS)), st.sampled_from(("", "a", "ab", "b", "abc")))
FILTERS = st.builds(
    filter_of,
    st.lists(ENTITY_FILTERS, max_size=3),
    st.lists(st.sampled_from(TOPICS), max_size=2),
    st.booleans(),
    st.lists(st.integers(1, 3), max_size=2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
SUBJECT_LIST = [
    *(Subject(Area.ENTITY, name, kind) for kind in KINDS for name in NAMES),
    *(Subject(Area.TOPIC, name) for name in ("", *TOPICS)),
    *(Subject(Area.BROKER, name) for name in ("", "1", "3")),
    SESSION,
    OTHER,
]


@pytest.mark.slow
@given(st.lists(FILTERS, unique=True, max_size=8), st.data())
def test_the_index_finds_the_filters_that_show_a_subject(filters: list[Filter], data: st.DataObject) -> None:
    """Its twin asks each filter."""
    index = FilterIndex()
    for each in filters:
        index.add(each)
    gone = data.draw(st.sets(st.sampled_from(filters))) if filters else set()
    for each in gone:
        index.remove(each)
    for subject in SUBJECT_LIST:
        found = [*index.showing(subject)]
        assert len(found) == len(set(found))
        assert set(found) == {each for each in filters if each not in gone and each.shows(subject)}, subject
    assert len(index) == len(filters) - len(gone)


@pytest.mark.slow
@given(st.lists(ENTITY_FILTERS, max_size=4), st.sampled_from(SUBJECT_LIST))
def test_a_filter_in_one_form_shows_the_same(entities: list[EntityFilter], subject: Subject) -> None:
    """Parts that another part covers are dropped, and nothing else changes."""
    shown = filter_of(entities, sessions=True)
    is_named = subject.area is Area.ENTITY and any(each.shows(subject) for each in entities)
    assert shown.shows(subject) == (is_named or subject.area is Area.SESSION)
    assert filter_of(reversed(entities), sessions=True) == shown


def test_a_filter_without_subjects_shows_everything() -> None:
    assert filter_of() == EVERYTHING
    assert all(EVERYTHING.shows(subject) for subject in SUBJECT_LIST)


def test_every_record_type_is_shown_or_hidden() -> None:
    """A new record type needs a row in `SUBJECTS` of watches/core/changes.py, or a place in `HIDDEN`."""
    of_the_image = {cls for number, cls in RECORD_TYPES.items() if number < FIRST_CONTROL_TYPE}
    known = SUBJECTS.keys() | HIDDEN
    assert not (missing := of_the_image - known), f"no row in watches/core/changes.py for {missing}"
    assert not SUBJECTS.keys() & HIDDEN
    assert known <= of_the_image


SHOWN_FIELDS = {
    "brokers", "controllers", "topics_by_id", "topic_ids", "configs", "features", "quotas", "producer_ids", "acls",
    "broker_modes", "epoch_floor", "entities", "entity_kinds", "client_sessions", "config_definitions",
    "labels",
}  # fmt: skip
HIDDEN_FIELDS = {
    "scram_credentials", "delegation_tokens", "request_outcomes", "request_slots", "newest_request", "provenance", "digest",
    "record_count", "partition_count", "entity_bytes", "kind_usage", "owned", "label_count",
}  # fmt: skip


def test_every_field_of_the_image_is_shown_or_hidden() -> None:
    """A new field needs a place in `_records` of watches/core/state.py, or among the hidden ones."""
    assert {each.name for each in fields(MetadataImage)} == SHOWN_FIELDS | HIDDEN_FIELDS


@pytest.mark.slow
@given(st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_the_state_of_everything_is_the_canonical_records(seed: int) -> None:
    """Without those that no watch shows; and the state of a filter is the part that the filter shows."""
    log = FakeLog()
    historian = Historian(log, Random(seed))
    for _ in range(30):
        historian.step()
    image = log.image
    everything = [*state_of(image, EVERYTHING)]
    canonical = [each for each in image.canonical_records() if type(each) not in HIDDEN]
    assert sorted(map(repr, canonical)) == sorted(repr(each.record) for each in everything)
    for shown in (
        filter_of([EntityFilter("lock", "a"), EntityFilter("", "b")], ["orders"], brokers=[2]),
        filter_of(others=True),
    ):
        expected = [each for each in everything if shown.shows(each.subject)]
        assert sorted(map(repr, state_of(image, shown))) == sorted(map(repr, expected))


def test_the_size_of_a_state_counts_the_entities_of_its_own_kind_and_prefix() -> None:
    """Two locks among many jobs are a small state."""
    log = FakeLog()
    log.append(FeatureLevel("metadata.version", 3))
    log.append(*(Entity("job", f"{number:03}", b"", None) for number in range(300)))
    log.append(Entity("lock", "a/1", b"", None), Entity("lock", "b/1", b"", None))
    for filters, size in (
        ([EntityFilter("lock")], 2),
        ([EntityFilter("lock", "a/")], 1),
        ([EntityFilter("job", "00"), EntityFilter("lock", "c")], 10),
        ([EntityFilter()], 302),
    ):
        assert size_of(log.image, filter_of(filters)) == size


def test_a_queue_joins_what_waits_and_keeps_the_order() -> None:
    queue = ReaderQueue(100)
    for text in (b"a" * 20, b"b" * 20, b"c" * 20):
        assert queue.push(Message(text, 2)) is Pushed.QUEUED
    assert queue.take(45) == Message(b"a" * 20 + b"b" * 20, 4)
    assert queue.take(5) == Message(b"c" * 20, 2)
    assert (len(queue), queue.waiting_bytes) == (0, 0)


def test_a_reader_that_is_too_slow_is_cut_and_a_large_message_is_not_its_fault() -> None:
    queue = ReaderQueue(100)
    assert queue.push(Message(b"x" * 51, 1)) is Pushed.BEHIND
    assert queue.push(Message(b"x" * 50, 1)) is Pushed.QUEUED
    assert queue.push(Message(b"x" * 50, 1)) is Pushed.QUEUED
    assert queue.push(Message(b"x", 1)) is Pushed.CUT
    assert (len(queue), queue.waiting_bytes) == (0, 0)
