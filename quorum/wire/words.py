"""Values of generated messages for JSON documents: ids as text, unset fields as None."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from metadata_log.format.ids import uuid_text


def optional(message: Any, field: str) -> Any:
    """Returns the field, or None where the field is unset."""
    return getattr(message, field) if message.HasField(field) else None


def id_text(value: bytes) -> str | None:
    """Returns an id as text; None for an empty id."""
    return uuid_text(value) if len(value) == 16 else None


def counted(count: int, noun: str) -> str:
    """Returns `1 record`, `2 records` or `72,017 records`. The noun has no other plural than one in `s`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def time_text(timestamp_ms: int) -> str | None:
    """Returns the time in UTC in the form of ISO 8601; None for 0."""
    if timestamp_ms == 0:
        return None
    return datetime.datetime.fromtimestamp(timestamp_ms / 1_000, datetime.UTC).isoformat(timespec="milliseconds")


def endpoint_text(endpoint: Any) -> str:
    """`host:port`"""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def state_text(state: int) -> str:
    """Returns a broker's state in small letters."""
    from quorum_rpc.v1 import broker_pb2

    try:
        return broker_pb2.BrokerState.Name(state).lower()
    except ValueError:
        return f"state {state}"


def problems_in(answer: Any) -> list[dict[str, Any]]:
    """Returns the problems in a DescribeQuorumResponse. A controller of an older release gives a text without a code."""
    if not answer.problems and answer.concern:
        return [{"code": "unknown", "text": answer.concern, "blocks_ready": False}]
    return [{"code": each.code, "text": each.text, "blocks_ready": each.blocks_ready} for each in answer.problems]


def problems_text(problems: Iterable[Mapping[str, Any]]) -> str:
    """Returns the problems in one line, each with its code."""
    return "; ".join(f"{each['code']}: {each['text']}" for each in problems)
