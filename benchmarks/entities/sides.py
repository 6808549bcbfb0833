"""The calls that `benchmarks.entities` makes to a cluster of either side: writes, watches and sessions, over raw gRPC stubs."""

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from benchmarks.load import Call
from benchmarks.rounds import Side

KEYS = 10_000
"""How many keys the writes take in turn."""
VALUE_BYTES = 200
WATCHED_KEYS = 100
"""How many keys the stamped writes take in turn."""
LEADER, FOLLOWERS, BROKER = "leader", "followers", "broker"
"""The places where a watch can be opened."""

_STAMP = struct.Struct(">8sQ")
STAMP_MARK = b"\x00bench>\x00"
STAMP_BYTES = _STAMP.size


def stamped_value(number: int) -> bytes:
    """Returns VALUE_BYTES bytes with `number` in them. A reader finds the number in any message around the value."""
    return _STAMP.pack(STAMP_MARK, number).ljust(VALUE_BYTES, b".")


def stamps(message: bytes) -> tuple[int, ...]:
    """The numbers of all stamped values in a message, in their order."""
    found = []
    position = message.find(STAMP_MARK)
    while position >= 0 and position + STAMP_BYTES <= len(message):
        found.append(_STAMP.unpack_from(message, position)[1])
        position = message.find(STAMP_MARK, position + STAMP_BYTES)
    return tuple(found)


class WatchPoint(NamedTuple):
    """One server for a watch of the stamped keys, the path of the call, and the first message."""

    target: str
    path: str
    request: bytes
    is_half_closed: bool
    """True: the client ends its side of the stream after the first message. False: that would end the watch."""


class SessionLoad(Protocol):
    """The sessions of one measurement, each with one key that vanishes with its session."""

    async def open(self, number: int) -> None:
        """Opens a session, and writes its key."""

    async def keep_alive(self, number: int) -> None:
        """Sends one keep-alive, and waits for the answer."""

    def vanished(self) -> AsyncIterator[int]:
        """The number of each session whose key a watch at the leader sees vanish."""


class EntitySide(Protocol):
    """One cluster of three servers with fsync."""

    async def pids(self) -> dict[str, int]:
        """The servers' processes: the leader first."""

    async def put(self) -> Call:
        """Writes one key, at the leader."""

    async def compare_and_set(self, keys: int) -> Call:
        """Compares the version of one of `keys` keys with its last write, and writes it. No two calls have the same key."""

    async def transaction(self, keys: int) -> Call:
        """Writes `keys` keys in one transaction."""

    async def stamped_put(self) -> Callable[[int], Awaitable[object]]:
        """Writes `stamped_value(number)` to a watched key, at the leader."""

    async def watch_points(self, place: str) -> list[WatchPoint]:
        """One point for each server of a place."""

    def sessions(self, timeout_s: int) -> AbstractAsyncContextManager[SessionLoad]:
        """Sessions with this timeout, at the leader."""


def side_of(cluster: EntitySide, make: Callable[[], Awaitable[Call]]) -> Side:
    """A side of `benchmarks.rounds`."""

    async def nothing() -> None:
        return None

    async def begin() -> tuple[Call, Callable[[], Awaitable[None]]]:
        return await make(), nothing

    return Side(cluster.pids, begin)
