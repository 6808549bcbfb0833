"""The ordered map beside its twin: a dict that is sorted for every question."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.image import ordered_map
from metadata_log.image.ordered_map import CHUNK_MAX, OrderedEditor, OrderedMap

Key = tuple[str, str]
Change = tuple[Key, int | None]
"""A key, and its new value; None: the key is removed."""

KEYS = st.tuples(st.sampled_from("ab"), st.text("ab", max_size=3))
COMMITS = st.lists(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3)), max_size=12), max_size=12)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Chunks of four entries, so that few keys fill, divide and join many chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_map, "CHUNK_MAX", 4)
        patch.setattr(ordered_map, "_JOIN_MAX", 2)
        yield


def changed(before: OrderedMap[Key, int], twin: dict[Key, int], changes: list[Change]) -> OrderedMap[Key, int]:
    """The map after one editor took the changes; the twin takes them too, and both agree after each."""
    editor = before.edit()
    for key, value in changes:
        if value is not None:
            editor[key] = twin[key] = value
        elif key in twin:
            del editor[key]
            del twin[key]
        else:
            with pytest.raises(KeyError):
                del editor[key]
        assert (editor.get(key), key in editor, len(editor)) == (twin.get(key), key in twin, len(twin))
    return editor.finish()


def check(found: OrderedMap[Key, int], twin: dict[Key, int]) -> None:
    """The map answers every question as the twin does, and keeps the rules of its chunks."""
    assert [*found.items()] == sorted(twin.items())
    assert ([*found], [*found.values()], len(found)) == (sorted(twin), [twin[key] for key in sorted(twin)], len(twin))
    assert found == twin
    chunks = found.chunks()
    assert all(0 < len(chunk.keys) == len(chunk.values) <= 4 for chunk in chunks)
    assert all(len(left.keys) + len(right.keys) > 2 for left, right in pairwise(chunks))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(COMMITS)
def test_any_changes_lead_to_the_sorted_dict(commits: list[list[Change]]) -> None:
    """Commit after commit; the maps before stay as they were."""
    current: OrderedMap[Key, int] = OrderedMap()
    twin: dict[Key, int] = {}
    kept = []
    for changes in commits:
        kept.append((current, dict(twin)))
        current = changed(current, twin, changes)
    for each, twin_then in [*kept, (current, twin)]:
        check(each, twin_then)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.dictionaries(KEYS, st.integers(0, 3), max_size=40), KEYS, st.none() | KEYS)
def test_any_range_is_the_range_of_the_sorted_dict(twin: dict[Key, int], first: Key, before: Key | None) -> None:
    """From a key that exists or not, up to a key that exists or not, or up to the end. An empty range has nothing."""
    found = changed(OrderedMap(), {}, [*twin.items()])
    expected = [(key, twin[key]) for key in sorted(twin) if first <= key and (before is None or key < before)]
    assert [*found.items_from(first, before)] == expected
    assert found.count(first, before) == len(expected)
    for key in (first, before):
        if key is not None:
            assert (key in found, found.get(key), found.get(key, 9)) == (key in twin, twin.get(key), twin.get(key, 9))


def test_a_range_that_ends_before_it_begins_is_empty() -> None:
    """In one chunk, and in two."""
    found = changed(OrderedMap(), {}, [(("a", letter), 0) for letter in "abcdefgh"])
    for first, before in (("c", "b"), ("c", "c"), ("h", "b"), ("f", "c"), ("z", "a")):
        assert found.count(("a", first), ("a", before)) == 0
        assert [*found.items_from(("a", first), ("a", before))] == []


def test_a_range_is_walked_no_further_than_it_is_asked_for() -> None:
    """A page takes the first entries and leaves the rest."""
    editor: OrderedEditor[int, int] = OrderedEditor(OrderedMap())
    for key in range(100):
        editor[key] = -key
    walk = editor.finish().items_from(37)
    assert [next(walk), next(walk)] == [(37, -37), (38, -38)]


def test_keys_that_come_in_order_fill_every_chunk() -> None:
    """A snapshot has the entities in order, so a loaded map has no room that is not used."""
    editor: OrderedEditor[int, int] = OrderedEditor(OrderedMap())
    for key in range(40):
        editor[key] = key
    assert [len(chunk.keys) for chunk in editor.finish().chunks()] == [4] * 10


def test_a_change_copies_one_chunk_and_shares_the_others() -> None:
    """With the real size of chunks: 100,000 entries, and one of them changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_map, "CHUNK_MAX", CHUNK_MAX)
        editor: OrderedEditor[int, int] = OrderedEditor(OrderedMap())
        for key in range(100_000):
            editor[key] = key
        before = editor.finish()
        second = before.edit()
        second[70_000] = -1
        after = second.finish()
    fresh = [new for old, new in zip(before.chunks(), after.chunks(), strict=True) if old is not new]
    assert [len(chunk.keys) for chunk in fresh] == [CHUNK_MAX]
    assert (before[70_000], after[70_000]) == (70_000, -1)


def test_an_editor_that_changed_nothing_returns_its_map() -> None:
    base: OrderedMap[int, int] = OrderedMap()
    editor = base.edit()
    assert editor.get(1) is None and editor.finish() is base
    with pytest.raises(KeyError):
        base[1]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_map_that_shrinks_has_few_chunks(kept: int) -> None:
    """One key of every four stays, and neighbours join, the last two as well."""
    twin = {("a", f"{number:02d}"): number for number in range(40)}
    found = changed(OrderedMap(), {}, [*twin.items()])
    assert len(found.chunks()) == 10
    gone: list[Change] = [(key, None) for key, number in twin.items() if number % 4 != kept]
    for changes in (gone, gone[::-1]):
        left = dict(twin)
        after = changed(found, left, changes)
        check(after, left)
        assert len(after.chunks()) <= 7
    check(found, twin)
