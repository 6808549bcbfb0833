"""One watch: the conversation with one client, from its request to its end.

    begin --> continue at a position, from now on, or RESET
      |
      v
    catch up: read the log up to the hub's position  <----+
      |                                                   | the reader has left the hub,
      v                                                   | or its position is lost: RESET
    follow: take what the hub queues, and send bookmarks -+

A message is written when the client has taken the message before it, as far as gRPC's flow control says. A client that takes
nothing for `STALLED_S` is cut, so that it does not hold memory for ever. Example with a bookmark interval of 5 s:
    1. The client opens a watch at 1,244. The node has this position: the first message is empty, with the position 1,244.
    2. The node reads [1,244, 1,250) from its log, and sends the events with the position 1,250. The watch attaches to the hub.
    3. For 5 s nothing is committed that the watch shows. A message without events says that all is seen below 1,391.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Any, Final

from metadata_log.image.metadata_image import MetadataImage
from service_kit.rpc.refusals import Refusal
from watches.core.position import Continue, Position, Reset, ResetReason, verdict
from watches.core.reader_queue import Message
from watches.core.watched_log import LogUnreadable, PositionLost
from watches.service.catching_up import NotThere, Piece, caught_up
from watches.service.hub import Hub
from watches.service.messages import Tail, reset_part, tail_of
from watches.service.reader import Reader
from watches.service.request import Wanted
from watches.service.state_messages import state_messages

WRITE_BYTES: Final = 256 << 10
"""Maximum size of messages that are joined."""
STALLED_S: Final = 30.0
"""How long a client may take no message."""
ELSEWHERE: Final = "go on at another node, from the position of the last whole message"
READY_WAIT_S: Final = 5.0
"""How long a watch waits for a node that has not applied everything below the position."""


class Watch:
    """One watch. `run` ends with a Refusal, or when the client ends the call."""

    def __init__(self, hub: Hub, wanted: Wanted, context: Any, buffer_bytes: int) -> None:
        self._hub = hub
        self._wanted = wanted
        self._context = context
        self._reader = Reader(wanted.shown, buffer_bytes)
        self._position: Position
        """Everything below was sent, or is not shown."""
        self._is_open = False
        """True if the last message was not whole."""
        self._loop = asyncio.get_running_loop()
        self._sent_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serves the watch.

        Raises:
            Refusal: the watch has ended.
        """
        with self._hub.joined(self._reader):
            try:
                await self._begin()
                while True:
                    await self._go_on()
            except LogUnreadable as e:
                raise Refusal("STORAGE_ERROR", f"{e}: {ELSEWHERE}") from e
            finally:
                if self._timer is not None:
                    self._timer.cancel()

    # --- the beginning, and RESET --------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        position = self._wanted.position
        if position is not None:
            await self._resume(position)
        elif self._wanted.from_now:
            await self._greet((await self._place())[0].position)
        else:
            await self._reset(ResetReason.NO_POSITION)

    async def _place(self) -> tuple[Tail, MetadataImage]:
        async with self._hub.lock:
            return await self._hub.place()

    async def _greet(self, position: Position) -> None:
        """Tells the client that the watch goes on at `position`."""
        self._position = position
        self._reader.since = position.offset
        await self._write(Message(tail_of(position, 0).data, 0))

    async def _resume(self, position: Position) -> None:
        """Goes on at a position, or with the state. Waits for a node that is late.

        Raises:
            Refusal: NOT_READY: the node is too late.
        """
        until_s = self._loop.time() + READY_WAIT_S
        while True:
            self._check()
            log = self._hub.log
            image = log.image
            place = await log.place_of(position.offset)
            match verdict(position, log.generation, place):
                case Continue():
                    assert place.epoch is not None and place.chain is not None, place
                    return await self._greet(Position(log.generation, position.offset, place.epoch, place.chain))
                case Reset(reason):
                    return await self._reset(reason)
            if self._loop.time() >= until_s:
                known = f"this node has applied everything below {place.end} in generation {log.generation}"
                behind = f"{known}, and the position is {position.offset} in generation {position.generation}"
                raise Refusal("NOT_READY", f"{behind}: ask another node")
            await self._changed(until_s, image)

    async def _changed(self, until_s: float, since: MetadataImage) -> None:
        """Returns at the next change of the node, at once if its image is not `since` any more, or at `until_s`."""
        if self._hub.log.image is not since:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._hub.log.changed()

    async def _reset(self, reason: ResetReason) -> None:
        """Sends the state at the hub's position. A state that has begun is sent to its end: a client could not tell the rest of
        it from another state.
        """
        reader = self._reader
        reader.lost = None
        tail, image = await self._place()
        reader.since = tail.position.offset
        self._hub.tallies.resets.add(1, reason.name.lower())
        prefix = reset_part(reason)
        last = Message(prefix, 0)
        messages = state_messages(self._hub, reader.shown, tail, image, prefix)
        async with aclosing(messages):
            async for message in messages:
                if last.events:
                    await self._write(last)
                    self._check()
                last = message
        await self._write(Message(last.data + tail.data, last.events))
        self._position, self._is_open = tail.position, False

    def _check(self) -> None:
        """Raises Refusal if the node has ended the watch."""
        if self._reader.refusal is not None:
            raise self._reader.refusal
        self._hub.check()

    # --- the changes ---------------------------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        """Shows changes from the position on, until the reader has left the hub."""
        image = self._hub.log.image
        try:
            await self._catch_up()
            await self._follow()
            return
        except NotThere:
            await self._changed(self._loop.time() + READY_WAIT_S, image)
        except PositionLost:
            pass  # the verdict on the position has the reason
        self._hub.detach(self._reader)
        if self._reader.lost is not None:
            await self._reset(self._reader.lost)
        elif self._is_open:
            # A whole message now would make a part of a batch look like the whole batch.
            raise Refusal(
                "NOT_READY", f"the batch behind offset {self._position.offset} cannot be read here: {ELSEWHERE}"
            )
        else:
            await self._resume(self._position)

    async def _catch_up(self) -> None:
        """Reads on from the log, and attaches to the hub."""
        while True:
            self._check()
            if self._reader.lost is not None:
                raise PositionLost("a batch was skipped")
            async with self._hub.lock:
                tail, image = await self._hub.place(self._position.offset)
                if tail.position == self._position:
                    return self._hub.attach(self._reader)
            if tail.position.offset < self._position.offset:
                raise NotThere("the node is behind the position")
            if tail.position.offset == self._position.offset:
                raise PositionLost("the hub has another history")
            pieces = caught_up(self._hub, self._reader, self._position, tail.position, image)
            async with aclosing(pieces):
                async for piece in pieces:
                    await self._send(piece)
                    self._check()
            self._position = tail.position

    async def _send(self, piece: Piece) -> None:
        for message in piece.before[:-1]:
            await self._write_open(message)
        last = piece.before[-1] if piece.before else None
        if piece.tail is not None:
            if last is not None:
                await self._write(Message(last.data + piece.tail.data, last.events))
            elif self._is_open or self._loop.time() >= self._bookmark_s:
                await self._write(Message(piece.tail.data, 0))
            self._is_open = False
            self._position = piece.tail.position
        for message in piece.after:
            await self._write_open(message)

    async def _write_open(self, message: Message) -> None:
        self._is_open = True
        await self._write(message)

    async def _follow(self) -> None:
        """Sends what the hub queues, until the reader has left the hub."""
        reader = self._reader
        while True:
            if reader.queue:
                await self._write(reader.queue.take(WRITE_BYTES))
            elif reader.refusal is not None:
                raise reader.refusal
            elif reader.lost is not None:
                raise PositionLost("a batch was skipped")
            elif reader.behind is not None:
                self._position = reader.behind
                return
            elif self._loop.time() >= self._bookmark_s:
                tail = self._hub.bookmark(self._reader)
                self._position = tail.position
                await self._write(Message(tail.data, 0))
            else:
                await self._wait()

    @property
    def _bookmark_s(self) -> float:
        """When a message without events is due."""
        return self._sent_s + self._wanted.bookmark_s

    async def _wait(self) -> None:
        """Returns when the hub has something for the reader, or when a bookmark may be due."""
        if self._timer is None:
            self._timer = self._loop.call_at(self._bookmark_s, self._ring)
        self._reader.wake.clear()
        await self._reader.wake.wait()

    def _ring(self) -> None:
        self._timer = None
        self._reader.wake.set()

    async def _write(self, message: Message) -> None:
        self._hub.tallies.events.add(message.events)
        try:
            async with asyncio.timeout(STALLED_S):
                await self._context.write(message.data)
        except TimeoutError as e:
            self._hub.tallies.cut.add()
            text = f"the client has taken no message for {STALLED_S:g} s: go on from the position of the last whole message"
            raise Refusal("THROTTLING_QUOTA_EXCEEDED", text) from e
        self._sent_s = self._loop.time()
