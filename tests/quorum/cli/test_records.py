"""`quorumctl produce` and `consume` without a cluster: places, rows, lines of the input, and wrong usage.

tests/processes/partitions/test_clients.py runs both commands against real brokers.
"""

import asyncio
import errno
import io
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import cast

import click
import pytest
from click.testing import CliRunner

from metaquorum import ConsumerRecord, Producer, RecordMetadata
from quorum.cli.commands.records.input_lines import CHUNK_BYTES, CHUNKS_MAX, LINE_BYTES_MAX, input_lines
from quorum.cli.commands.records.produce import Outcome, _write
from quorum.cli.commands.records.record_rows import line_of, row_of, time_text
from quorum.cli.commands.records.start_place import parse_place
from quorum.cli.errors import CliError
from quorum.cli.main import cli


def record(key: bytes | None, value: bytes | None, *, timestamp_ms: int = 1_795_471_806_774) -> ConsumerRecord:
    return ConsumerRecord("orders", 1, 12, timestamp_ms, key, value, (("h", b"\xff"), ("n", None)), 5)


def place(text: str) -> object:
    return parse_place(click.Context(cli), click.Option(["--from"]), text)


def test_a_place_is_an_end_an_offset_or_a_time() -> None:
    assert [place(text) for text in ("beginning", "end", "0", "1244")] == ["beginning", "end", 0, 1244]
    at_nine = datetime(2026, 11, 23, 21, tzinfo=UTC)
    assert (
        place("2026-11-23T21:00:00Z") == place("2026-11-23T22:00:00+01:00") == place("2026-11-23T21:00:00") == at_nine
    )


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "9" * 19 + "9", "9223372036854775808", "1969-12-31", "١٢"])
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        place(text)


def test_a_line_for_people_has_no_control_characters() -> None:
    assert line_of(record(None, b"a\tb\n\x1b[31m\xff")) == "1\t12\t2026-11-23T22:10:06.774Z\t-\ta\\tb\\n\\x1b[31m\\xff"


def test_a_row_for_programs_has_every_byte() -> None:
    row = row_of(record(b"\xff\x00", "höfe\n".encode()))
    assert (row["key"], row["value"]) == ({"base64": "/wA="}, "höfe\n")
    assert row["headers"] == [{"name": "h", "value": {"base64": "/w=="}}, {"name": "n", "value": None}]
    assert (row["offset"], row["leader_epoch"], row["timestamp_ms"]) == (12, 5, 1_795_471_806_774)


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert time_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert time_text(253_402_300_800_000) == "253402300800000"


async def lines_of(stream: io.BytesIO) -> list[bytes]:
    return [line async for lines in input_lines(stream) for line in lines]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"x" * (CHUNK_BYTES * 2) + b"\ny\n", [b"x" * (CHUNK_BYTES * 2), b"y"]),
    ],
)
async def test_the_input_is_cut_into_lines(data: bytes, lines: list[bytes]) -> None:
    assert await lines_of(io.BytesIO(data)) == lines


async def test_a_line_that_no_record_can_hold_is_refused() -> None:
    with pytest.raises(CliError, match="line 2 has more than"):
        await lines_of(io.BytesIO(b"a\n" + b"x" * (LINE_BYTES_MAX + 1)))


class BrokenInput(io.BytesIO):
    """A terminal that goes away, or a disk with a bad sector, after the first line."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if not data:
            raise OSError(errno.EIO, "Input/output error")
        return data


async def test_an_input_that_is_closed_under_the_reader_is_told() -> None:
    stream = io.BytesIO(b"a\n" * CHUNK_BYTES * CHUNKS_MAX)  # twice as long as what may wait in memory
    found = input_lines(stream)
    await anext(found)
    stream.close()
    with pytest.raises(CliError, match=r"standard input cannot be read: it was closed; [0-9,]+ lines before were sent"):
        async with asyncio.timeout(10):
            async for _ in found:
                pass


class Written:
    """A producer that keeps the values."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    async def enqueue(self, topic: str, value: bytes, **_: object) -> asyncio.Future[RecordMetadata]:
        self.values.append(value)
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(RecordMetadata(topic, 0, len(self.values) - 1, 0))
        return sent


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (BrokenInput(b"a\nb\n"), "standard input cannot be read: Input/output error; 2 lines before were sent"),
        (io.BytesIO(b"a\nb\n" + b"x" * (LINE_BYTES_MAX + 1)), "more than 1048576 bytes"),
    ],
)
async def test_an_input_that_breaks_off_is_told_with_what_was_written(
    stream: io.BytesIO, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    producer, outcome = Written(), Outcome("orders")
    await _write(cast(Producer, producer), outcome, None, None)
    await asyncio.sleep(0)
    assert (outcome.count, producer.values[:2]) == (2, [b"a", b"b"])
    assert outcome.error is not None and text in outcome.error.message


async def test_a_line_is_there_before_the_input_ends() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as pipe:
        found = input_lines(stream)
        pipe.write(b"a\n")
        async with asyncio.timeout(10):
            assert await anext(found) == [b"a"]
        pipe.write(b"b")
        pipe.close()
        assert [lines async for lines in found] == [[b"b"]]


def test_produce_ends_with_its_exit_code_while_its_input_stays_open() -> None:
    words = ["produce", "orders", "-b", "127.0.0.1:1", "--key-separator", ":"]
    with subprocess.Popen(
        [sys.executable, "-m", "quorum.cli.main", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as ran:
        assert ran.stdin is not None and ran.stderr is not None
        ran.stdin.write(b"no key\n")
        ran.stdin.flush()
        code = ran.wait(60)
        assert (code, b"line 1 has no ':'" in (text := ran.stderr.read())) == (1, True), text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("consume", "orders", "--follow", "-o", "json"), "use -o jsonl with --follow"),
        (("consume", "orders", "--from", "never"), "neither beginning, end, an offset, nor a time"),
        (("consume", "orders", "--max-records", "0"), "max-records"),
        (("produce", "orders", "--key-separator", ""), "--key-separator needs a text"),
        (("produce", "orders", "--acks", "2"), "acks"),
    ],
)
def test_wrong_usage_is_told_before_anybody_is_asked(words: tuple[str, ...], text: str) -> None:
    ran = CliRunner().invoke(cli, words)
    assert (ran.exit_code, text in ran.stderr) == (2, True), ran.stderr
