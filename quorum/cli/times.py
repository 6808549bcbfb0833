"""Times that people write: a moment of RFC 3339, or a duration, which means that long ago.

2026-11-24T09:30:00Z     2026-11-24T10:30:00+01:00     15m     1h30m     2d     500ms
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import click

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)")


def duration_ms(text: str) -> int | None:
    """Returns milliseconds; None: the text is no duration."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def time_ms(text: str, now_ms: int) -> int:
    """Returns milliseconds since 1970. Raises ValueError: the text is neither a moment with its zone nor a duration."""
    ago_ms = duration_ms(text)
    if ago_ms is not None:
        return max(0, now_ms - ago_ms)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise ValueError(f"{text!r} is no time: write 2026-11-24T09:30:00Z, or 15m for a quarter of an hour ago") from e
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} does not say its zone: add Z for UTC, or an offset such as +01:00")
    return max(0, round(moment.timestamp() * 1_000))


class Time(click.ParamType[int]):
    """A parameter with a time, in milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from service_kit.process.clock import RealClock

        if isinstance(value, int):
            return value
        try:
            return time_ms(value, RealClock().wall_ms())
        except ValueError as e:
            self.fail(str(e), param, ctx)


class Duration(click.ParamType[int]):
    """A parameter with a duration, in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = value if isinstance(value, int) else duration_ms(value)
        if found is None:
            self.fail(f"{value!r} is no duration: write 30s, 1h30m or 500ms", param, ctx)
        return found
