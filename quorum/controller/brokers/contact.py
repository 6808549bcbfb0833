"""What a broker's contact does to its state: the table of kraft's heartbeat manager, as data.

    FENCED    -> ONLINE     it asks for nothing else, and has applied its own registration
    ONLINE    -> FENCED     it asks for that
    ONLINE    -> STOPPING   it wants to shut down and leads something
    any       -> MAY GO     it wants to shut down and nothing holds it: it is fenced, and told so

A stopping broker is held while it leads what another could lead, and then until every active broker has applied the
records that moved its leaders: so whoever still comes to it with old metadata finds it there to say "not me".
"""

from enum import Enum
from typing import Final, NamedTuple

from metadata_log.format.records import RegisterBroker


class BrokerState(Enum):
    """A broker as the controller sees it (the broker's own view of its states: `broker_agent.session.lifecycle`)."""

    OFFLINE = "offline"
    """Not registered, or told that it may go."""
    FENCED = "fenced"
    ONLINE = "online"
    STOPPING = "stopping"


def state_of(broker: RegisterBroker) -> BrokerState:
    """The state that a registration says; FENCED where both flags are set."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE


class Next(Enum):
    """What a contact leads to."""

    FENCED = "fenced"
    ONLINE = "online"
    STOPPING = "stopping"
    MAY_GO = "may go"


class Rule(NamedTuple):
    """One row; None stands for "either"."""

    state: BrokerState
    wants_fence: bool | None
    wants_shut_down: bool | None
    is_caught_up: bool | None
    """It has applied its own registration (not the high watermark, which keeps moving: KAFKA-13959)."""
    is_held: bool | None
    """ONLINE: it leads something. STOPPING: it still leads what another could lead, or others have not seen it go."""
    next: Next


RULES: Final = (
    Rule(BrokerState.FENCED, None, True, None, None, Next.MAY_GO),
    Rule(BrokerState.FENCED, True, False, None, None, Next.FENCED),
    Rule(BrokerState.FENCED, False, False, False, None, Next.FENCED),
    Rule(BrokerState.FENCED, False, False, True, None, Next.ONLINE),
    Rule(BrokerState.ONLINE, False, False, None, None, Next.ONLINE),
    Rule(BrokerState.ONLINE, True, False, None, None, Next.FENCED),
    Rule(BrokerState.ONLINE, True, True, None, None, Next.MAY_GO),
    Rule(BrokerState.ONLINE, False, True, None, True, Next.STOPPING),
    Rule(BrokerState.ONLINE, False, True, None, False, Next.MAY_GO),
    Rule(BrokerState.STOPPING, None, None, None, True, Next.STOPPING),
    Rule(BrokerState.STOPPING, None, None, None, False, Next.MAY_GO),
)
"""Exactly one row fits every case (a test counts)."""


def next_state(
    state: BrokerState, *, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, is_held: bool
) -> Next:
    """The next state of a registered broker that was just heard of."""
    case = (wants_fence, wants_shut_down, is_caught_up, is_held)
    for rule in RULES:
        if rule.state is state and all(
            want is None or want == is_so for want, is_so in zip(rule[1:5], case, strict=True)
        ):
            return rule.next
    raise AssertionError((state, case))
