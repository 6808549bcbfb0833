"""One line in the log for each happening that the active controller has committed.

    warning  broker fenced   broker_id=7 broker_epoch=4711 why=session_ended silent_ms=9003 offset=90412
    warning  replicas moved  broker_id=7 why=session_ended leaders_moved=400 without_leader=2 isr_changed=1200 ...
    info     configs changed keys=1 first=["topic orders: retention.ms"] offset=90500 principal=CN=alice request_id=...

The event's name is the kind of the happening, and the fields are its own. `offset` is the end of its batch in the metadata log.
`principal` and `request_id` are there if a client's request with an id has led to it.

Clients may create thousands of topics in a second, and leaders may change as many ISRs. Of each such kind the log gets at most
LINES_MAX lines between two looks of `watch`. The others are counted, and told in one line: `more happenings of a kind`. A warning
is never left out, and neither is a line about a broker: an operator searches for such a line by the broker's id.
"""

from collections import Counter
from dataclasses import fields
from enum import Enum
from typing import Final

from metadata_log.format.ids import uuid_text
from quorum.controller.protocol.brokers.broker_happenings import BrokerFenced, LogDirectoriesLost, ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.happenings import FREQUENT, Happening, LeadersElected
from quorum.runtime.active.story import Told
from service_kit.process.logs import get_logger

log = get_logger(__name__)

LINES_MAX: Final = 5
"""How many lines of one kind of FREQUENT happenings are written at most between two looks."""


class HappeningLines:
    """Told of each happening, in order, and of each look of `watch`."""

    def __init__(self) -> None:
        self._since_look: Counter[str] = Counter()
        """How many happenings of each frequent kind there were since the last look."""

    def tell(self, told: Told) -> None:
        """Logs the happening, or counts it."""
        happening, is_bad = told.happening, _is_bad(told.happening)
        if isinstance(happening, FREQUENT) and not is_bad:
            self._since_look[happening.kind] += 1
            if self._since_look[happening.kind] > LINES_MAX:
                return
        write = log.warning if is_bad else log.info
        write(happening.kind, **_fields(told))

    def look(self) -> None:
        """A line for each kind of which more happened than was logged."""
        if not self._since_look:
            return
        for kind, count in self._since_look.items():
            if count > LINES_MAX:
                log.info("more happenings of a kind", kind=kind, happenings=count - LINES_MAX)
        self._since_look.clear()


def _is_bad(happening: Happening) -> bool:
    """Returns whether an operator should look at a happening: a broker is lost, or partitions lack a leader or may lack data."""
    if isinstance(happening, BrokerFenced):
        return happening.why in (StateReason.SESSION_ENDED, StateReason.PROCESS_DEAD, StateReason.LOG_DIRECTORIES_LOST)
    if isinstance(happening, ReplicasMoved):
        return happening.without_leader > 0 or happening.unclean > 0
    if isinstance(happening, LeadersElected):
        return happening.unclean > 0
    return isinstance(happening, LogDirectoriesLost)


def _fields(told: Told) -> dict[str, object]:
    """The fields of a line; those without a value are left out."""
    found: dict[str, object] = {field.name: getattr(told.happening, field.name) for field in fields(told.happening)}
    found["offset"] = told.offset
    if told.request is not None:
        found |= {"principal": told.request.principal, "request_id": uuid_text(told.request.request_id)}
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value
