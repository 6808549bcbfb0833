"""The decisions of a session's keeper: when to send a keep-alive, when to go to another node, how long the session is safe.

The keeper sends a message every third of the timeout, one at a time. The lease in an answer counts from the moment at which the
*message* was sent, because the controller may have renewed the session then, and the answer may have travelled for long:

    1. Session A has a timeout of 9,000 ms. The keeper sends message 1 at 3,000; the answer comes at 5,000 with a lease of 7,200.
    2. The session is safe until 10,200, and not until 12,200. Message 2 leaves at 6,000.
    3. The controller dies at 6,500. At 8,000 the keeper gives up on the answer and asks the next node. The elected controller
       answers at 8,900 that the session goes on: safe until 8,000 + 7,200.
    4. If no node had answered, the session would not be safe from 10,200 on, and not lost either: the keeper goes on asking.
       Only a controller's word UNKNOWN_SESSION ends a session.

The owner calls `step` and carries out the effects, tells what has happened, and calls `step` again at `next_ms` or after news.
Events of a stream carry the stream's number; those of a former stream change nothing.
"""

from typing import Final, NamedTuple, TypeAlias

ANSWER_MS_MAX: Final = 2_000
"""How long the keeper waits for one answer at most."""
BACKOFF_FIRST_MS: Final = 20
BACKOFF_MAX_MS: Final = 200
UNKNOWN_LEASE_MS: Final = 250
"""How long the keeper waits after an answer without a lease."""


class OpenStream(NamedTuple):
    """Close the former stream, and open stream `number`: at `hint`, or, if `elsewhere`, at the next node, else at the same."""

    number: int
    hint: str | None
    elsewhere: bool


class SendKeepAlive(NamedTuple):
    """Send a message with this id in stream `number`."""

    number: int
    message_id: int


class SessionEnded(NamedTuple):
    """The session has ended. Sent once, as the last effect."""

    why: str


Effect: TypeAlias = OpenStream | SendKeepAlive | SessionEnded


class SessionCore:
    """The keeper of one session."""

    def __init__(self, timeout_ms: int, opened_ms: int) -> None:
        """`opened_ms`: when the client first asked to open the session. The session lives for `timeout_ms` from then on at
        least; a fifth of it is left for clocks that run apart, as in the leases of the controllers.
        """
        assert timeout_ms > 0
        self.timeout_ms = timeout_ms
        self.interval_ms = max(1, timeout_ms // 3)
        self.safe_until_ms = opened_ms + timeout_ms * 4 // 5
        """The session is surely alive before this time."""
        self.ended: str | None = None
        """The reason if the session has ended."""
        self._heard_ms = opened_ms
        """When the last message was sent that a controller has answered with a lease."""
        self._stream = 0
        self._is_open = False
        self._is_told = False
        self._hint: str | None = None
        self._goes_elsewhere = False
        self._has_followed_hint = False
        self._next_ms = opened_ms
        """When to connect, if no stream is open; else when to send the next message."""
        self._backoff_ms = BACKOFF_FIRST_MS
        self._message_id = 0
        self._sent_ms: int | None = None
        """When the message was sent that has no answer yet."""

    def __str__(self) -> str:
        state = f"ended: {self.ended}" if self.ended else f"safe until {self.safe_until_ms}"
        return f"session({state}, stream {self._stream}{'' if self._is_open else ' to open'})"

    def is_safe(self, now_ms: int) -> bool:
        """True while the session surely lives. False does not mean that it has ended."""
        return self.ended is None and now_ms < self.safe_until_ms

    def step(self, now_ms: int) -> list[Effect]:
        """Returns the effects that are due."""
        effects: list[Effect] = []
        if self.ended is not None:
            if not self._is_told:
                self._is_told = True
                effects.append(SessionEnded(self.ended))
            return effects
        if self._sent_ms is not None and now_ms >= self._sent_ms + self._answer_ms:
            self.broke(self._stream, now_ms)
        if now_ms < self._next_ms or self._sent_ms is not None:
            return effects
        if not self._is_open:
            self._stream += 1
            self._is_open = True
            effects.append(OpenStream(self._stream, self._hint, self._goes_elsewhere))
            self._hint, self._goes_elsewhere = None, False
        self._message_id += 1
        self._sent_ms = now_ms
        effects.append(SendKeepAlive(self._stream, self._message_id))
        return effects

    def next_ms(self) -> int | None:
        """When `step` has to be called again without news. None: never."""
        if self.ended is not None:
            return None
        return self._next_ms if self._sent_ms is None else self._sent_ms + self._answer_ms

    @property
    def _answer_ms(self) -> int:
        return min(self.interval_ms, ANSWER_MS_MAX)

    # --- news ------------------------------------------------------------------------------------------------------

    def kept(self, stream: int, message_id: int, lease_ms: int, now_ms: int) -> None:
        """The controller has kept the session alive. `lease_ms` 0: it does not know for how long."""
        if self._sent_ms is None or (stream, message_id) != (self._stream, self._message_id):
            return
        sent_ms, self._sent_ms = self._sent_ms, None
        if lease_ms > 0:
            self._heard_ms = sent_ms
            self.safe_until_ms = max(self.safe_until_ms, sent_ms + min(lease_ms, self.timeout_ms))
            self._next_ms = max(now_ms, sent_ms + self.interval_ms)
            self._backoff_ms, self._has_followed_hint = BACKOFF_FIRST_MS, False
        else:
            self._next_ms = now_ms + min(self.interval_ms, UNKNOWN_LEASE_MS)

    def unknown(self, now_ms: int) -> None:
        """A controller does not know the session any more. Its timeout is over since the last message that was answered, unless
        somebody has closed it. (A fifth of the timeout is left for clocks that run apart.)"""
        silent_ms = now_ms - self._heard_ms
        if silent_ms < self.timeout_ms * 4 // 5:
            self.end(f"somebody has closed it: the controllers had kept it alive {_seconds(silent_ms)} before")
        else:
            self.end(
                f"no keep-alive was answered for {_seconds(silent_ms)}, and its timeout is {_seconds(self.timeout_ms)}"
            )

    def end(self, why: str) -> None:
        """The session has ended, for a reason that the caller knows."""
        if self.ended is None:
            self.ended = why

    def refused(self, stream: int, hint: str | None, now_ms: int) -> None:
        """The node has kept nothing alive. `hint`: the leader that it knows."""
        if stream != self._stream or not self._is_open:
            return
        # Two nodes that name each other as leader must not be asked in turn without a pause.
        at_once = hint is not None and not self._has_followed_hint
        self._has_followed_hint = at_once
        self._hint, self._goes_elsewhere = hint, hint is None
        self._close(now_ms if at_once else now_ms + self._pause())

    def broke(self, stream: int, now_ms: int) -> None:
        """The stream broke, or an answer is overdue."""
        if stream != self._stream or not self._is_open:
            return
        self._hint, self._goes_elsewhere = None, True
        self._close(now_ms + self._pause())

    def _close(self, connect_ms: int) -> None:
        self._is_open, self._sent_ms, self._next_ms = False, None, connect_ms

    def _pause(self) -> int:
        pause, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, BACKOFF_MAX_MS)
        return pause


def _seconds(ms: int) -> str:
    return f"{round(ms / 1_000, 1):g} s"
