"""Tables: aligned for a terminal of any kind, and never with an id cut in two."""

import io
import json

import pytest
import yaml

from metaquorum import ConsumerRecord
from quorum.cli.commands.records.consume import Printer
from quorum.cli.output import Column, emit, escape_the_rest

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


def test_a_terminal_shows_brackets_and_colons_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that aligns the table takes `[fe80::1]` for a mark of style, and `:key:` for the name of a picture."""
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    emit("table", {"rows": [{"it": "[fe80::1]:9092 :key: [/x"}]}, rows="rows", columns=[Column("[b] IT", "it")])
    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["[b] IT", "[fe80::1]:9092 :key: [/x"]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_no_name_breaks_the_lines_of_a_table(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused name may have line ends, tabs, and sequences that move the cursor. A row stays one line with its columns."""
    out = stream()
    monkeypatch.setattr("sys.stdout", out)
    columns = [Column("USER", "user"), Column("HOSTS", "hosts"), Column("RESULT", "result")]
    row = {"user": "a\nb\tc\x1b[2J\udcff", "hosts": ["x\r", "日本"], "result": "refused"}
    emit("table", {"rows": [row]}, rows="rows", columns=columns)
    _, line = out.getvalue().splitlines()
    assert line.split() == [r"a\nb\tc\x1b[2J\udcff", r"x\r,日本", "refused"]


@pytest.mark.parametrize("output", ["table", "json", "jsonl", "yaml"])
def test_a_terminal_of_another_alphabet_gets_escapes_and_programs_the_same_text(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding="latin-1", write_through=True)
    monkeypatch.setattr("sys.stdout", out)
    escape_the_rest(out)
    printer = Printer(output)
    printer.show([ConsumerRecord("orders", 0, 0, 0, "hö".encode(), "日本 😀".encode(), (), 5)])
    printer.end()
    text = data.getvalue().decode("latin-1")
    match output:
        case "table":
            assert text.splitlines()[1].endswith("hö\t\\u65e5\\u672c \\U0001f600")
        case "json":
            assert json.loads(text)["records"][0]["value"] == "日本 😀"
        case "jsonl":
            assert json.loads(text)["value"] == "日本 😀"
        case "yaml":
            assert yaml.safe_load(text)["records"][0]["value"] == "日本 😀"


def test_a_terminal_of_utf_8_gets_the_text_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding="utf-8", write_through=True)
    monkeypatch.setattr("sys.stdout", out)
    escape_the_rest(out)
    emit("json", {"name": "日本"})
    assert "日本" in data.getvalue().decode()
    assert out.errors == "strict"
