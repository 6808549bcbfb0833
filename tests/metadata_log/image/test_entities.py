"""Folding by entity gives the same result as replay. The Spark compaction depends on this law."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.codec import encode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    ClearElr,
    Config,
    EndTransaction,
    LeaderChange,
    MetadataRecord,
    NoOp,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from metadata_log.image.digest import MODULUS, record_hash
from metadata_log.image.entities import EVERY_TOPIC, entity_keys, fold, invisible_ranges, with_order_keys
from metadata_log.image.entity_key import EntityKey
from tests.metadata_log.image.histories import History, uuid

Marker = tuple[Offset, BeginTransaction | EndTransaction | AbortTransaction]


def folded(log: list[MetadataRecord]) -> list[tuple[bytes, MetadataRecord]]:
    """Fold as the Spark job does: group, add the records for every topic, fold each group, sort."""
    groups: dict[EntityKey, list[tuple[Offset, MetadataRecord]]] = defaultdict(list)
    for offset, record in enumerate(log):
        for key in entity_keys(record):
            groups[key].append((offset, record))
    for_all = groups.pop(EVERY_TOPIC, [])
    result = []
    for key, records in groups.items():
        if key[0] == "topic":
            records = sorted([*records, *for_all], key=lambda pair: pair[0])
        result += fold(key, records)
    return sorted(result, key=lambda pair: pair[0])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 80))
def test_folding_by_entity_equals_replay(seed: int, steps: int) -> None:
    """Same records, same order, same digest, after any history."""
    history = History(seed).run(steps)
    result = [record for _, record in folded(history.log)]
    assert [*map(encode_record, result)] == [*map(encode_record, history.image.canonical_records())]
    assert sum(map(record_hash, result)) % MODULUS == history.image.digest


def test_keys_name_the_entities() -> None:
    """A removed topic changes its configs and labels as well; control records and markers change no entity."""
    assert entity_keys(Topic("t", uuid(0))) == (("topic", "A" * 22),)
    assert entity_keys(RemoveTopic("t", uuid(0))) == (("topic", "A" * 22), ("config", "2", "t"), ("labels", "2", "t"))
    assert entity_keys(UnregisterBroker(7, 1)) == (("broker", "7"), ("labels", "4", "7"))
    assert entity_keys(Config(2, "t", "k", "v")) == (("config", "2", "t"),)
    assert entity_keys(ClearElr(None, None)) == (EVERY_TOPIC,)
    for record in (NoOp(), BeginTransaction("t"), LeaderChange(1, (), ())):
        assert entity_keys(record) == ()


def test_only_canonical_records_have_a_place_in_the_order() -> None:
    """A snapshot with another record is damaged, and its reader gets an error."""
    for record in (RemoveTopic("t", uuid(0)), NoOp(), EndTransaction()):
        with pytest.raises(LogFormatError):
            list(with_order_keys([record]))


def test_what_aborted_transactions_hold_is_invisible() -> None:
    """Aborted ones and the one that is still open at the end; a nested or lone marker is an error."""
    begin, end, abort = BeginTransaction("t"), EndTransaction(), AbortTransaction("no")
    markers: list[Marker] = [(3, begin), (5, end), (7, begin), (9, abort), (12, begin)]
    assert invisible_ranges(markers, 20) == [(7, 10), (12, 20)]
    assert invisible_ranges(markers[:4], 20) == [(7, 10)]
    lone: list[Marker] = [(1, end)]
    nested: list[Marker] = [(1, begin), (2, begin)]
    for wrong in (lone, nested):
        with pytest.raises(LogFormatError):
            invisible_ranges(wrong, 20)
