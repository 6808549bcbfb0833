"""When a broker sends its next request, how much the request asks for, and which answer counts.

*One request is in flight at a time.* An answer counts only if its number is that of the request in flight. So a late or repeated
answer is neither applied twice nor renews a lease. While a request is in flight no other request is due.

*A fetch asks for as much as arrives in time*, over a link of any speed: see `metadata_log.format.fetch_size`.

*The broker never loops without a pause.* Each path to the next request has a back-off, a long poll or `fetch_interval_min_ms`.
Only a hint to the leader is followed at once, and not twice in a row:

    1. Broker 101 fetches from controller 1, which answers: controller 2 leads. The broker asks controller 2 at once.
    2. Controller 2 answers: controller 1 leads. The broker backs off before it asks controller 1 again.
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
from metadata_log.format.fetch_size import FetchSize
from metadata_log.format.ids import Uuid


@dataclass(frozen=True, slots=True)
class Sent:
    """A request in flight."""

    number: int
    sent_ms: int
    timeout_at_ms: int
    request: FetchRequest | None
    """The fetch; None for a registration."""


class FetchSchedule:
    """The requests of one session. Attributes without an underscore are for reading only."""

    def __init__(self, config: SessionConfig, rng: random.Random) -> None:
        self.in_flight: Sent | None = None
        self.due_ms: int | None = None
        """When the next request goes out; None while a request is in flight, or until another event sets a time."""
        self.failures = 0
        """How many requests in a row have failed; each failure doubles the back-off."""
        self.pieces = FetchSize(config.piece_bytes_min, config.max_bytes, config.request_timeout_ms)
        """How much of the log a fetch asks for, so that the answer arrives in time."""
        self._config = config
        self._rng = rng
        self._number = 0
        self._followed_hint = False
        self._hurries = False
        """True if a fetch has failed and no answer since then has given a lease, so that the last lease may end soon."""

    def next_deadline_ms(self) -> int | None:
        """When the schedule has to act: an answer is overdue, or the next request is due."""
        return self.due_ms if self.in_flight is None else self.in_flight.timeout_at_ms

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight and none is due."""
        return self.in_flight is None and self.due_ms is None

    def check_invariants(self) -> None:
        assert self.in_flight is None or self.due_ms is None, "one request at a time"

    # --- sending -----------------------------------------------------------------------------------------------------

    def is_due(self, now_ms: int) -> bool:
        return self.in_flight is None and self.due_ms is not None and now_ms >= self.due_ms

    def register(
        self, previous_incarnation: Uuid | None, now_ms: int, previous_broker_epoch: int | None = None
    ) -> Register:
        """Makes the next registration request."""
        timeout_ms = self._config.register_timeout_ms
        number = self._next_number()
        self.in_flight = Sent(number, now_ms, now_ms + timeout_ms, None)
        return Register(number, previous_incarnation, timeout_ms, previous_broker_epoch)

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
        """Makes the next fetch. While the store is `busy` the fetch does not wait and asks for one byte: it is a heartbeat.

        After a failure the fetch does not wait either, so that the new leader renews the lease at once. A new leader first
        delivers the record that opened its epoch, and grants a lease only in the answer to the fetch after that record.
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

    # --- answers and failures ----------------------------------------------------------------------------------------

    def registration_completed(self, number: int) -> bool:
        """Tells whether registration `number` was in flight; the request is no longer in flight."""
        sent = self.in_flight
        if sent is None or sent.number != number or sent.request is not None:
            return False
        self.in_flight = None
        return True

    def fetch_completed(self, number: int) -> tuple[Sent, FetchRequest] | None:
        """Returns fetch `number` if it was in flight; the request is no longer in flight."""
        sent = self.in_flight
        if sent is None or sent.number != number or sent.request is None:
            return None
        self.in_flight = None
        return sent, sent.request

    def piece_came(self, sent: Sent, content_bytes: int, now_ms: int) -> None:
        """Notes that `content_bytes` of the log have arrived and that the controller has more."""
        self.pieces.came(content_bytes, sent.sent_ms, now_ms)

    def take_overdue(self, now_ms: int) -> Sent | None:
        """Returns the request in flight if its time is over; the request is no longer in flight."""
        sent = self.in_flight
        if sent is None or now_ms < sent.timeout_at_ms:
            return None
        self.in_flight = None
        self.pieces.start_small()
        return sent

    def abandon(self) -> AbandonFetch | None:
        """Gives up the request in flight, because a more urgent request is to be sent."""
        sent, self.in_flight = self.in_flight, None
        return None if sent is None or sent.request is None else AbandonFetch(sent.number)

    def stop(self) -> None:
        """Ends all requests."""
        self.in_flight = None
        self.due_ms = None

    # --- when to ask next --------------------------------------------------------------------------------------------

    def ask_at(self, at_ms: int) -> None:
        assert self.in_flight is None
        self.due_ms = at_ms

    def ask_after_answer(
        self, sent: Sent, state: BrokerState, *, busy: bool, brought: bool, leased: bool, now_ms: int
    ) -> None:
        """Schedules the next fetch: at once if the log may have more, else not sooner after `sent` than the interval in force."""
        self._hurries = self._hurries and brought and not leased
        if state is BrokerState.STOPPING:
            interval_ms = self._config.shutdown_interval_ms
        elif busy:
            interval_ms = self._config.contact_interval_ms
        else:
            interval_ms = 0 if brought else self._config.fetch_interval_min_ms
        self.ask_at(max(now_ms, sent.sent_ms + interval_ms))

    def ask_when_ready(self, now_ms: int) -> None:
        """Schedules a fetch from a controller that has just become the leader and cannot answer yet."""
        self.ask_at(now_ms + self._jittered(self._config.not_ready_interval_ms))

    def postpone(self) -> None:
        """Delays the next request, because the store has work and needs only heartbeats meanwhile."""
        if self.due_ms is not None:
            self.due_ms += self._config.contact_interval_ms

    def forget_failures(self) -> None:
        self.failures = 0

    def answered(self) -> None:
        """Notes that the leader has answered."""
        self.forget_failures()
        self._followed_hint = False

    def back_off(self, now_ms: int) -> None:
        """Schedules another attempt, later than the last time."""
        self.failures += 1
        self._hurries = True
        self.ask_at(now_ms + self._backoff_ms())

    def try_elsewhere(self, leader: LeaderHint | None, now_ms: int) -> None:
        """Schedules the next request after a failure: at once after a hint, else with back-off. A request in flight is kept."""
        self.failures += 1
        self._hurries = True
        self.pieces.start_small()  # the link to another controller may be slower
        if self.in_flight is None:
            # Two controllers that name each other as leader must not be asked in turn without a pause.
            self._followed_hint = leader is not None and not self._followed_hint
            self.ask_at(now_ms if self._followed_hint else now_ms + self._backoff_ms())

    def reset_backoff_ms(self, resets: int) -> int:
        """How long to wait after a store was dropped `resets` times in a row."""
        return self._doubled(resets, self._config.reset_backoff_max_ms) if resets > 1 else 0

    def _backoff_ms(self) -> int:
        return self._doubled(self.failures, self._config.backoff_max_ms)

    def _doubled(self, times: int, max_ms: int) -> int:
        return self._jittered(min(self._config.backoff_ms << min(times - 1, 16), max_ms))

    def _jittered(self, interval_ms: int) -> int:
        """Returns half to all of the interval at random, so that brokers that lost one controller do not return in step."""
        return max(1, round(interval_ms * self._rng.uniform(0.5, 1.0)))
