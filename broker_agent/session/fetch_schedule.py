"""When a broker's next request goes out, what it asks for, and which answer counts.

*One request in flight.* An answer counts only while its number is the one in flight, so a late or repeated answer can
neither apply twice nor renew a lease. Either a request is in flight, or it is known when the next one is due, or neither;
never both.

*A fetch asks for what comes in time* over a link of any speed: see `metadata_log.format.pieces`.

*Never a busy loop.* Every path to the next request passes a back-off, a long poll or `fetch_interval_min_ms`. Only a hint
to the leader is followed at once, and not twice in a row.
"""

import random
from dataclasses import dataclass

from broker_agent.session.lifecycle import (
    AbandonFetch,
    BrokerState,
    Fetch,
    FetchRequest,
    LeaderHint,
    Position,
    Register,
)
from broker_agent.session.session_config import SessionConfig
from metadata_log.format.ids import Uuid
from metadata_log.format.pieces import PieceSize


@dataclass(frozen=True, slots=True)
class Sent:
    """A request in flight."""

    number: int
    sent_ms: int
    timeout_at_ms: int
    request: FetchRequest | None
    """None: a registration."""


class FetchSchedule:
    """The requests of one session. Attributes without an underscore are for reading only."""

    def __init__(self, config: SessionConfig, rng: random.Random) -> None:
        self.in_flight: Sent | None = None
        self.due_ms: int | None = None
        """When the next request goes out; None while one is in flight, or while something else must happen first."""
        self.failures = 0
        """In a row; each doubles the back-off."""
        self.pieces = PieceSize(config.piece_bytes_min, config.max_bytes, config.request_timeout_ms)
        """How much of the log a fetch asks for, so that it comes in time."""
        self._config = config
        self._rng = rng
        self._number = 0
        self._followed_hint = False
        self._hurries = False
        """A fetch has failed, and no answer since then has given a lease: one that is left may be about to end."""

    def next_deadline_ms(self) -> int | None:
        """When something is to be done here: an answer is overdue, or the next request is due."""
        return self.due_ms if self.in_flight is None else self.in_flight.timeout_at_ms

    @property
    def is_idle(self) -> bool:
        """Nothing is asked, and nothing is due."""
        return self.in_flight is None and self.due_ms is None

    def check_invariants(self) -> None:
        assert self.in_flight is None or self.due_ms is None, "one request at a time"

    # --- sending -----------------------------------------------------------------------------------------------------

    def is_due(self, now_ms: int) -> bool:
        return self.in_flight is None and self.due_ms is not None and now_ms >= self.due_ms

    def register(self, previous_incarnation: Uuid | None, now_ms: int) -> Register:
        """A registration goes out."""
        timeout_ms = self._config.register_timeout_ms
        number = self._next_number()
        self.in_flight = Sent(number, now_ms, now_ms + timeout_ms, None)
        return Register(number, previous_incarnation, timeout_ms)

    def fetch(
        self,
        broker_epoch: int,
        position: Position,
        state: BrokerState,
        *,
        part_position: int,
        busy: bool,
        wants_fence: bool,
        now_ms: int,
    ) -> Fetch:
        """A fetch goes out. While the store is `busy` it waits for nothing and brings next to nothing: it is a heartbeat.

        After a failure it waits for nothing either, so that whoever leads now renews the lease at once. A new leader first brings
        the record that opened its epoch, and gives a lease with the answer to the fetch after that.
        """
        request = FetchRequest(
            number=self._next_number(),
            broker_epoch=broker_epoch,
            position=position,
            wants_fence=wants_fence,
            wants_shut_down=state is BrokerState.STOPPING,
            max_wait_ms=0 if busy or self._hurries else self._max_wait_ms(state),
            max_bytes=1 if busy else self.pieces.next(now_ms),
            part_position=part_position,
        )
        timeout_at_ms = now_ms + request.max_wait_ms + self._config.request_timeout_ms
        self.in_flight = Sent(request.number, now_ms, timeout_at_ms, request)
        return Fetch(request)

    def _next_number(self) -> int:
        assert self.in_flight is None
        self.due_ms = None
        self._number += 1
        return self._number

    def _max_wait_ms(self, state: BrokerState) -> int:
        if state is BrokerState.STOPPING:
            return self._config.shutdown_interval_ms
        return self._config.max_wait_ms if state is BrokerState.ONLINE else self._config.fenced_max_wait_ms

    # --- what becomes of it ------------------------------------------------------------------------------------------

    def registration_completed(self, number: int) -> bool:
        """Whether registration `number` is the request in flight; it is so no more."""
        sent = self.in_flight
        if sent is None or sent.number != number or sent.request is not None:
            return False
        self.in_flight = None
        return True

    def fetch_completed(self, number: int) -> tuple[Sent, FetchRequest] | None:
        """Fetch `number` if that is the request in flight; it is so no more."""
        sent = self.in_flight
        if sent is None or sent.number != number or sent.request is None:
            return None
        self.in_flight = None
        return sent, sent.request

    def piece_came(self, sent: Sent, content_bytes: int, now_ms: int) -> None:
        """So much of what was asked for has come, and the controller has more."""
        self.pieces.came(content_bytes, sent.sent_ms, now_ms)

    def take_overdue(self, now_ms: int) -> Sent | None:
        """The request in flight if its time is up; it is so no more."""
        sent = self.in_flight
        if sent is None or now_ms < sent.timeout_at_ms:
            return None
        self.in_flight = None
        self.pieces.start_small()
        return sent

    def abandon(self) -> AbandonFetch | None:
        """Whatever is in flight counts no more; something more urgent is to be asked."""
        sent, self.in_flight = self.in_flight, None
        return None if sent is None or sent.request is None else AbandonFetch(sent.number)

    def stop(self) -> None:
        """Nothing is asked any more."""
        self.in_flight = None
        self.due_ms = None

    # --- when to ask next --------------------------------------------------------------------------------------------

    def ask_at(self, at_ms: int) -> None:
        assert self.in_flight is None
        self.due_ms = at_ms

    def ask_after_answer(
        self, sent: Sent, state: BrokerState, *, busy: bool, brought: bool, leased: bool, now_ms: int
    ) -> None:
        """At once if there may be more where that came from; else not sooner after `sent` than the interval in force."""
        self._hurries = self._hurries and brought and not leased
        if state is BrokerState.STOPPING:
            interval_ms = self._config.shutdown_interval_ms
        elif busy:
            interval_ms = self._config.contact_interval_ms
        else:
            interval_ms = 0 if brought else self._config.fetch_interval_min_ms
        self.ask_at(max(now_ms, sent.sent_ms + interval_ms))

    def ask_when_ready(self, now_ms: int) -> None:
        """The controller has only just begun to lead, and cannot say yet."""
        self.ask_at(now_ms + self._jittered(self._config.not_ready_interval_ms))

    def postpone(self) -> None:
        """The store has got work: until it is done, contact is enough."""
        if self.due_ms is not None:
            self.due_ms += self._config.contact_interval_ms

    def forget_failures(self) -> None:
        self.failures = 0

    def answered(self) -> None:
        """A controller that leads has answered."""
        self.forget_failures()
        self._followed_hint = False

    def back_off(self, now_ms: int) -> None:
        """Once more, but later than last time."""
        self.failures += 1
        self._hurries = True
        self.ask_at(now_ms + self._backoff_ms())

    def try_elsewhere(self, leader: LeaderHint | None, now_ms: int) -> None:
        """After a failure: a hint is followed at once, all else backs off; what is in flight is waited for."""
        self.failures += 1
        self._hurries = True
        self.pieces.start_small()  # another controller is at the end of another link
        if self.in_flight is None:
            # Two nodes that name each other must not be asked in turns without a pause.
            self._followed_hint = leader is not None and not self._followed_hint
            self.ask_at(now_ms if self._followed_hint else now_ms + self._backoff_ms())

    def reset_backoff_ms(self, resets: int) -> int:
        """How long a store that was dropped `resets` times in a row is left alone."""
        return self._doubled(resets, self._config.reset_backoff_max_ms) if resets > 1 else 0

    def _backoff_ms(self) -> int:
        return self._doubled(self.failures, self._config.backoff_max_ms)

    def _doubled(self, times: int, max_ms: int) -> int:
        return self._jittered(min(self._config.backoff_ms << min(times - 1, 16), max_ms))

    def _jittered(self, interval_ms: int) -> int:
        """Between a half and the whole of it: brokers that lost one controller do not come back in step."""
        return max(1, round(interval_ms * self._rng.uniform(0.5, 1.0)))
