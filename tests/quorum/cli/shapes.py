"""The shape of a document: what programs rely on. Values become their types, and lists the shape of their first item."""

from typing import Any


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None if value is None else type(value).__name__
