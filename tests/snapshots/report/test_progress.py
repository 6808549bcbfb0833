"""What a person sees while a job runs."""

import io
import threading

import pytest

from snapshots.offline.commands import running
from snapshots.offline.progress import TICKER, Done, Stage, shown_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_third_of_the_tasks_gives_rate_and_time_left() -> None:
    """3,000,000 records, 6 of 18 tasks after 10 s. The next stage begins at 0."""
    now_s = 100.0
    stage = Stage(clock=lambda: now_s)
    stage.records = 3_000_000
    stage.begin("reading the log")
    now_s = 110.0
    assert stage.text(Done(6, 18)) == "reading the log: 33%  100,000 records/s  20 s left"
    assert stage.text(Done(0, 18)) == "reading the log"
    stage.begin("who led")
    assert stage.text(Done(3, 4)) == "who led"


def test_a_rate_is_not_told_where_the_number_of_records_is_unknown() -> None:
    now_s = 0.0
    stage = Stage(clock=lambda: now_s)
    stage.begin("reading")
    now_s = 1.0
    assert stage.text(Done(1, 2)) == "reading: 50%  1 s left"


def test_a_log_gets_a_line_for_each_stage() -> None:
    stream = io.StringIO()
    with shown_progress(stream) as progress:
        progress("starting Spark")
        progress("who led")
    assert stream.getvalue() == "quorum-offline: starting Spark\nquorum-offline: who led\n"


def test_a_terminal_is_left_clean() -> None:
    stream = Terminal()
    with shown_progress(stream) as progress:
        progress("starting Spark")
    assert not stream.getvalue().rstrip().endswith("starting Spark")


def test_spark_is_asked_nothing_once_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that stops answers a question about its stages with an error, whose traceback would end the command's output."""
    asking_at_stop: list[bool] = []

    class Spark:
        def stop(self) -> None:
            asking_at_stop.append(any(each.name == TICKER for each in threading.enumerate()))

    monkeypatch.setattr("snapshots.offline.session.prepare", lambda: None)
    monkeypatch.setattr("snapshots.offline.session.start_session", lambda *_, **__: Spark())
    with running.session(None, 8, ()) as (_, step):
        step("reading")
        assert any(each.name == TICKER for each in threading.enumerate())
    assert asking_at_stop == [False]
