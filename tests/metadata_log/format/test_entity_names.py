"""Kinds and names of entities, and the ranges that a kind or a prefix names."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.entity_names import entity_name_problem, kind_problem, kind_range, prefix_range


@pytest.mark.parametrize("kind", ["a", "0", "shard", "my.kind-1_x", "a" * 64])
def test_a_kind_that_is_possible(kind: str) -> None:
    assert kind_problem(kind) is None


@pytest.mark.parametrize("kind", ["", "A", "-a", ".a", "_a", "a b", "a/b", "é", "a" * 65, "a\n"])
def test_a_kind_that_is_not_possible(kind: str) -> None:
    assert "is no kind" in str(kind_problem(kind))


@pytest.mark.parametrize("name", ["7", " ", "a/b c", "zoë", "\U0001f600", "x" * 512, "é" * 256])
def test_a_name_that_is_possible(name: str) -> None:
    assert entity_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        ("a\x00b", "control character"),
        ("a\n", "control character"),
        ("\x7f", "control character"),
        ("\x85", "control character"),
        ("\udcff", "control character"),
        ("x" * 513, "longer than 512 bytes"),
        ("é" * 257, "longer than 512 bytes"),
    ],
)
def test_a_name_that_is_not_possible(name: str, why: str) -> None:
    """The text of the error never has more than a piece of the name."""
    problem = entity_name_problem(name)
    assert problem is not None and why in problem and len(problem) < 160


CHARACTERS = st.sampled_from(" a/0z~\ud7ff\ue000\uffff\U00010000\U0010ffff")
NAMES = st.text(CHARACTERS, min_size=1, max_size=4)
KINDS = st.sampled_from(["a", "a-", "a.b", "a0", "aa", "b"])


@settings(derandomize=True, max_examples=500)
@given(KINDS, KINDS, NAMES, st.text(CHARACTERS, max_size=3))
def test_a_name_is_in_the_range_of_a_prefix_exactly_if_it_begins_with_it(
    kind: str, other: str, name: str, prefix: str
) -> None:
    """Around surrogates, which no name has, and at the last code point, too. Other kinds are outside."""
    first, before = prefix_range(kind, prefix)
    assert (first <= (other, name) < before) == (other == kind and name.startswith(prefix))
    first, before = kind_range(kind)
    assert (first <= (other, name) < before) == (other == kind)
