"""Records as rows, and as lines for people.

A text shows as it is, without control characters, so no record can play tricks with a terminal. In JSON, bytes that are no text
show as `{"base64": ...}`: the program that reads the output gets every byte.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from quorum.cli.output import UNKNOWN, printable

if TYPE_CHECKING:
    from metaquorum import ConsumerRecord

TITLES: Final = ("PARTITION", "OFFSET", "TIME", "KEY", "VALUE")
_YEAR_10000_MS: Final = 253_402_300_800_000


def row_of(record: ConsumerRecord) -> dict[str, Any]:
    """Returns a record for JSON."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "timestamp_ms": record.timestamp_ms,
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": [{"name": name, "value": _json(value)} for name, value in record.headers],
    }


def line_of(record: ConsumerRecord) -> str:
    """Returns a record for people, with tabs between the columns."""
    time = time_text(record.timestamp_ms)
    return "\t".join((str(record.partition), str(record.offset), time, _shown(record.key), _shown(record.value)))


def time_text(timestamp_ms: int) -> str:
    """Returns a time in UTC, or the number if no calendar has it."""
    if timestamp_ms >= _YEAR_10000_MS:
        return str(timestamp_ms)
    time = datetime.fromtimestamp(timestamp_ms // 1_000, UTC).replace(microsecond=timestamp_ms % 1_000 * 1_000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _shown(data: bytes | None) -> str:
    if data is None:
        return UNKNOWN
    return printable(data.decode(errors="backslashreplace"))
