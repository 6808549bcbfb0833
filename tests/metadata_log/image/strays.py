"""Records that probably do not fit: those of another place or of another history, with a field changed."""

import random
from collections.abc import Sequence
from typing import Any

from metadata_log.format.ids import Uuid
from metadata_log.format.records import MetadataRecord, Owner

ID_BYTES = 16


def stray(dice: random.Random, log: Sequence[MetadataRecord]) -> MetadataRecord:
    """Return a record of `log`, in two of three cases with one field of another value."""
    record = dice.choice(log)
    names = getattr(record, "_fields", ())
    if not names or dice.random() < 0.33:
        return record
    name = dice.choice(names)
    changes: dict[str, Any] = {name: other(dice, getattr(record, name), log)}
    return record._replace(**changes)


def other(dice: random.Random, value: Any, log: Sequence[MetadataRecord]) -> Any:
    """Return a value of the same type, often one that is somewhere else in the log."""
    match value:
        case bool():
            return not value
        case int():
            return dice.choice((value + 1, value - 1, 0, -1, -2, dice.randrange(9), len(log)))
        case str():
            return dice.choice(("", value + "x", "a", "b", "1", "topic-1"))
        case bytes() if len(value) == ID_BYTES:
            return dice.choice(ids(log))
        case bytes():
            return value[1:]
        case Owner():
            return Owner(value.session_id, value.broker_id, dice.choice((value.epoch - 1, value.epoch + 1)))
        case tuple() if hasattr(value, "_fields"):
            return value
        case tuple():
            return dice.choice((value[1:], value[:1], value[::-1], value + value[:1], ()))
        case _:
            return value


def ids(log: Sequence[MetadataRecord]) -> list[Uuid]:
    """Return the ids in the log, and one that is not."""
    found = [each for record in log[:300] for each in record if isinstance(each, bytes) and len(each) == ID_BYTES]
    return [*found, b"nobody".ljust(ID_BYTES)]
