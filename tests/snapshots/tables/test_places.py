"""Offsets and times as operators write them."""

import pytest

from snapshots.offline.history.place import TIME_MAX, Place, parse_place


def test_places() -> None:
    assert parse_place("1244") == Place(offset=1244)
    assert parse_place("1970-01-02") == Place(time_ms=86_400_000)
    assert parse_place("1970-01-01T00:00:01Z") == Place(time_ms=1_000)
    assert parse_place("1970-01-01T01:00:01.5+01:00") == Place(time_ms=1_500)
    assert Place().time_ms == TIME_MAX
    for text in ("soon", "", "-5", "1" * 25):
        with pytest.raises(ValueError, match="neither an offset nor a time"):
            parse_place(text)
