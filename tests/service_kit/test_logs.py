"""Log lines: complete, in order, one a line, and never waited for."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from service_kit.process import logs
from service_kit.process.logs import Logs, get_logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()


def test_json_lines(stream: io.StringIO) -> None:
    """Fields that every line has come first; libraries' own records end in the same place and form."""
    with Logs("info", "json", stream=stream, node_id=1, role="follower") as running:
        get_logger("a.b").info("voted", epoch=7, chain=b"\x01\x02", listeners=("x",))
        running.bind(role="leader")
        get_logger("a.b").debug("too small")
        logging.getLogger("grpc").warning("bad %s\nnews", "very")

    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert list(first)[:6] == ["ts", "level", "logger", "event", "node_id", "role"]
    assert (first["event"], first["epoch"], first["chain"], first["role"]) == ("voted", 7, "0102", "follower")
    assert (second["event"], second["level"], second["logger"]) == ("bad very\nnews", "warning", "grpc")
    assert (second["node_id"], second["role"]) == (1, "leader")


def test_logfmt_lines(stream: io.StringIO) -> None:
    """key=value for people; whatever could break the line is quoted. A trace follows its line."""
    with Logs("debug", "logfmt", stream=stream, node_id=2):
        get_logger("a").debug("said", text='two "words"', line="a\nb", nothing=None, yes=True, empty="")
        try:
            raise ValueError("broken")
        except ValueError:
            get_logger("a").exception("failed", offset=5)

    said, failed, *trace = stream.getvalue().splitlines()
    assert said.split(" ", 1)[1] == (
        'debug a "said" node_id=2 text="two \\"words\\"" line="a\\nb" nothing=null yes=true empty=""'
    )
    assert failed.split(" ", 1)[1] == 'error a "failed" node_id=2 offset=5'
    assert trace[0].startswith("Traceback") and trace[-1] == "ValueError: broken"


def test_a_stuck_terminal_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that nobody takes are dropped and counted; whoever logs goes on."""
    monkeypatch.setattr(logs, "QUEUE_LINES_MAX", 10)
    stuck = threading.Event()

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            stuck.wait()
            return super().write(text)

    terminal = Terminal()
    with Logs("info", "json", stream=terminal) as running:
        for n in range(100):
            get_logger("a").info("line", n=n)
        dropped = running.dropped
        stuck.set()

    assert 89 <= dropped <= 90
    assert len(terminal.getvalue().splitlines()) == 100 - dropped


def test_levels_change_while_running(stream: io.StringIO) -> None:
    """As SIGHUP does."""
    with Logs("error", "json", stream=stream) as running:
        get_logger("a").info("unheard")
        running.set_level("debug")
        get_logger("a").debug("heard")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["heard"]
