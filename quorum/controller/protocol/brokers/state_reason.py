"""The reasons for a broker's state: why it is fenced, online or stopping.

Example: the session of broker 7 ends. The record of the new state, the happenings, the log line and the label of the metric all
say `session_ended`.
"""

from enum import Enum
from typing import Final


class StateReason(Enum):
    """Why a broker is in its state. The values are in records of the log, in log lines and in labels of metrics."""

    REGISTERED = "registered"
    CAUGHT_UP = "caught_up"
    STOPPING = "stopping"
    SHUT_DOWN = "shut_down"
    SESSION_ENDED = "session_ended"
    PROCESS_DEAD = "process_dead"
    OPERATOR = "operator"
    ASKED = "asked"
    LOG_DIRECTORIES_LOST = "log_directories_lost"
    SUPERSEDED = "superseded"
    MAINTENANCE = "maintenance"

    @property
    def meaning(self) -> str:
        """The reason in words."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    StateReason.CAUGHT_UP: "the broker has applied its own registration",
    StateReason.MAINTENANCE: "an operator has drained the broker: its leaderships moved to other brokers",
    StateReason.STOPPING: "the broker has asked to shut down, and its leaderships move to other brokers",
    StateReason.REGISTERED: "the broker has registered, and has not yet applied its own registration",
    StateReason.SHUT_DOWN: "the broker has shut down in order: its leaderships moved away first",
    StateReason.SESSION_ENDED: "the controller did not hear the broker for a whole session (broker.session.timeout.ms)",
    StateReason.PROCESS_DEAD: "a watcher on the broker's host has proved that its process has ended",
    StateReason.OPERATOR: "an operator has asked for it (`quorumctl brokers fence`)",
    StateReason.ASKED: "the broker itself has asked to be fenced, for example because it had to drop its store",
    StateReason.LOG_DIRECTORIES_LOST: "the broker has reported that its last log directory is offline",
    StateReason.SUPERSEDED: "another process has registered under this broker id",
}
