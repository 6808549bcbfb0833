"""Long work beside an event loop gives way often, and only as long as it lasts."""

import sys

import pytest

from service_kit.process.switches import SWITCH_INTERVAL_S, frequent_switches


def test_the_interval_is_short_until_the_last_work_ends() -> None:
    """Example: a snapshot is loaded while another is written. The work that ends first leaves the interval short."""
    usual_s = sys.getswitchinterval()
    loading, writing = frequent_switches(), frequent_switches()
    loading.__enter__()
    writing.__enter__()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    loading.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    writing.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(usual_s)


def test_work_that_fails_gives_the_interval_back() -> None:
    usual_s = sys.getswitchinterval()
    with pytest.raises(OSError), frequent_switches():
        raise OSError
    assert sys.getswitchinterval() == pytest.approx(usual_s)
