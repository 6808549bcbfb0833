"""The effect of a broker's contact on its state: the table of Kafka's heartbeat manager, as data.

    FENCED    -> ONLINE     the broker asks for nothing else, and has applied its own registration
    ONLINE    -> FENCED     the broker asks to be fenced
    ONLINE    -> STOPPING   the broker asks to shut down, and leads a partition
    any       -> MAY GO     the broker asks to shut down, and nothing holds it: it is fenced, and may end its process

Two things hold a stopping broker. For example broker 7 asks to shut down.
    1  Broker 7 leads orders-0, and broker 8 could lead it: broker 7 is held until broker 8 leads orders-0.
    2  Broker 9 has not applied that record: broker 7 is held until broker 9 has. Until then a client of broker 9 with
       old metadata still finds broker 7, which answers "not leader". Broker 7 has to apply the record, too, for this answer.
"""

from enum import Enum
from typing import Final, NamedTuple

from metadata_log.format.records import RegisterBroker
from quorum.controller.protocol.brokers.state_reason import StateReason


class BrokerState(Enum):
    """The controller's view of a broker. The broker's own view is `broker_agent.session.lifecycle`."""

    OFFLINE = "offline"
    """The broker is not registered, or was told that it may end its process."""
    FENCED = "fenced"
    ONLINE = "online"
    STOPPING = "stopping"


def state_of(broker: RegisterBroker) -> BrokerState:
    """The state in a registration; FENCED if both flags are set."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE


def shown_state(broker: RegisterBroker) -> BrokerState:
    """The state for operators: OFFLINE for a fenced broker that has shut down in order, so that its absence is no alarm.

    The record has the reason, so a new leader shows the same. Example: broker 7 gets a SIGTERM, its leaderships move, and
    controller 1 fences it with the reason `shut_down`: OFFLINE. Controller 1 dies, controller 2 leads: still OFFLINE. Broker 8
    gets a kill -9 and is fenced with the reason `session_ended`: FENCED.
    """
    if broker.fenced and broker.reason == StateReason.SHUT_DOWN.value:
        return BrokerState.OFFLINE
    return state_of(broker)


class Next(Enum):
    """The effect of a contact."""

    FENCED = "fenced"
    ONLINE = "online"
    STOPPING = "stopping"
    MAY_GO = "may go"


class Rule(NamedTuple):
    """One row of the table; None means either."""

    state: BrokerState
    wants_fence: bool | None
    wants_shut_down: bool | None
    is_caught_up: bool | None
    """The broker has applied its own registration. (Not the high watermark, which keeps moving: KAFKA-13959.)"""
    is_held: bool | None
    """ONLINE: the broker leads a partition. STOPPING: the broker leads a partition that another broker could lead, or an active
    broker or the stopping one has not applied the moves."""
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
"""Exactly one row fits each case; a test counts."""


def next_state(
    state: BrokerState, *, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, is_held: bool
) -> Next:
    """The effect of a contact of a registered broker."""
    case = (wants_fence, wants_shut_down, is_caught_up, is_held)
    for rule in RULES:
        if rule.state is state and all(
            want is None or want == is_so for want, is_so in zip(rule[1:5], case, strict=True)
        ):
            return rule.next
    raise AssertionError((state, case))
