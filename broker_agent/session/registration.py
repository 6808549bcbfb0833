"""A broker's registration: what the controllers know this process as, and since when.

A registration is a record in the log, and its offset is the *broker epoch*: it tells this process from every earlier one
with the same id (KIP-631). Whoever has no epoch is nobody to the controllers, and so never unfenced.

Trying ends after `initial.broker.registration.timeout.ms` for a process that was never registered: it may well be set up
wrongly. One that was registered once has been right, and goes on for as long as it takes; only a double that holds the id all
that time (DUPLICATE_BROKER_REGISTRATION) makes it give up.
"""

from broker_agent.session.lifecycle import Position
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Uuid


class Registration:
    """One process's registration. Attributes without an underscore are for reading only."""

    def __init__(self, timeout_ms: int) -> None:
        self.broker_epoch: int | None = None
        self.unfenced = False
        """The controller's last word was Online, or Stopping."""
        self._timeout_ms = timeout_ms
        self._previous_incarnations: tuple[Uuid, ...] = ()
        self.was_registered = False
        """This process was, at some time: what it says of itself has been right."""
        self._until_ms = 0

    def recovered(self, previous_incarnations: tuple[Uuid, ...]) -> None:
        """These processes held the store before, and one of them may be registered still."""
        self._previous_incarnations = previous_incarnations

    def begin(self, now_ms: int) -> None:
        self.end()
        self._until_ms = now_ms + self._timeout_ms

    def complete(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.was_registered = True

    def end(self) -> None:
        """The controllers do not know this process, or not any more."""
        self.broker_epoch = None
        self.unfenced = False

    def hear(self, *, unfenced: bool) -> None:
        """What the controller says of it."""
        assert self.broker_epoch is not None
        self.unfenced = unfenced

    def predecessor(self, failures: int) -> Uuid | None:
        """Whose registration this one takes over, at the attempt after `failures`.

        A predecessor that died between registering and noting it may be any of them: they take turns.
        """
        previous = self._previous_incarnations
        return previous[failures % len(previous)] if previous else None

    def is_given_up(self, code: ErrorCode, now_ms: int) -> bool:
        """Whether, after it was refused with `code`, it is not to be tried again."""
        is_hopeless = not self.was_registered or code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        return is_hopeless and now_ms >= self._until_ms

    def is_applied(self, position: Position) -> bool:
        """Whether a store at `position` holds it (only then may the broker be unfenced)."""
        return self.broker_epoch is not None and position.offset > self.broker_epoch
