"""Tables: aligned for a terminal of any kind, and never with an id cut in two."""

import io

import pytest

from quorum.cli.output import Column, emit

ENDPOINT = "broker-with-a-long-name.example.org:9092"


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", ["dumb", "xterm-256color", "unknown"])
def test_no_kind_of_terminal_cuts_an_id(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Under TERM=dumb (build servers, editors) the terminal's width is not known; nothing is cut to a guess of it."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", "60")
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    row = {f"key_{number}": f"{number}-{ENDPOINT}" for number in range(8)}
    emit(
        "table", {"rows": [row]}, rows="rows", columns=[Column(f"KEY_{number}", f"key_{number}") for number in range(8)]
    )
    assert "…" not in out.getvalue()
    for value in row.values():
        assert value in out.getvalue()
