"""From a command to a batch in the log: decided, staged and sealed, and only then appended.

    decide --> stage --> seal -->|--> append --> propose
     nothing is in the log yet   |   the log has the batch, and the image must follow

*Left of the line* an accident costs one request. The active controller refuses it with UNKNOWN_SERVER_ERROR, counts it, logs it
with its traceback, and shows it as a problem. *Right of the line* log and image may disagree: the process stops, and opens the
log anew.

An accident may leave the controller's soft state half changed. The first slice of a fencing bars the broker and moves the
walk on; if its second half raises, the walk has passed partitions whose changes nobody has written. So after an accident in a
decision of that kind (`DECIDED_BY_IMAGE_ALONE` names the others), or in one that nobody asked for, the leader resigns: the
next one builds its soft state from the image.

An example. A request for topic "x" meets a mistake in this program: KeyError. Its client hears UNKNOWN_SERVER_ERROR and does
not ask again; the next request finds the same leader. Broker 7's fetch meets another: the broker is refused, and the leader
resigns. Broker 7 does ask again, of the next leader, and that one resigns, too. A controller decides nothing more for that
broker for a minute, so three controllers resign at most three times a minute; meanwhile the others are served.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.errors import BatchTooLarge, ErrorCode
from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import MetadataRecord, Record
from metadata_log.image.delta import MetadataDelta
from metadata_log.store.log_view import LogView
from quorum.controller.controller import DECIDED_BY_IMAGE_ALONE, Controller
from quorum.controller.protocol.commands import BrokerContact, Command, RegisterBrokerCommand
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.request_outcomes import RequestIdentity, is_done, outcome_of
from quorum.runtime.active.story import Story
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import Refused

logger = logging.getLogger(__name__)

SHUNNED_MS: Final = 60_000
"""For so long a controller decides nothing for a broker whose request has made it resign."""
SHOWN_MS: Final = 600_000
"""How long an accident is shown among the node's problems."""
LOG_INTERVAL_MS: Final = 1_000
"""One traceback in so long; a client that knows a poisonous request must not fill the disk with them."""
COMMAND_CHARS_MAX: Final = 200


class DecisionFailed(Exception):
    """Something unexpected was raised; nothing was appended. The text says what, in a line."""

    def __init__(self, text: str, *, spoils: bool) -> None:
        super().__init__(text)
        self.spoils = spoils
        """The controller's soft state may be half changed: this node must not go on leading, and resigns."""

    def refusal(self) -> Refused:
        """The answer to the asker."""
        text = f"this controller made a mistake ({self}); nothing was done, and its log says more: do not repeat the request"
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)


class Accidents:
    """The decisions that failed, since this process started."""

    def __init__(self) -> None:
        self.count = 0
        self._last = ""
        self._last_ms = 0
        self._logged_ms: int | None = None
        self._shunned_until_ms: dict[NodeId, int] = {}

    def note(self, command: Command | None, error: Exception, now_ms: int, *, spoils: bool) -> DecisionFailed:
        """Counts and logs the accident, and remembers whose request it was if the leader resigns for it.

        Without a `command` it happened while the controller looked for what is due.
        """
        self.count += 1
        name = "the look for what is due" if command is None else type(command).__name__
        self._last, self._last_ms = f"{name}: {error!r:.200}", now_ms
        if self._logged_ms is None or now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            text = "decision %d that failed, nothing was appended: %s"
            logger.error(
                text, self.count, name if command is None else f"{command!r:.{COMMAND_CHARS_MAX}}", exc_info=error
            )
        if spoils and isinstance(command, BrokerContact | RegisterBrokerCommand):
            still = {broker_id: until_ms for broker_id, until_ms in self._shunned_until_ms.items() if until_ms > now_ms}
            self._shunned_until_ms = still | {command.broker_id: now_ms + SHUNNED_MS}
        return DecisionFailed(self._last, spoils=spoils)

    def check_not_shunned(self, broker_id: NodeId, now_ms: int) -> None:
        """Raises Refused where an earlier request of that broker made this controller resign, less than SHUNNED_MS ago."""
        until_ms = self._shunned_until_ms.get(broker_id, 0)
        if until_ms <= now_ms:
            return
        text = (
            f"an earlier request of broker {broker_id} has made this controller resign ({self._last}); nothing was done, "
            f"and nothing will be for {until_ms - now_ms} ms: its log says more"
        )
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)

    def problem(self, now_ms: int) -> str:
        """That decisions failed, in one sentence; empty `SHOWN_MS` after the last one."""
        if not self.count or now_ms - self._last_ms >= SHOWN_MS:
            return ""
        times = "a decision" if self.count == 1 else f"{self.count} decisions"
        return f"{times} of this controller failed by an internal error (the last one: {self._last}); its log has the traceback"


