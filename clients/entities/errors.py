"""The errors of entities, sessions and recipes. All are AdminErrors; each says what was done.

ConditionFailed  a condition did not hold; nothing was done
SessionLost      the session has ended, and its ephemeral entities are gone
NotHeld          the lock or the leadership is not held (any more); nothing was done
"""

from clients.entities.core.transactions import Condition, why_failed
from clients.entities.core.values import Entity
from clients.errors import AdminError
from metadata_log.format.errors import ErrorCode


class ConditionFailed(AdminError):
    """A condition did not hold, so nothing was done. `entity`: the entity as it is, without its value; None: there is none."""

    def __init__(self, condition: Condition, entity: Entity | None) -> None:
        text = f"nothing was done: {why_failed(condition, entity)}; read it again, then decide"
        super().__init__(ErrorCode.INVALID_UPDATE_VERSION, text)
        self.condition = condition
        self.entity = entity


class SessionLost(AdminError):
    """The session has ended. Its ephemeral entities have vanished with it. Open a new session."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SESSION, text)


class NotHeld(AdminError):
    """The caller does not hold the lock or the leadership (any more). Nothing was done."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SESSION, text)
