"""The value of `consume --from`: an end of the log, an offset or a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from metadata_log.format.ids import OFFSET_MAX

if TYPE_CHECKING:
    from metaquorum import Consumer


def parse_place(ctx: click.Context, param: click.Parameter, value: str | None) -> str | int | datetime | None:
    """Parses `beginning`, `end`, an offset such as 1244, or a time such as 2026-11-23T21:00:00Z (UTC if it has no zone)."""
    if value is None or value in ("beginning", "end"):
        return value
    if value.isascii() and value.isdigit():
        if len(value) > len(str(OFFSET_MAX)) or int(value) > OFFSET_MAX:
            raise click.BadParameter(f"{value} is larger than any offset", ctx, param)
        return int(value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        text = f"{value!r} is neither beginning, end, an offset, nor a time like 2026-11-23T21:00:00Z"
        raise click.BadParameter(text, ctx, param) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    if time < datetime.fromtimestamp(0, UTC):
        raise click.BadParameter(f"{value!r} is before 1970", ctx, param)
    return time


def seek(consumer: Consumer, place: str | int | datetime) -> None:
    """Moves all assigned partitions to `place`."""
    if place == "beginning":
        consumer.seek_to_beginning()
    elif place == "end":
        consumer.seek_to_end()
    elif isinstance(place, datetime):
        consumer.seek_to_time(round(place.timestamp() * 1_000))
    else:
        assert isinstance(place, int)
        for partition in consumer.assignment:
            consumer.seek(partition, place)
