"""The levels of `metadata.version`: what release 0.1.0 can read, and what needs a higher level."""

import pytest

from metadata_log.format.ids import ZERO_UUID
from metadata_log.format.records import (
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    RECORD_TYPES,
    BeginTransaction,
    ClearElr,
    Partition,
    PartitionChange,
    Record,
    level_of,
    level_problem,
)
from metadata_log.format.records.levels import FIELD_LEVELS, RECORD_LEVELS

LEVEL_1_TYPES = {0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 14, 15, 17, 18, 19, 20, 22, 26, 27, 28, 60, 64, 65, 66, 67, 68, 69}
"""The record types that every release may find in a log at level 1."""

PLAIN = Partition(ZERO_UUID, 0, (1, 2), (1, 2), (), (), 1, 0, 0, 0)


def test_every_record_type_beyond_the_first_level_says_its_level() -> None:
    """A new record type has a row in the table; without the row, an older release would stop at the record."""
    for number, kind in RECORD_TYPES.items():
        assert (kind in RECORD_LEVELS) == (number not in LEVEL_1_TYPES), f"{kind.__name__}: see RECORD_LEVELS"


def test_every_row_names_what_there_is_and_a_level_that_there_is() -> None:
    """A level of a row is above the lowest, and this release supports it; each field exists."""
    levels = [*RECORD_LEVELS.values()]
    for kind, fields in FIELD_LEVELS.items():
        assert fields.keys() <= set(kind._fields), kind  # type: ignore[attr-defined]
        levels += fields.values()
    assert all(METADATA_VERSION_MIN < level <= METADATA_VERSION_MAX for level in levels)


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (PLAIN, 1),
        (PLAIN._replace(elr=(3,)), 2),
        (PLAIN._replace(adding_replicas=(2,)), 2),
        (PartitionChange(ZERO_UUID, 0, isr=(1,), leader=1), 1),
        (PartitionChange(ZERO_UUID, 0, elr=()), 1),
        (PartitionChange(ZERO_UUID, 0, last_known_elr=(2,)), 2),
        (PartitionChange(ZERO_UUID, 0, removing_replicas=(2,)), 2),
        (BeginTransaction("t"), 2),
        (ClearElr(None, None), 1),
    ],
)
def test_a_field_needs_its_level_only_when_it_has_a_value(record: Record, level: int) -> None:
    """An empty list needs no level: every release writes it."""
    assert level_of(record) == level
    assert level_problem(record, level) is None
    assert (level_problem(record, level - 1) is None) == (level == 0)


def test_the_problem_names_what_needs_the_level() -> None:
    """The record type, and the fields if only they need it."""
    text = "PartitionChange with adding_replicas and elr needs metadata.version 2, and the cluster is at level 1"
    assert level_problem(PartitionChange(ZERO_UUID, 0, adding_replicas=(1,), elr=(2,)), 1) == text
