"""Translates between protobuf and the queries of the tree, in both directions: for controllers, and for `quorumctl shell`.

Values travel as JSON: a tree has places for records of all kinds, and no message names a field of a record.
"""

import json
from typing import Any, Final, assert_never

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.tree.queries import (
    Changed,
    Differences,
    Find,
    History,
    Named,
    Names,
    Outline,
    Outlined,
    Place,
    Query,
    Row,
    Value,
    Values,
)
from quorum.runtime.protocol.requests import Refused
from quorum.wire.convert.errors import BadMessage
from quorum.wire.convert.parts import at_most
from snapshots.history.wanted import Wanted

PATTERNS_MAX: Final = 100
PATH_BYTES_MAX: Final = 4_096
ROW_BYTES_MAX: Final = (4 << 20) - (128 << 10)
"""Maximum size of a row: a message has rows of 64 KiB and one more, and gRPC takes 4 MiB."""
_CHANGES: Final = {
    "changed": admin_pb2.TreeChanged.CHANGED,
    "added": admin_pb2.TreeChanged.ADDED,
    "removed": admin_pb2.TreeChanged.REMOVED,
}
_WORDS: Final = {number: word for word, number in _CHANGES.items()}

# --- queries -----------------------------------------------------------------------------------------------------------


def from_request(message: admin_pb2.ReadTreeRequest) -> Query:
    """Returns the query. Raises BadMessage: there is none, or it is too long."""
    match message.WhichOneof("query"):
        case "place":
            return Place(_path(message.place.pattern))
        case "names":
            return Names(_patterns(message.names.patterns), _text(message.names.prefix, "prefix"))
        case "values":
            return Values(_patterns(message.values.patterns))
        case "outline":
            return Outline(_path(message.outline.pattern))
        case "find":
            return Find(_text(message.find.name, "name"), _path(message.find.pattern))
        case "differences":
            return Differences(_path(message.differences.path))
        case "history":
            since = message.history.since_offset if message.history.HasField("since_offset") else None
            if since is not None and since < 0:
                raise BadMessage(f"since_offset is {since}; the first one is 0")
            return History(_path(message.history.path), since)
        case _:
            raise BadMessage("no query, or a query of a kind that this release does not know")


def before_of(message: admin_pb2.ReadTreeRequest) -> Wanted | None:
    """Returns the other position of `differences`; None: the newest image. Raises BadMessage: an impossible position."""
    found = {
        name: getattr(message.differences, name)
        for name in ("before_offset", "before_time_ms")
        if message.differences.HasField(name)
    }
    for name, value in found.items():
        if value < 0:
            raise BadMessage(f"{name} is {value}; the first one is 0")
    return Wanted(found.get("before_offset"), found.get("before_time_ms")) if found else None


def _patterns(texts: Any) -> tuple[str, ...]:
    at_most(PATTERNS_MAX, len(texts), "patterns")
    if not texts:
        raise BadMessage("no pattern")
    return tuple(map(_path, texts))


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise BadMessage("a path begins with /")
    return _text(text, "a path")


def _text(text: str, what: str) -> str:
    size = len(text.encode())
    if size > PATH_BYTES_MAX:
        raise BadMessage(f"{what} has {size} bytes; at most {PATH_BYTES_MAX}")
    return text


def to_request(query: Query, before: Wanted | None = None) -> admin_pb2.ReadTreeRequest:
    """Returns the request for a query. `before`: the other position of `Differences`."""
    made = admin_pb2.ReadTreeRequest
    match query:
        case Place(pattern):
            return made(place=admin_pb2.TreePlace(pattern=pattern))
        case Names(patterns, prefix):
            return made(names=admin_pb2.TreeNames(patterns=patterns, prefix=prefix))
        case Values(patterns):
            return made(values=admin_pb2.TreeValues(patterns=patterns))
        case Outline(pattern):
            return made(outline=admin_pb2.TreeOutline(pattern=pattern))
        case Find(name, pattern):
            return made(find=admin_pb2.TreeFind(name=name, pattern=pattern))
        case Differences(path):
            at = before or Wanted()
            difference = admin_pb2.TreeDifferences(path=path, before_offset=at.offset, before_time_ms=at.time_ms)
            return made(differences=difference)
        case History(path, since):
            return made(history=admin_pb2.TreeHistory(path=path, since_offset=since))
        case _:
            assert_never(query)


# --- rows --------------------------------------------------------------------------------------------------------------


def to_row(row: Row) -> tuple[admin_pb2.TreeRow, int]:
    """Returns the row for the wire, and its size in bytes. Raises Refused: RECORD_BATCH_TOO_LARGE."""
    message = _message_of(row)
    size = message.ByteSize()
    if size > ROW_BYTES_MAX:
        text = f"the row of {row.path} has {size:,} bytes, more than a message holds; quorumctl shell DIR shows the row"
        raise Refused(ErrorCode.RECORD_BATCH_TOO_LARGE, text)
    return message, size


def _message_of(row: Row) -> admin_pb2.TreeRow:
    made = admin_pb2.TreeRow
    match row:
        case Named(path, name, is_branch):
            return made(named=admin_pb2.TreeNamed(path=path, name=name, is_branch=is_branch))
        case Value(path, value, is_only):
            return made(value=admin_pb2.TreeValue(path=path, value_json=_json(value), is_only=is_only))
        case Outlined(path, name, depth):
            return made(outlined=admin_pb2.TreeOutlined(path=path, name=name, depth=depth))
        case Changed(path, change, before, after, offset, timestamp_ms):
            changed = admin_pb2.TreeChanged(
                path=path,
                change=_CHANGES[change],
                before_json="" if change == "added" else _json(before),
                after_json="" if change == "removed" else _json(after),
                offset=offset,
                timestamp_ms=timestamp_ms,
            )
            return made(changed=changed)
        case _:
            assert_never(row)


def from_row(message: admin_pb2.TreeRow) -> Row:
    """Returns the row. Raises BadMessage: it is of no kind that this release knows, or its JSON is none."""
    match message.WhichOneof("row"):
        case "named":
            return Named(message.named.path, message.named.name, message.named.is_branch)
        case "value":
            return Value(message.value.path, _value(message.value.value_json), message.value.is_only)
        case "outlined":
            return Outlined(message.outlined.path, message.outlined.name, message.outlined.depth)
        case "changed":
            changed = message.changed
            return Changed(
                changed.path,
                _WORDS.get(changed.change, "changed"),
                _value(changed.before_json),
                _value(changed.after_json),
                changed.offset if changed.HasField("offset") else None,
                changed.timestamp_ms if changed.HasField("timestamp_ms") else None,
            )
        case _:
            raise BadMessage("a row of a kind that this release does not know")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _value(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError as e:
        raise BadMessage(f"a value is no JSON: {e}") from e
