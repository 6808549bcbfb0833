"""The state of a broker's process and its lease: together they say if the broker may serve clients.

`lifecycle` has the allowed changes of state, `lease` the arithmetic of the lease. A broker that is online or stopping needs the
lease. A fenced broker has none, and a broker that was fenced while it stops needs none any more:

    1. Broker 101 is stopping. It still serves clients, because its leaderships have not moved yet.
    2. The controller fences broker 101. The broker leads no partition now: it serves no clients, and its lease ends.
    3. The broker stays in STOPPING until it exits, because a stopping process never becomes FENCED.
"""

from broker_agent.session.lease import Lease
from broker_agent.session.lifecycle import EDGES, BrokerState, LeaseMode, StateChanged


class Life:
    """One process's state and lease. Attributes without an underscore are for reading only."""

    def __init__(self, lease_mode: LeaseMode) -> None:
        self.state = BrokerState.OFFLINE
        self.reason = "recovering the local store"
        self.lease = Lease()
        self.is_fenced_while_stopping = False
        """True if the broker leads no partition while it stops: it does not serve clients, and no leader has to move away."""
        self._lease_mode = lease_mode

    @property
    def needs_lease(self) -> bool:
        """True if clients are served as long as the lease holds."""
        return self.state in (BrokerState.ONLINE, BrokerState.STOPPING) and not self.is_fenced_while_stopping

    def may_serve(self, now_ms: int) -> bool:
        """Tells whether clients may be answered now. Callers ask at each request: a process that was paused has not stepped."""
        return self.needs_lease and (self._lease_mode is LeaseMode.ADVISORY or self.lease.holds(now_ms))

    @property
    def lease_deadline_ms(self) -> int | None:
        """The end of a lease that the broker needs; None if the lapse was noticed already."""
        return self.lease.until_ms if self.needs_lease and not self.lease.lapsed else None

    def notice_lapse(self, now_ms: int) -> bool:
        """Tells whether a lease that the broker needs has lapsed since the last call."""
        return self.needs_lease and self.lease.notice(now_ms)

    def tell(self, reason: str) -> None:
        """Gives the present state another reason."""
        self.reason = reason

    def become(self, state: BrokerState, reason: str) -> tuple[StateChanged, ...]:
        """Enters `state`. Returns the effect; none if the broker is in `state` already and only the reason is new."""
        self.reason = reason
        if state in (BrokerState.FENCED, BrokerState.OFFLINE):
            self.lease.end()  # also for a fenced broker: it has a lease if it was unfenced before it had caught up
        if state is self.state:
            return ()
        assert state in EDGES[self.state], f"{self.state.name} -> {state.name}: {reason}"
        if state is BrokerState.STOPPING:
            self.is_fenced_while_stopping = self.state is BrokerState.FENCED
        self.state = state
        return (StateChanged(state, reason),)

    def fence(self) -> tuple[StateChanged, ...]:
        """Notes that the controller has fenced this broker. Returns the effect if the state changes."""
        if self.state is BrokerState.ONLINE:
            return self.become(BrokerState.FENCED, "fenced by the controller")
        if self.state is BrokerState.STOPPING:
            self.is_fenced_while_stopping = True
        self.lease.end()
        return ()

    def check_invariants(self) -> None:
        assert not self.lease.lapsed or self.needs_lease, "only a broker that serves can have a lapsed lease"
