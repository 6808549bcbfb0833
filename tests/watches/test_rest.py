"""How long the hub rests between two pushes."""

import pytest

from watches.service.hub import rest_s


@pytest.mark.parametrize(
    ("readers", "rest_ms"), [(0, 0), (1, 0.25), (10, 2.5), (100, 25), (250, 25), (300, 30), (1_000, 100)]
)
def test_many_readers_let_the_hub_rest_longer(readers: int, rest_ms: float) -> None:
    assert rest_s(readers) * 1_000 == pytest.approx(rest_ms)
