"""Packed states answer every question as the unpacked states do."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.format.columns import may_have, pack_lists, pack_numbers
from metadata_log.format.errors import LogFormatError
from metadata_log.format.packed_states import PACKED_MIN, PackedStates, packed_run_of
from metadata_log.format.partition_runs import columns_of, run_of
from metadata_log.format.partition_state import ADDING, REMOVING, REPLICAS, PartitionState
from metadata_log.format.records import ListColumn, PartitionColumns
from metadata_log.image.topic_image import runs_of
from tests.metadata_log.image.test_partition_runs import STATES, A, columns, partition

BYTES = st.one_of(st.just(b""), st.binary(max_size=3), st.sampled_from([b"\1\0", b"\1\3", b"\1\3\3\3", b"\2\0\3"]))
LISTS = st.builds(ListColumn, BYTES, st.one_of(BYTES, st.just(b"\1" + b"\1\2\3" * 3)))


def packed(states: list[PartitionState]) -> PackedStates:
    [run] = runs_of(A, states, 7)
    return PackedStates(columns_of(run))


@given(st.lists(STATES, min_size=1, max_size=12), st.data())
def test_any_states_come_back_one_by_one_and_together(states: list[PartitionState], data: st.DataObject) -> None:
    """Lists of all sizes, ISRs with and without a column, directories: each place and each slice gives the same states."""
    found = packed(states)
    assert len(found) == len(states) and [*found] == states
    assert [found[place] for place in range(len(states))] == states
    start = data.draw(st.integers(0, len(states)))
    stop = data.draw(st.integers(start, len(states)))
    assert found.between(start, stop) == states[start:stop] == found[start:stop]
    assert found[-1] == states[-1]
    found.check()


@given(st.lists(STATES, min_size=1, max_size=12), st.data())
def test_the_replicas_are_known_without_the_states(states: list[PartitionState], data: st.DataObject) -> None:
    """The assignments of a broker need no states."""
    found = packed(states)
    assert found.may_move or not any(state[REMOVING] or state[ADDING] for state in states)
    start = data.draw(st.integers(0, len(states)))
    for broker_id in {*chain.from_iterable(state[REPLICAS] for state in states), 9}:
        on = [place for place, state in enumerate(states[start:]) if broker_id in state[REPLICAS]]
        assert [*found.places_on(broker_id, start, len(states))] == on


@given(st.lists(st.integers(-(2**40), 2**40) | st.integers(-130, 130), max_size=8), st.integers(-130, 300))
def test_a_search_in_a_column_overlooks_no_number(numbers: list[int], sought: int) -> None:
    """It may find a number that is not there: 256 and 258 are 01 00 01 02, and 1 is 00 01."""
    data = pack_numbers(numbers)
    assert all(may_have(data, number) for number in numbers)
    assert may_have(data, sought) or sought not in numbers
    assert not may_have(pack_numbers([1, 2, 3]), 4)
    assert may_have(pack_numbers([256, 258]), 1)


@given(
    st.integers(1, 4),
    st.lists(LISTS, min_size=7, max_size=7),
    st.lists(BYTES, min_size=4, max_size=4),
    st.integers(0, 4),
)
def test_columns_with_the_right_lengths_answer_every_question(
    count: int, lists: list[ListColumn], numbers: list[bytes], directories: int
) -> None:
    """Whatever the bytes mean: a record whose lengths were accepted raises nothing later, except in `check`. There a record is
    sound exactly if a load of unpacked runs takes it, and then the states are the same."""
    record = columns(
        partition_count=count,
        lists=tuple(lists),
        numbers=tuple(numbers),
        directories=tuple(bytes([n]) * 16 for n in range(directories)),
    )
    try:
        found = PackedStates(record)
    except LogFormatError:
        with pytest.raises(LogFormatError):
            run_of(record)
        return
    states = [*found]
    assert [found[place] for place in range(count)] == states
    for broker_id in (0, 1, 3):
        assert [*found.places_on(broker_id, 0, count)] == [n for n in range(count) if broker_id in states[n][REPLICAS]]
    try:
        found.check()
    except LogFormatError:
        return
    assert [*run_of(record).states] == states


@pytest.mark.parametrize(
    "bad, why",
    [
        (columns(partition_count=0), "a run of 0 partitions"),
        (columns(lists=()), "0 and 4 columns; 7 and 4 are expected"),
        (columns(numbers=(b"", b"", b"", b"\x03123")), "numbers of 3 bytes"),
        (columns(numbers=(b"", b"", b"", b"\x01ab")), "a column of 3 bytes where 3 numbers of 1 bytes"),
        (columns(lists=(ListColumn(b"\x02\x7f\xff", b"\x01\x01"), *columns().lists[1:])), "lists with 98301 numbers"),
        (columns(lists=(ListColumn(b"\x01\xff", b""), *columns().lists[1:])), "a negative size"),
        (columns(lists=(*columns().lists[:6], pack_lists([[0, 1, 2]] * 3))), "outside the 0 directories"),
    ],
)
def test_columns_of_wrong_lengths_are_damage_at_once(bad: PartitionColumns, why: str) -> None:
    with pytest.raises(LogFormatError, match=why):
        PackedStates(bad)


@pytest.mark.parametrize(
    "bad, why",
    [
        (columns(numbers=(b"\x01\x09", b"", b"", b"")), "partition 0: leader 9 is not in isr"),
        (columns(numbers=(b"\x01\x01", b"", b"\x01\xff", b"")), "partition 0: leader epoch -1"),
        (columns(lists=(pack_lists([[1, 1]] * 3), *columns().lists[1:])), r"replicas \(1, 1\)"),
    ],
)
def test_states_that_cannot_be_are_found_by_the_check(bad: PartitionColumns, why: str) -> None:
    with pytest.raises(LogFormatError, match=why):
        PackedStates(bad).check()


def test_a_place_outside_of_the_run_is_no_state() -> None:
    """A reader that walks by place, as `enumerate` and `reversed` do, ends where the run ends."""
    found = packed([partition(A, n)[2:] for n in range(3)])
    for place in (3, -4):
        with pytest.raises(IndexError):
            found[place]
    assert [*reversed(found)] == [found[2], found[1], found[0]]


@pytest.mark.parametrize("count, kind", [(PACKED_MIN - 1, list), (PACKED_MIN, PackedStates)])
def test_short_runs_are_unpacked(count: int, kind: type[Any]) -> None:
    [run] = runs_of(A, [partition(A, n)[2:] for n in range(count)])
    found = packed_run_of(columns_of(run))
    assert type(found.states) is kind
    assert found._replace(states=[*found.states]) == run._replace(states=[*run.states])
