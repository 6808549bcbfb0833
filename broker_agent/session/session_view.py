"""The read-only side of a broker's session: its state, lease, registration and position, and the time of its next deadline.

A view changes nothing: `Session.step` alone changes a session.
"""

import random

from broker_agent.session.fetch_schedule import FetchSchedule
from broker_agent.session.life import Life
from broker_agent.session.lifecycle import BrokerState, Position
from broker_agent.session.registration import Registration
from broker_agent.session.session_config import SessionConfig
from broker_agent.session.store_position import StorePosition
from metadata_log.format.ids import Epoch, Offset


class SessionView:
    """The parts of a session, and what others may read. `Session` is the only subclass."""

    def __init__(self, config: SessionConfig, rng: random.Random, generation: int = 1) -> None:
        self.generation = generation
        """The cluster's generation: grows when an operator recovers the cluster without a majority, into a new history."""
        self.high_watermark: Offset = 0
        self.exited = False
        self._config = config
        self._registration = Registration(config.initial_registration_timeout_ms)
        self._schedule = FetchSchedule(config, rng)
        self._store = StorePosition()
        self._life = Life(config.lease_mode)
        self._controller_epoch: Epoch = 0
        self._stop_until_ms = 0

    def next_deadline_ms(self) -> int | None:
        """The latest time for `step(TimerFired(), ...)`; None if only another input can change the session."""
        if self.exited:
            return None
        deadlines = [
            self._schedule.next_deadline_ms(),
            self._life.lease_deadline_ms,
            self._stop_until_ms if self.state is BrokerState.STOPPING else None,
        ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def may_serve(self, now_ms: int) -> bool:
        """Tells whether clients may be answered now. Callers ask at each request: a process that was paused has not stepped."""
        return self._life.may_serve(now_ms)

    @property
    def state(self) -> BrokerState:
        return self._life.state

    @property
    def reason(self) -> str:
        """The reason for the state."""
        return self._life.reason

    @property
    def lease_lapsed(self) -> bool:
        """True if the lease has ended and the broker was neither fenced nor confirmed since."""
        return self._life.lease.lapsed

    @property
    def lease_until_ms(self) -> int:
        """The end of the lease, exclusive."""
        return self._life.lease.until_ms

    @property
    def broker_epoch(self) -> int | None:
        """The offset of this process's registration; None while the process is not registered."""
        return self._registration.broker_epoch

    @property
    def position(self) -> Position:
        """The position of the local store."""
        return self._store.position

    @property
    def is_caught_up(self) -> bool:
        """True if this broker has applied its own registration: only then may a controller unfence it (law M3)."""
        return self._registration.is_applied(self.position)
