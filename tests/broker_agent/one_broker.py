"""One broker's session and its clock, for tests that take it step by step."""

import random
from dataclasses import replace
from typing import Any, TypeVar

from broker_agent.session.lifecycle import (
    Applied,
    BrokerState,
    Effect,
    Fetch,
    FetchAnswer,
    FetchAnswered,
    FetchResult,
    Input,
    LeaderHint,
    Position,
    Register,
    Registered,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session.session import Session
from broker_agent.session.session_config import SessionConfig

E = TypeVar("E")
CHAIN = b"c" * 32
HINT = LeaderHint(2, "c2", 9093)
ONLINE = BrokerState.ONLINE
FENCED = BrokerState.FENCED
LEASE_MS = 5_000


def at(offset: int, digest: bytes = b"") -> Position:
    return Position(offset, 1, CHAIN, digest)


class Broker:
    """A session and a clock; remembers what the last step asked for."""

    def __init__(self, **config: Any) -> None:
        self.session = Session(SessionConfig(**config), random.Random(7))
        self.now_ms = 1_000
        self.effects: list[Effect] = []

    def step(self, happened: Input, after_ms: int = 0) -> "Broker":
        self.now_ms += after_ms
        self.effects = self.session.step(happened, self.now_ms)
        return self

    def the(self, kind: type[E]) -> E:
        """The one effect of this kind in the last step."""
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, self.effects
        return found[0]

    def has(self, kind: type[object]) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)

    def number(self) -> int:
        """The number of the request in flight, which the last step sent."""
        fetches = [effect.request.number for effect in self.effects if isinstance(effect, Fetch)]
        registers = [effect.number for effect in self.effects if isinstance(effect, Register)]
        (number,) = fetches + registers
        return number

    def answer(self, number: int | None = None, after_ms: int = 5, **fields: Any) -> "Broker":
        """Answers the fetch in flight; nothing new, Online and a lease unless `fields` say otherwise."""
        answer = FetchAnswer(
            self.number() if number is None else number,
            FetchResult.BATCHES,
            ONLINE,
            end_offset=self.session.position.offset,
            lease_ms=LEASE_MS,
            controller_epoch=3,
        )
        return self.step(FetchAnswered(replace(answer, **fields)), after_ms)

    def wait(self) -> "Broker":
        """Until the next deadline, whatever it is."""
        deadline_ms = self.session.next_deadline_ms()
        assert deadline_ms is not None
        return self.step(TimerFired(), max(0, deadline_ms - self.now_ms))

    def registered(self) -> "Broker":
        self.step(StoreRecovered(at(10), ()))
        return self.step(Registered(self.the(Register).number, 12), 5)

    def online(self) -> "Broker":
        """Online at offset 13, one fetch in flight."""
        self.registered()
        self.answer(state=FENCED, batches=b"b", previous_chain=CHAIN, end_offset=13)
        self.step(Applied(at(13)), 1)
        self.answer()
        assert self.session.state is ONLINE
        return self.wait()