class Prepared(NamedTuple):
    """A decision that has done nothing yet. Without records there is neither delta nor batch."""

    decision: Decision
    delta: MetadataDelta | None = None
    batch: Batch | None = None


class Deciding:
    """Takes commands to the log, for the active controller."""

    def __init__(
        self,
        *,
        controller: Controller,
        outcomes_max: int,
        log: LogView,
        state: StateMachine,
        story: Story,
        seal: Callable[[Sequence[Record]], Batch],
        append: Callable[[Batch], None],
        wall_ms: Callable[[], int],
    ) -> None:
        self.accidents = Accidents()
        self._story = story
        self._wall_ms = wall_ms
        self._controller = controller
        self._outcomes_max = outcomes_max
        self._log = log
        self._state = state
        self._seal = seal
        self._append = append

    def decide(
        self, command: Command, now_ms: int, identity: RequestIdentity | None = None, *, is_asked: bool = True
    ) -> tuple[Decision, Offset | None]:
        """The decision, and the end of the batch of its records; None if there are none. `is_asked`: by a client, or broker.

        Raises:
            Refused: nothing was done. A client's mistake costs nobody the leader (KAFKA-14996).
            DecisionFailed: likewise; the mistake is this program's.
        """
        if isinstance(command, BrokerContact | RegisterBrokerCommand):
            self.accidents.check_not_shunned(command.broker_id, now_ms)
        spoils = not (is_asked and isinstance(command, DECIDED_BY_IMAGE_ALONE))
        try:
            prepared = self._prepare(command, now_ms, identity)
        except ControllerError as e:
            raise Refused(e.code, e.message) from e
        except Exception as e:  # whatever it is, nothing was appended: it is told, and costs one request
            if isinstance(e, BatchTooLarge) and not spoils:
                raise Refused(ErrorCode.RECORD_BATCH_TOO_LARGE, f"{e}; nothing was done") from e
            raise self.accidents.note(command, e, now_ms, spoils=spoils) from e
        end = self._write(prepared)
        if end is not None and prepared.decision.happenings:
            self._story.appended(prepared.decision.story(end), end, identity)
        return prepared.decision, end

    def due(self, now_ms: int) -> Command | None:
        """What the controller finds due by itself. Raises DecisionFailed."""
        try:
            return self._controller.due(self._state.proposed, now_ms)
        except Exception as e:  # as above
            raise self.accidents.note(None, e, now_ms, spoils=True) from e

    def _prepare(self, command: Command, now_ms: int, identity: RequestIdentity | None) -> Prepared:
        image = self._state.proposed
        decision = self._controller.decide(image, command, now_ms, self._wall_ms())
        records = decision.records
        if identity is not None and decision.then is None and is_done(command, decision.reply):
            records = (*records, outcome_of(image, identity, decision.reply, self._outcomes_max))
        return self._staged(decision, records) if records else Prepared(decision)

    def _staged(self, decision: Decision, records: Sequence[MetadataRecord]) -> Prepared:
        """Raises LogFormatError: the records do not fit the image (InvalidRecord), or no batch (BatchTooLarge)."""
        delta = self._state.stage(records, self._log.shape.end)
        return Prepared(decision, delta, self._seal(records))

    def _write(self, prepared: Prepared) -> Offset | None:
        """Raises Refused: there is no room for it, and this node leads no longer than this turn."""
        batch = prepared.batch
        if batch is None:
            return None
        self._append(batch)
        self._state.propose(prepared.delta, batch)
        return batch.end_offset
