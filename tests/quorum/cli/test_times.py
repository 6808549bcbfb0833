"""Times on the command line: a moment with its zone, or how long ago."""

import pytest

from quorum.cli.times import time_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", NOW_MS - 900_000),
        ("1h30m", NOW_MS - 5_400_000),
        ("2d", NOW_MS - 172_800_000),
        ("0.5s", NOW_MS - 500),
        ("250ms", NOW_MS - 250),
        ("99999999999d", 0),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20.500+01:00", NOW_MS + 500),
    ],
)
def test_a_time_is_a_moment_or_a_duration_ago(text: str, expected: int) -> None:
    assert time_ms(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "15", "m", "15m ago", "-5m"])
def test_another_text_is_refused_with_two_examples(text: str) -> None:
    with pytest.raises(ValueError, match="15m for a quarter of an hour ago"):
        time_ms(text, NOW_MS)


def test_a_moment_without_a_zone_is_refused() -> None:
    """Two operators in two countries would mean two moments."""
    with pytest.raises(ValueError, match="add Z for UTC"):
        time_ms("2023-11-14T22:13:20", NOW_MS)
