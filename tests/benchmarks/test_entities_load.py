"""The load processes of `benchmarks.entities`: the streams that they read, the numbers that they find, and their figures."""

import asyncio
import struct

import pytest

from benchmarks.entities.fan_out import FOR_EVER_MS, FanOut, highest_rate, percentile
from benchmarks.entities.sides import VALUE_BYTES, stamped_value, stamps
from benchmarks.entities.streams import StreamsConnection
from benchmarks.entities.watchers import thinned
from benchmarks.http2 import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, Broken, frame


def message(text: bytes) -> bytes:
    return b"\x00" + struct.pack(">I", len(text)) + text


class Written(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def abort(self) -> None:
        self.data += b"<abort>"


class Reader:
    """A connection, and everything that it has told."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.broken: list[Broken] = []
        self.connection = StreamsConnection(lambda *both: self.messages.append(both), self.broken.append)
        self.transport = Written()
        self.connection.connection_made(self.transport)


ANSWERS = (
    frame(HEADERS, END_HEADERS, 1, b"fields")
    + frame(DATA, 0, 1, message(b"one") + message(b"two")[:6])
    + frame(DATA, 0, 3, message(b"of another stream"))
    + frame(PING, 0, 0, b"12345678")
    + frame(DATA, 0, 1, message(b"two")[6:] + message(b""))
)


@pytest.mark.parametrize("size", range(1, 40))
def test_messages_are_whole_wherever_the_bytes_and_the_frames_are_cut(size: int) -> None:
    reader = Reader()
    for start in range(0, len(ANSWERS), size):
        reader.connection.data_received(ANSWERS[start : start + size])
    assert reader.messages == [(1, b"one"), (3, b"of another stream"), (1, b"two"), (1, b"")]
    assert reader.transport.data.endswith(frame(PING, ACK, 0, b"12345678"))
    assert reader.broken == []


def test_a_stream_that_the_server_ends_is_told_once() -> None:
    """A run with fewer watchers than it names would have wrong figures."""
    reader = Reader()
    reader.connection.data_received(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"status"))
    reader.connection.connection_lost(None)
    assert len(reader.broken) == 1


def test_the_numbers_of_stamped_values_are_found_in_any_message() -> None:
    values = [stamped_value(number) for number in (7, 1 << 40, 8)]
    assert {len(value) for value in values} == {VALUE_BYTES}
    assert stamps(b"key" + b"key".join(values) + values[0][:9]) == (7, 1 << 40, 8)


def test_a_delivery_that_never_came_is_later_than_all_others() -> None:
    assert percentile([1.0, 2.0, 3.0], late=0, part=0.99) == 3.0
    assert percentile([1.0, 2.0, 3.0], late=3, part=0.5) == FOR_EVER_MS


def test_a_thinned_list_has_the_same_percentiles() -> None:
    values = [float(number) for number in reversed(range(100_000))]
    thin = thinned(values)
    assert len(thin) == 2_000
    assert thin[990] == pytest.approx(49_525)
    assert thin[1_980] == pytest.approx(99_025)


async def test_the_ladder_ends_at_the_first_rate_that_is_too_high() -> None:
    async def measure(rate: float) -> FanOut:
        late = {25: 10.0, 50: 249.0, 100: 251.0}[int(rate)]
        return FanOut(1_000, rate, 1.0, late, 1.0, late, rate * 1_000, 1.0, 0, 0.5, 0.5, 0.0, 0.1)

    best, steps = await highest_rate(measure, (25, 50, 100, 200))
    assert (best, [step.rate for step in steps]) == (50, [25, 50, 100])
