"""The list of the records that a restore to a point in time undoes, for people and for programs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from quorum.wire.words import time_text

if TYPE_CHECKING:
    from quorum.recovery.point_in_time import Undone, UndoneRecord

LINES_PER_GROUP_MAX: Final = 20
"""How many records of one group the table lists. JSON lists more (`quorum.recovery.point_in_time.LISTED_MAX`)."""


def undone_lines(undone: Undone | None, end: int, undone_end: int) -> list[str]:
    """Returns the lines of the report. `undone` is None for a recovery that was begun before: its report was read then."""
    if undone is None:
        return [f"Undone: all records from {end} to {undone_end}."]
    times = f"{time_text(undone.first_ms)} to {time_text(undone.last_ms)}"
    lines = [f"UNDONE: {undone.records} records from {end} to {undone_end}, of {times}:"]
    for group, count in undone.groups:
        lines.append(f"  {group}: {count}")
        of_group = [each for each in undone.listed if each.group == group]
        lines += [f"    {_line(each)}" for each in of_group[:LINES_PER_GROUP_MAX]]
        if count > LINES_PER_GROUP_MAX:
            lines.append(f"    ... and {count - LINES_PER_GROUP_MAX} more (-o json lists them)")
    return lines


def undone_document(undone: Undone, generation: int) -> dict[str, Any]:
    """Returns the list for programs. `listed_all` is false if there are more records than `listed`."""
    by_group = sorted(undone.listed, key=lambda each: each.group)
    return {
        "records": undone.records,
        "first_timestamp_ms": undone.first_ms,
        "last_timestamp_ms": undone.last_ms,
        "kept_aside_suffix": f".undone-{generation}",
        "listed_all": undone.records == len(undone.listed),
        "groups": [{"group": group, "records": count} for group, count in undone.groups],
        "listed": {
            group: [
                {"offset": each.offset, "timestamp_ms": each.timestamp_ms, "record": each.record, "what": each.what}
                for each in listed
            ]
            for group, listed in groupby(by_group, key=lambda each: each.group)
        },
    }


def _line(each: UndoneRecord) -> str:
    return f"{each.offset}  {time_text(each.timestamp_ms)}  {each.record}  {each.what}".rstrip()
